"""A runner without a model: it executes plans on simulated pages and believes nothing that it cannot read from them.

A page slot holds a mark. A token's mark commits to the whole history before it and to the encoder rows seen on the
way, and the next token is a hash of the last mark: a wrong page, row or position anywhere changes the output.
`alone` predicts a request's output from the same arithmetic, without pages, plans or scheduler.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from transduce.core.blocks import BlockPool
from transduce.core.capacity import Budgets
from transduce.core.output import FinishReason, TokenLogprobs, Weights
from transduce.core.plan import Candidate, Choice, Chunk, EncodeJob, Segment, StepPlan, StepResult
from transduce.core.request import Attention, EncoderInput, EncoderItem, Read, Request, RuleSpec

Mark = tuple[int, int]
"""What a page slot holds: (token, digest of the history up to it), or (digest of an encoder item, its row)."""

VOCABULARY = 11
FORBIDS = "forbids"
"""A rule that forbids every token after one history in `args[0]`."""


def row_marks(source: EncoderInput) -> list[Mark]:
    """What an encoder input's rows must hold."""
    return [(digest(item), row) for item in source.items for row in range(item.rows)]


def digest(item: EncoderItem) -> int:
    """An item's content."""
    return hash(tuple(item.data.tolist()))


def token_mark(before: int, token: int, position: int, seen: tuple[Mark, ...]) -> Mark:
    """The mark of a token whose predecessor's digest is `before` and which sees those encoder rows."""
    return token, hash((before, token, position, seen))


def choose(rules: tuple[RuleSpec, ...], last: Mark, read: Read) -> tuple[Candidate, ...]:
    """A token per sample, or nothing where the rules forbid everything."""
    if read.target is not None:
        return (Candidate(read.target, -float(hash((last[1], read.target)) % 83)),)
    if any(hash((last[1], 0)) % int(str(rule.args[0])) == 0 for rule in rules if rule.name == FORBIDS):
        return ()
    if read.beams:
        return _best(last, read)
    draws = [(read.sampling.seed, sample) if read.sampling else () for sample in read.samples]
    chosen = [hash((last[1], read.position, *draw)) for draw in draws]
    return tuple(Candidate(h % VOCABULARY, None if read.logprobs is None else -(h % 97) / 8) for h in chosen)


def _best(last: Mark, read: Read) -> tuple[Candidate, ...]:
    """The best tokens, or the first drawn; some have equal log-probabilities, and some are forbidden."""
    noise = [0.0] * VOCABULARY
    if read.sampling is not None:
        drawn = (read.sampling.seed, *read.samples, read.position)
        noise = [hash((last[1], token, *drawn)) % 1009 / 8 for token in range(VOCABULARY)]
    marks = [hash((last[1], token, 1)) for token in range(VOCABULARY)]
    all_of_them = [Candidate(t, -(mark % 29) / 8, noise[t]) for t, mark in enumerate(marks) if mark % 5]
    return tuple(sorted(all_of_them, key=lambda c: (-c.logprob - c.noise, c.token))[: read.beams])  # type: ignore[operator]


def likeliest(last: Mark, read: Read) -> tuple[tuple[int, float], ...]:
    """Another hash, as the read's most likely tokens."""
    return tuple((i, -float(last[1] % 89) - i) for i in range(read.logprobs or 0))


@dataclass
class Hypothesis:
    """An output as it should be. `reason` is None while it is unfinished."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    reason: FinishReason | None = None
    stop_token: int | None = None
    total: float | None = None
    score: float | None = None


def alone(request: Request) -> list[Hypothesis]:
    """The samples of a request with the engine to itself."""
    return [_alone(request, index) for index in range(request.width)]


def _alone(request: Request, index: int) -> Hypothesis:
    output = Hypothesis(reason="length" if request.only_scored else None)
    while output.reason is None:
        tokens = [*request.prompt, *output.tokens]
        last = mark_after(request, tokens)
        read = Read(len(tokens) - 1, "lm", request.sampling, (index,), request.logprobs)
        candidates = choose(request.rules, last, read)
        if candidates:
            append(output, request, candidates[0], likeliest(last, read))
        else:
            output.reason = "error"
    return output


def mark_after(request: Request, tokens: Sequence[int]) -> Mark:
    """The mark of the last of a sequence's tokens."""
    marks, last = [row_marks(source) for source in request.inputs], (0, 0)
    for position, token in enumerate(tokens):
        spans = [span for span in request.spans if span.start <= position]
        seen = tuple(marks[spans[-1].source][: spans[-1].rows]) if spans else ()
        last = token_mark(last[1], token, position, seen)
    return last


def scores(request: Request) -> list[TokenLogprobs]:
    """The log-probabilities of a request's prompt that are asked for."""
    if (scored := request.scored) is None:
        return []
    found = []
    for position, target in enumerate(request.targets, scored.start - 1):
        read = Read(position, logprobs=scored.top, target=target)
        last = mark_after(request, request.prompt[: position + 1])
        (chosen,) = choose((), last, read)
        found.append(TokenLogprobs(chosen.token, chosen.logprob or 0.0, likeliest(last, read)))
    return found


def looked_at(attention: Attention, marks: Sequence[Mark]) -> Weights:
    """A hash of each token's mark, by head and row."""
    heads, rows = range(len(attention.heads)), range(attention.rows)
    found = [[[hash((mark[1], head, row)) % 101 for row in rows] for mark in marks] for head in heads]
    return np.array(found, dtype=np.float32).reshape(len(heads), len(marks), len(rows))


def attended(request: Request) -> list[list[list[float]]]:
    """All that is asked of a request's attention, [heads, tokens, rows]."""
    if request.attention is None:
        return []
    marks = [mark_after(request, request.prompt[: end + 1]) for end in range(len(request.computed))]
    weights: list[list[list[float]]] = looked_at(request.attention, marks).tolist()
    return weights


def append(output: Hypothesis, request: Request, chosen: Candidate, top: tuple[tuple[int, float], ...]) -> None:
    output.tokens.append(chosen.token)
    if request.logprobs is not None and chosen.logprob is not None:
        output.logprobs.append(TokenLogprobs(chosen.token, chosen.logprob, top))
    if chosen.token in request.stopping.eos:
        output.reason = "stop"
    elif chosen.token in request.stopping.stop:
        output.reason, output.stop_token = "stop", chosen.token
    elif len(output.tokens) == request.stopping.max_tokens:
        output.reason = "length"


@dataclass(frozen=True)
class State:
    """A sequence's rules, and the tokens they have been shown; those after the first `certain` may be drafts."""

    rules: tuple[RuleSpec, ...]
    tokens: tuple[int, ...] = ()
    certain: int = 0


class FakeRunner:
    """Executes plans. `pool` says who owns a block: a write to one that is free or shared is an error."""

    def __init__(self, budgets: Budgets, pool: BlockPool) -> None:
        self._budgets = budgets
        self._pool = pool
        self._pages: list[list[Mark | None]] = [[None] * budgets.block_size for _ in range(pool.num_blocks)]
        self.states: dict[int, State] = {}

    def run(self, plan: StepPlan, fails: bool = False) -> StepResult:
        """Execute a plan, in the order that StepPlan gives; or fail before a page is written."""
        result = StepResult()
        self._update(plan)
        if fails:
            return result
        for target, page in [(target, list(self._pages[source])) for source, target in plan.copies]:
            assert self._pool.count(target) == 1, f"copy to block {target}"
            self._pages[target] = page
        for job in plan.encode:
            self._encode(job)
        for chunk in plan.chunks:
            self._write(chunk)
        for chunk in plan.chunks:
            self._advance(chunk)
            self._read(chunk, result)
        return result

    def _update(self, plan: StepPlan) -> None:
        """Begin, fork and drop rule states."""
        for seq_id, rules, tokens in plan.started:
            assert seq_id not in self.states
            self.states[seq_id] = State(rules, tokens, len(tokens))
        for parent, child in plan.forks:
            assert child not in self.states
            self.states[child] = self.states[parent]
        for seq_id in plan.dropped:
            del self.states[seq_id]

    def _encode(self, job: EncodeJob) -> None:
        for row in range(job.item.rows):
            self._put(job.blocks, self._budgets.cross_slabs, job.start + row, (digest(job.item), row))

    def _write(self, chunk: Chunk) -> None:
        before = self._get(chunk.self_blocks, self._budgets.self_slabs, chunk.start - 1)[1] if chunk.start else 0
        for (position, token), segment in zip(enumerate(chunk.tokens, chunk.start), _per_token(chunk), strict=True):
            rows = range(segment.kv_len)
            seen = tuple(self._get(segment.blocks, self._budgets.cross_slabs, row) for row in rows)
            mark = token_mark(before, token, position, seen)
            self._put(chunk.self_blocks, self._budgets.self_slabs, position, mark)
            before = mark[1]

    def _advance(self, chunk: Chunk) -> None:
        """Show the rules what they have not seen; then the pages must hold exactly what they were shown."""
        state, end = self.states[chunk.seq_id], chunk.start + len(chunk.tokens)
        known = state.tokens[: max(state.certain, chunk.start)]
        tokens = known + chunk.tokens[max(0, len(known) - chunk.start) :]
        assert len(tokens) >= end, "tokens skipped"
        certain = next((read.position + 1 for read in chunk.reads if read.target is None), end)
        self.states[chunk.seq_id] = State(state.rules, tokens, max(certain, len(known)))
        history = [self._get(chunk.self_blocks, self._budgets.self_slabs, position)[0] for position in range(end)]
        assert tuple(history) == tokens[:end], "another hypothesis' pages"

    def _read(self, chunk: Chunk, result: StepResult) -> None:
        if chunk.attention is not None:
            places = range(chunk.start, chunk.start + len(chunk.tokens))
            marks = [self._get(chunk.self_blocks, self._budgets.self_slabs, position) for position in places]
            result.weights[chunk.seq_id] = looked_at(chunk.attention, marks)
        for read in chunk.reads:
            last = self._get(chunk.self_blocks, self._budgets.self_slabs, read.position)
            found = choose(self.states[chunk.seq_id].rules, last, read)
            observed = None if read.logprobs is None else likeliest(last, read)
            choices = result.choices if read.target is None else result.targets
            choices[chunk.seq_id, read.position] = Choice(found, observed, forbidden=not found)

    def _put(self, blocks: tuple[int, ...], slabs: int, position: int, mark: Mark) -> None:
        for block in self._slots(blocks, slabs, position):
            assert block > 0
            assert self._pool.count(block) == 1, f"write to block {block} with {self._pool.count(block)} owners"
            self._pages[block][position % self._budgets.block_size] = mark

    def _get(self, blocks: tuple[int, ...], slabs: int, position: int) -> Mark:
        marks = {self._pages[b][position % self._budgets.block_size] for b in self._slots(blocks, slabs, position)}
        assert len(marks) == 1, "slabs differ"
        mark = marks.pop()
        assert mark is not None, "read before write"
        return mark

    def _slots(self, blocks: tuple[int, ...], slabs: int, position: int) -> tuple[int, ...]:
        first = position // self._budgets.block_size * slabs
        logical = blocks[first : first + slabs]
        assert len(logical) == slabs, f"no block for position {position}"
        return logical


def _per_token(chunk: Chunk) -> Iterator[Segment]:
    for segment in chunk.cross:
        yield from [segment] * segment.length
