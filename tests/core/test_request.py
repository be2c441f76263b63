"""Outputs of several steps as one."""

from transduce.core.output import Delta, Output, TokenLogprobs
from transduce.errors import EngineError

LOGPROBS = [TokenLogprobs(token, -1.0, ()) for token in range(3)]


def test_outputs_in_a_row_are_one() -> None:
    whole, error = Output("r"), EngineError("it broke")
    whole.extend(Output("r", scheduled=1.0, first=2.0, last=2.0))
    whole.extend(Output("r", [Delta(0, [4], LOGPROBS[:1]), Delta(1, [5])], first=3.0, last=3.0))
    whole.extend(Output("r", [Delta(1, [6], LOGPROBS[1:], "stop", 6)], first=4.0, last=4.0))
    whole.extend(Output("r", error=error, first=5.0, last=5.0))
    whole.extend(Output("r", finished=True, first=6.0, last=6.0))
    deltas = [Delta(0, [4], LOGPROBS[:1]), Delta(1, [5, 6], LOGPROBS[1:], "stop", 6)]
    assert whole == Output("r", deltas, True, error, scheduled=1.0, first=3.0, last=6.0)
