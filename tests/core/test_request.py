"""Encoder items of features and text, and outputs of several steps as one."""

import numpy as np

from transduce.core.output import Delta, Output, TokenLogprobs
from transduce.core.request import EncoderItem
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


def test_an_item_of_features_and_text_has_rows_for_both() -> None:
    image = EncoderItem(np.zeros((3, 4), np.float32), rows=5, cost=8)
    item = image.with_text([7, 9])
    assert (item.rows, item.cost, item.ids.tolist()) == (7, 10, [7, 9])
    assert image.ids.tolist() == []
    assert EncoderItem(np.array([3, 4]), rows=2, cost=2).ids.tolist() == [3, 4]
