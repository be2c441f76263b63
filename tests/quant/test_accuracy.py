"""int8 on trained checkpoints: most answers are those of float32. benchmarks/accuracy.py measures more finely."""

from collections.abc import Sequence

import pytest

import checkpoints
from tests.engine.test_real import TEXTS
from transduce import LLM, SamplingParams

pytestmark = pytest.mark.long

EQUAL = {"bart-g2p": 0.85, "annalog-marian": 0.6, "flan-t5-small-titler": 0.5}


def answers(name: str, texts: Sequence[str], quantization: str | None) -> list[str]:
    llm = LLM(checkpoints.path(name), dtype="float32", quantization=quantization, kv_cache_bytes=1 << 26)
    outputs = llm.generate(list(texts), SamplingParams(temperature=0.0, max_tokens=40), use_tqdm=False)
    return [output.outputs[0].text for output in outputs]


@pytest.mark.parametrize(("name", "texts"), TEXTS, ids=lambda value: value if isinstance(value, str) else "")
def test_most_answers_are_those_of_float32(name: str, texts: Sequence[str]) -> None:
    expected, given = (answers(name, texts, quantization) for quantization in (None, "int8"))
    assert sum(a == b for a, b in zip(expected, given, strict=True)) / len(texts) >= EQUAL[name]
