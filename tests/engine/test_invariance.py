"""A request's tokens and log-probabilities are bitwise the same alone and among any others.

On every backend whatever the batch; on row-exact ones under any chunking and preemption too.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.support import Answer, Ask, asks, engine, item, request, run, sampled, start
from tests.models import cases
from tests.models.tiny import Case, checkpoint
from transduce.attention import backends
from transduce.core.request import RuleSpec

FOUR = (cases.BART[0], cases.T5[2], cases.MARIAN[3], cases.WHISPER[0])
EXACT = [backend.caps.name for backend in backends() if backend.caps.row_exact]


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


def mixed(case: Case, count: int, seed: int, tokens: int = 10) -> list[Ask]:
    """Greedy and sampled asks, some of several samples, some under a rule."""
    rng = np.random.default_rng(seed)
    plain = asks(checkpoint(case), start(case), count, seed, tokens)
    some = [sampled(ask, seed + i, width=int(rng.integers(1, 4))) if i % 3 == 0 else ask for i, ask in enumerate(plain)]
    rule = RuleSpec("no_repeat_ngram", (2,))
    return [
        Ask(a.source, a.prompt, a.tokens, a.sampling, a.width, a.logprobs, (rule,)) if i % 4 == 1 else a
        for i, a in enumerate(some)
    ]


def alone(case: Case, wanted: list[Ask], parent: Path, **options: Any) -> dict[tuple[str, int], Answer]:
    """Every ask by itself, in an engine that has room for everything."""
    loaded, made = engine(case, parent, **options), checkpoint(case)
    answers: dict[tuple[str, int], Answer] = {}
    for i, ask in enumerate(wanted):
        answers |= run(loaded.engine, [request(made, ask, str(i), salt=str(i))])
    return answers


PRECISIONS = [("float32", None), ("bfloat16", None), ("float32", "int8"), ("bfloat16", "int8")]
each_precision = pytest.mark.parametrize(("dtype", "quantization"), PRECISIONS)


@each_precision
@pytest.mark.parametrize("backend", [backend.caps.name for backend in backends()])
@pytest.mark.parametrize("case", FOUR, ids=lambda case: case.model_type)
def test_the_same_alone_and_among_others(
    case: Case, backend: str, dtype: str, quantization: str | None, parent: Path
) -> None:
    options: dict[str, Any] = {"attention_backend": backend, "dtype": dtype, "quantization": quantization}
    made, wanted = checkpoint(case), mixed(case, 12, seed=5)
    expected = alone(case, wanted, parent, **options)
    loaded = engine(case, parent, **options)
    order = np.random.default_rng(6).permutation(len(wanted))
    assert run(loaded.engine, [request(made, wanted[i], str(i)) for i in order]) == expected


@each_precision
@pytest.mark.parametrize("backend", EXACT)
@pytest.mark.parametrize("seed", range(8))
def test_any_schedule_gives_the_same_bits(
    backend: str, dtype: str, quantization: str | None, seed: int, parent: Path
) -> None:
    rng = np.random.default_rng(seed)
    case = FOUR[int(rng.integers(len(FOUR)))]
    options: dict[str, Any] = {"attention_backend": backend, "dtype": dtype, "quantization": quantization}
    made, wanted = checkpoint(case), mixed(case, 10, seed, tokens=18)
    expected = alone(case, wanted, parent, **options)
    for _ in range(8):
        loaded = engine(case, parent, **options, **tight(case, wanted, row_bytes(backend, dtype, quantization), rng))
        order = rng.permutation(len(wanted))
        assert run(loaded.engine, [request(made, wanted[i], str(i), salt=str(i)) for i in order]) == expected
        if loaded.engine.scheduler.counters.preemptions:
            return
    pytest.fail("no schedule preempted: the pool is too large to test anything")


def row_bytes(backend: str, dtype: str, quantization: str | None) -> int:
    """Of one head's keys or values of one token: 8 floats, or 8 bytes and their scale."""
    if backend == "native" and quantization == "int8":
        return 8 + 4
    return 8 * (4 if dtype == "float32" else 2)


def tight(case: Case, wanted: list[Ask], row: int, rng: np.random.Generator) -> dict[str, Any]:
    """A pool that holds little more than the largest ask, and small budgets."""
    rows = [item(source).rows for source in checkpoint(case).sources]
    largest = max(a.width * -(-(len(a.prompt) + a.tokens - 1) // 4) + -(-rows[a.source] // 4) for a in wanted)
    block_bytes = 2 * 2 * 4 * 3 * row  # layers, k and v, tokens, heads
    return {
        "kv_cache_bytes": (largest + int(rng.integers(1, 4))) * block_bytes,
        "max_num_batched_tokens": int(rng.integers(5, 40)),
        "max_encode_tokens": int(rng.integers(8, 60)),
    }
