"""A request's tokens and log-probabilities are bitwise the same alone and among any others.

On every backend whatever the batch; on row-exact ones under any chunking, preemption, drafts and found prefixes too.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.support import Answer, Ask, asks, engine, request, run, sampled, start, tight
from tests.models import cases
from tests.models.tiny import Case, checkpoint
from tests.pairs import paired
from transduce.attention import backends
from transduce.core.request import Beams, RuleSpec

EACH = (cases.BART[0], cases.T5[2], cases.MARIAN[3], cases.WHISPER[0], cases.MOONSHINE[12])
BACKENDS = [backend.caps.name for backend in backends()]
EXACT = [backend.caps.name for backend in backends() if backend.caps.row_exact]


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


def mixed(case: Case, count: int, seed: int, tokens: int = 10) -> list[Ask]:
    """Greedy and sampled asks, some of several samples, some of beams, some under a rule."""
    rng = np.random.default_rng(seed)
    plain = asks(checkpoint(case), start(case), count, seed, tokens)
    some = [sampled(ask, seed + i, width=int(rng.integers(1, 4))) if i % 3 == 0 else ask for i, ask in enumerate(plain)]
    rule = RuleSpec("no_repeat_ngram", (2,))
    beams = [replace(ask, width=3, beams=Beams(answers=2)) if i % 5 == 2 else ask for i, ask in enumerate(some)]
    return [replace(ask, rules=(rule,)) if i % 4 == 1 else ask for i, ask in enumerate(beams)]


def alone(case: Case, wanted: list[Ask], parent: Path, **options: Any) -> dict[tuple[str, int], Answer]:
    """Every ask by itself, in an engine that has room for everything and drafts nothing."""
    loaded, made = engine(case, parent, speculate=False, **options), checkpoint(case)
    answers: dict[tuple[str, int], Answer] = {}
    for i, ask in enumerate(wanted):
        answers |= run(loaded.engine, [request(made, ask, str(i), salt=str(i))])
    return answers


Precision = tuple[str, str | None]
PRECISIONS: list[Precision] = [("float32", None), ("bfloat16", None), ("float32", "int8"), ("bfloat16", "int8")]


def arguments(precision: Precision, **others: Any) -> dict[str, Any]:
    dtype, quantization = precision
    return {"dtype": dtype, "quantization": quantization, **others}


@pytest.mark.parametrize(("case", "precision", "backend"), paired(EACH, PRECISIONS, BACKENDS), ids=str)
def test_the_same_alone_and_among_others(case: Case, precision: Precision, backend: str, parent: Path) -> None:
    options = arguments(precision, attention_backend=backend)
    made, wanted = checkpoint(case), mixed(case, 12, seed=5)
    expected = alone(case, wanted, parent, **options)
    loaded = engine(case, parent, **options)
    order = np.random.default_rng(6).permutation(len(wanted))
    assert run(loaded.engine, [request(made, wanted[i], str(i)) for i in order]) == expected


@pytest.mark.parametrize(("case", "precision", "backend"), paired(EACH, PRECISIONS, EXACT), ids=str)
def test_any_schedule_gives_the_same_bits(case: Case, precision: Precision, backend: str, parent: Path) -> None:
    rng = np.random.default_rng(EACH.index(case))
    options = arguments(precision, attention_backend=backend)
    made, wanted = checkpoint(case), mixed(case, 10, EACH.index(case), tokens=18)
    expected = alone(case, wanted, parent, **options)
    for _ in range(8):
        loaded = engine(case, parent, **options, **tight(case, wanted, row_bytes(backend, *precision), rng))
        order = rng.permutation(len(wanted))
        assert run(loaded.engine, [request(made, wanted[i], str(i), salt=str(i)) for i in order]) == expected
        if loaded.engine.scheduler.counters.preemptions:
            return
    pytest.fail("no schedule preempted: the pool is too large to test anything")


@pytest.mark.parametrize("precision", PRECISIONS, ids=str)
@pytest.mark.parametrize("case", EACH, ids=str)
def test_found_prefixes_change_nothing(case: Case, precision: Precision, parent: Path) -> None:
    options = arguments(precision)
    made, wanted = checkpoint(case), mixed(case, 12, seed=7)
    expected, loaded = alone(case, wanted, parent, **options), engine(case, parent, **options)
    for found in (False, True):
        assert run(loaded.engine, [request(made, wanted[i], str(i)) for i in range(len(wanted))]) == expected
        prefixes = loaded.engine.scheduler.prefixes
        assert (prefixes.hits > prefixes.queries / 4) == found


def row_bytes(backend: str, dtype: str, quantization: str | None) -> int:
    """Of one head's keys or values of one token: 8 floats, or 8 bytes and their scale."""
    if backend == "native" and quantization == "int8":
        return 8 + 4
    return 8 * (4 if dtype == "float32" else 2)
