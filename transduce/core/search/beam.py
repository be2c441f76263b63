"""Beam: the hypotheses of greatest log-probability live on, and a pool keeps the best of those that have ended.

Owns scores, and the tokens of finished hypotheses. Ties go to the parent of the better rank, then to the lower token.

    live ──candidates of all rows, best first──┬─▶ live      the best `width` that do not end
                                               └─▶ finished  those that end and rank among the best `width` of all
"""

from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from transduce.core.output import Delta, FinishReason, TokenLogprobs
from transduce.core.plan import Candidate
from transduce.core.request import Beams, Read, Request
from transduce.core.search.base import Continuation, Round, Row, ending


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """A hypothesis as its last token and the one it continues. length: new tokens; total: their log-probability."""

    before: "_Node | None" = None
    length: int = 0
    total: float = 0.0
    token: int = -1
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Ended:
    """A finished hypothesis."""

    node: _Node
    score: float
    finish: FinishReason
    stop_token: int | None


class _Step(NamedTuple):
    """A candidate for the next round; of two the lesser is the better. cost: less its total. rank: its parent's."""

    cost: float
    rank: int
    candidate: Candidate
    parent: int
    row: Row


class Beam:
    """Live hypotheses are numbered by rank, the best is 0.

    The first answer is told as far as it is certain: what the live hypotheses and the best finished one share. All
    else is told at the end.
    """

    def __init__(self, request: Request, beams: Beams) -> None:
        self._request = request
        self._beams = beams
        self._width = request.width
        self._drawn = 0 if request.sampling is None else request.sampling.keep * request.width
        """How many candidates of all rows are drawn; 0: the best are taken."""
        self._wanted = self._drawn or request.width + len(request.stopping.ends)
        self._pool = max(beams.answers, round(request.width * beams.patience))
        self._live = [_Node()]
        self._finished: list[_Ended] = []
        self._told = 0

    def read(self, position: int, index: int, generated: int) -> Read:
        """As many candidates as may matter: `width` that do not end, beside every one that does; or all drawn."""
        return Read(position, "lm", self._request.sampling, (index,), self._request.logprobs, self._wanted)

    def advance(self, rows: Mapping[int, Row]) -> Round:
        """The next round. Where there was nothing to choose from at all, the first answer ends with an error."""
        ranked = self._ranked(rows)
        survivors, before, self._live = list[Continuation](), self._live, []
        for rank, step in enumerate(ranked):
            if rank >= self._width and len(self._live) == self._width:
                break
            node = _follow(before[step.rank], step)
            finish, stop_token = ending(self._request.stopping, node.token, node.length)
            if finish is None and len(self._live) < self._width:
                survivors.append(Continuation(step.parent, len(self._live), node.token))
                self._live.append(node)
            elif finish is not None and rank < self._width:
                self._finish(_Ended(node, self._score(node, node.length), finish, stop_token))
        if self._over:
            return Round([], self._answers() or [Delta(0, finish_reason="error")])
        return Round(survivors, self._certain())

    def serves(self, index: int, answer: int) -> bool:
        """A stop string in what is certain of the only answer leaves nothing to search for."""
        return self._beams.answers == 1

    def _ranked(self, rows: Mapping[int, Row]) -> list[_Step]:
        """Candidates of all rows, best first; those drawn, where they are."""
        steps = [step for seq_id, row in rows.items() for step in self._steps(seq_id, row)]
        if self._drawn:
            steps.sort(key=lambda step: (step.cost - step.candidate.noise, step.rank, step.candidate.token))
            del steps[self._drawn :]
        return sorted(steps)

    def _steps(self, seq_id: int, row: Row) -> Iterator[_Step]:
        (rank,) = row.indices
        total = self._live[rank].total
        for candidate in row.candidates:
            assert candidate.logprob is not None
            yield _Step(-(total + candidate.logprob), rank, candidate, seq_id, row)

    def _score(self, node: _Node, length: int) -> float:
        return float(node.total / length**self._beams.length_penalty)

    def _finish(self, ended: _Ended) -> None:
        insort(self._finished, ended, key=lambda each: -each.score)
        del self._finished[self._pool :]

    @property
    def _over(self) -> bool:
        """Whether nothing can, or is to, enter the pool any more."""
        if not self._live or len(self._finished) < self._pool:
            return not self._live
        early, best = self._beams.early_stopping, self._live[0]
        grows = early == "never" and self._beams.length_penalty > 0
        length = self._request.stopping.max_tokens if grows else best.length
        return early is True or self._score(best, length) <= self._finished[-1].score

    def _certain(self) -> list[Delta]:
        shared = _shared({*self._live, *(ended.node for ended in self._finished[:1])})
        told, self._told = self._told, shared.length
        return [_delta(0, shared, told)] if shared.length > told else []

    def _answers(self) -> list[Delta]:
        deltas = []
        for index, ended in enumerate(self._finished[: self._beams.answers]):
            delta = _delta(index, ended.node, 0 if index else self._told)
            delta.finish_reason, delta.stop_token = ended.finish, ended.stop_token
            delta.total, delta.score = ended.node.total, ended.score
            deltas.append(delta)
        return deltas


def _follow(before: _Node, step: _Step) -> _Node:
    return _Node(before, before.length + 1, -step.cost, step.candidate.token, step.row.logprobs(step.candidate))


def _shared(nodes: set[_Node]) -> _Node:
    """The longest hypothesis that all nodes continue."""
    while len(nodes) > 1:
        longest = max(node.length for node in nodes)
        nodes = {_before(node) if node.length == longest else node for node in nodes}
    return nodes.pop()


def _before(node: _Node) -> _Node:
    assert node.before is not None
    return node.before


def _delta(index: int, node: _Node, told: int) -> Delta:
    """A hypothesis' tokens after the first `told`."""
    path: list[_Node] = []
    while node.length > told:
        path.append(node)
        node = _before(node)
    path.reverse()
    return Delta(index, [each.token for each in path], [each.logprobs for each in path if each.logprobs is not None])
