"""Sample: independent hypotheses, each an answer of its own."""

from collections.abc import Mapping

from transduce.core.output import Delta
from transduce.core.plan import Candidate
from transduce.core.request import Read, Request
from transduce.core.search.base import Continuation, Round, Row, ending


class Sample:
    """`width` samples of one prompt, or the single greedy one. A hypothesis has the index of its answer."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def read(self, position: int, index: int, generated: int) -> Read:
        """The first round draws every sample from the prompt's one row; later each hypothesis draws its own."""
        samples = (index,) if generated else tuple(range(self._request.width))
        return Read(position, "lm", self._request.sampling, samples, self._request.logprobs)

    def advance(self, rows: Mapping[int, Row]) -> Round:
        """Every candidate lives on, or ends."""
        result = Round()
        for seq_id, row in rows.items():
            if not row.candidates:
                result.deltas += [Delta(index, finish_reason="error") for index in row.indices]
                continue
            for index, candidate in zip(row.indices, row.candidates, strict=True):
                delta = self._delta(row, index, candidate)
                result.deltas.append(delta)
                if delta.finish_reason is None:
                    result.survivors.append(Continuation(seq_id, index, candidate.token))
        return result

    def serves(self, index: int, answer: int) -> bool:
        return index == answer

    def _delta(self, row: Row, index: int, candidate: Candidate) -> Delta:
        finish, stop_token = ending(self._request.stopping, candidate.token, row.generated + 1)
        logprobs = row.logprobs(candidate)
        return Delta(index, [candidate.token], [] if logprobs is None else [logprobs], finish, stop_token)
