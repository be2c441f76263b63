"""Beam search written down plainly: whole token lists, whole vocabularies, no pages and no schedule."""

from collections.abc import Sequence
from itertools import takewhile
from math import inf

from tests.core.fake_runner import VOCABULARY, Hypothesis, append, choose, likeliest, mark_after
from transduce.core.plan import Candidate
from transduce.core.request import Beams, Read, Request


def beams_alone(request: Request) -> list[Hypothesis]:
    """The answers of a beam request with the engine to itself, best first; none for those there are not."""
    beams, width = request.beams, request.width
    assert beams is not None
    live, pool = [Hypothesis(total=0.0)], list[Hypothesis]()
    while not over(request, beams, live, pool):
        told, grown = live, [pair for rank, each in enumerate(live) for pair in children_of(request, rank, each)]
        children = [child for child, _ in ordered(request, grown)]
        pool += [scored(beams, child) for child in children[:width] if child.reason is not None]
        pool = sorted(pool, key=lambda each: -(each.score or 0.0))[:width]
        live = [child for child in children if child.reason is None][:width]
    missing = [Hypothesis() for _ in range(beams.answers - len(pool))]
    if not pool:
        columns = zip(*(each.tokens for each in told), strict=True)
        certain = [column[0] for column in takewhile(lambda column: len({*column}) == 1, columns)]
        missing[0] = Hypothesis(certain, told[0].logprobs[: len(certain)], "error")
    return pool[: beams.answers] + missing


Ranked = tuple[Hypothesis, tuple[float, int, int, float]]
"""A hypothesis, and (total, rank of its parent, its last token, noise)."""


def children_of(request: Request, rank: int, parent: Hypothesis) -> list[Ranked]:
    """A hypothesis with each token that may follow."""
    tokens = [*request.prompt, *parent.tokens]
    last = mark_after(request, tokens)
    read = Read(len(tokens) - 1, "lm", request.sampling, (rank,), request.logprobs, VOCABULARY)
    return [child(request, rank, parent, each, likeliest(last, read)) for each in choose(request.rules, last, read)]


def child(
    request: Request, rank: int, parent: Hypothesis, chosen: Candidate, top: tuple[tuple[int, float], ...]
) -> Ranked:
    assert chosen.logprob is not None
    assert parent.total is not None
    total = parent.total + chosen.logprob
    made = Hypothesis([*parent.tokens], [*parent.logprobs], total=total)
    append(made, request, chosen, top)
    return made, (total, rank, chosen.token, chosen.noise)


def ordered(request: Request, children: Sequence[Ranked]) -> list[Ranked]:
    """Best first; where they are drawn, those drawn."""
    drawn = sorted(children, key=lambda each: (-each[1][0] - each[1][3], *each[1][1:3]))
    if request.sampling is not None:
        drawn = drawn[: request.sampling.keep * request.width]
    return sorted(drawn, key=lambda each: (-each[1][0], *each[1][1:3]))


def scored(beams: Beams, ended: Hypothesis) -> Hypothesis:
    assert ended.total is not None
    ended.score = ended.total / len(ended.tokens) ** beams.length_penalty
    return ended


def over(request: Request, beams: Beams, live: list[Hypothesis], pool: list[Hypothesis]) -> bool:
    """Whether nothing can, or is to, become an answer any more."""
    if not live or len(pool) < request.width or not live[0].tokens:
        return not live
    longest = beams.early_stopping == "never" and beams.length_penalty > 0
    length = request.stopping.max_tokens if longest else len(live[0].tokens)
    assert live[0].total is not None
    hoped = -inf if beams.early_stopping is True else live[0].total / length**beams.length_penalty
    return hoped <= min(each.score or 0.0 for each in pool)
