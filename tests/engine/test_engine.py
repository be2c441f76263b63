"""The engine as a whole: failing steps, refusals, sharing, bounded logits and profiles, what the pool holds."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.support import Ask, asks, engine, request, run, sampled, start
from tests.models import cases
from tests.models.tiny import checkpoint
from transduce.core.plan import StepPlan, StepResult
from transduce.core.request import RuleSpec, Sampling
from transduce.errors import CapacityError, CheckpointError, ConfigError, RequestError
from transduce.runtime import profile, runner

BART = cases.BART[0]
MADE = checkpoint(BART)


def ask(tokens: int = 5, source: int = 0) -> Ask:
    return Ask(source, (start(BART),), tokens)


def test_a_failed_step_ends_its_requests_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine(BART, tmp_path, max_num_seqs=2).engine
    expected = run(engine(BART, tmp_path).engine, [request(MADE, ask(), "later")])
    real, steps = made.runner.run, iter(range(100))

    def once(plan: StepPlan) -> StepResult:
        if next(steps) == 2:
            raise RuntimeError("out of luck")
        return real(plan)

    monkeypatch.setattr(made.runner, "run", once)
    for name in ("a", "b", "later"):
        made.add(request(MADE, ask(), name))
    ended: dict[str, str | None] = {}
    tokens: list[int] = []
    while made.unfinished:
        for output in made.step():
            if output.finished:
                ended[output.request_id] = None if output.error is None else str(output.error)
            tokens += [token for d in output.deltas if output.request_id == "later" for token in d.tokens]
    assert ended["later"] is None
    assert ended["a"] == ended["b"] == "the step failed: RuntimeError: out of luck"
    assert tokens == expected["later", 0].tokens
    assert made.scheduler.running == made.scheduler.waiting == 0


def test_what_can_never_fit_is_refused_on_arrival(tmp_path: Path) -> None:
    made = engine(BART, tmp_path, kv_cache_bytes=12 * 1536).engine
    with pytest.raises(CapacityError, match=r"pool has 11: lower max_tokens to \d+"):
        made.add(request(MADE, ask(tokens=500), "long"))
    assert run(made, [request(MADE, ask(), "fits")])


def test_equal_inputs_are_encoded_once(tmp_path: Path) -> None:
    made = engine(BART, tmp_path).engine
    run(made, [request(MADE, replace(sampled(ask(), seed), width=3), str(seed)) for seed in range(4)])
    assert made.scheduler.counters.encoded_rows == len(MADE.sources[0].tokens)
    assert made.scheduler.cache.hits == 3


def test_an_aborted_request_leaves_nothing(tmp_path: Path) -> None:
    made = engine(BART, tmp_path).engine
    made.add(request(MADE, ask(tokens=30), "gone"))
    made.step()
    made.abort("gone")
    assert not made.unfinished
    assert made.step() == []


@pytest.mark.parametrize("rows", [1, 3])
def test_logits_in_slices_change_nothing(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [sampled(each, i, 1 + i % 2) for i, each in enumerate(asks(MADE, start(BART), 9, seed=4))]
    requests = [request(MADE, each, str(i)) for i, each in enumerate(wanted)]
    expected = run(engine(BART, tmp_path).engine, requests)
    monkeypatch.setattr(runner, "LOGITS_BYTES", rows * MADE.raw["vocab_size"] * 4)
    assert run(engine(BART, tmp_path).engine, requests) == expected


@pytest.mark.parametrize(("budget", "lengths"), [(100, [32, 32, 32]), (20, [20]), (32, [32])])
def test_the_profile_is_bounded_by_the_encode_budget(budget: int, lengths: list[int], tmp_path: Path) -> None:
    spec = engine(BART, tmp_path).spec
    assert spec.max_source == 32
    assert [item.rows for item in profile._largest(spec, budget)] == lengths


def test_one_window_is_profiled_even_beyond_the_budget(tmp_path: Path) -> None:
    spec = engine(cases.WHISPER[0], tmp_path).spec
    (item,) = profile._largest(spec, 5)
    assert (item.rows, item.data.shape) == (12, (10, 24))


def test_a_pool_from_free_memory_is_described(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "transduce")
    loaded = engine(BART, tmp_path, kv_cache_bytes=None)
    assert "dtype float32" in caplog.text
    assert "tokens of self KV" in caplog.text
    assert "requests run at once" in caplog.text
    assert run(loaded.engine, [request(MADE, ask(), "a")])


def test_the_environment_sizes_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_CPU_KVCACHE_SPACE", "0.001")
    loaded = engine(BART, tmp_path, kv_cache_bytes=None)
    assert loaded.config.kv_cache_bytes == int(0.001 * 2**30)
    monkeypatch.setenv("TRANSDUCE_CPU_KVCACHE_SPACE", "lots")
    with pytest.raises(ConfigError, match=r"TRANSDUCE_CPU_KVCACHE_SPACE='lots'.*GiB"):
        engine(BART, tmp_path, kv_cache_bytes=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensor_parallel_size": 2}, "tensor_parallel_size=2: tensor parallelism"),
        ({"max_model_len": 33}, "max_model_len=33: the model has 32 decoder positions"),
        ({"dtype": "float16"}, "'bfloat16', 'float32' or 'auto'"),
        ({"attention_backend": "flash9"}, "'flash9'; there are"),
        ({"max_num_seqs": 0}, "max_num_seqs=0"),
    ],
)
def test_impossible_arguments_name_the_value_and_the_way_out(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        engine(BART, tmp_path, **options)


@pytest.mark.parametrize(
    ("options", "row"),  # bytes of one head's keys of one token: 8 floats, or 8 bytes and their scale
    [
        ({"dtype": "float32"}, 32),
        ({"dtype": "bfloat16"}, 16),
        ({"dtype": "bfloat16", "quantization": "int8"}, 12),
        ({"dtype": "bfloat16", "quantization": "int8", "kv_cache_dtype": "bfloat16"}, 16),
        ({"dtype": "float32", "kv_cache_dtype": "int8"}, 12),
        ({"dtype": "bfloat16", "quantization": "int8", "attention_backend": "sdpa"}, 16),
        ({"dtype": "bfloat16", "quantization": "int8", "block_size": 6}, 16),
    ],
)
def test_pages_are_as_small_as_the_weights_allow(options: dict[str, Any], row: int, tmp_path: Path) -> None:
    loaded = engine(cases.BART[0], tmp_path, kv_cache_bytes=1 << 20, **options)
    block = 2 * 2 * 3 * row * options.get("block_size", 4)  # layers, k and v, heads
    assert loaded.engine.scheduler.cache._pool.capacity == (1 << 20) // block - 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_cache_dtype": "bfloat16"}, "kv_cache_dtype='bfloat16': the model runs in float32; give that, or int8"),
        ({"kv_cache_dtype": "int8", "attention_backend": "sdpa"}, r"sdpa lacks pages of torch\.int8"),
        ({"kv_cache_dtype": "int8", "block_size": 6}, "need a block_size that is a multiple of 4, not 6"),
    ],
)
def test_pages_that_cannot_be_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        engine(cases.BART[0], tmp_path, dtype="float32", **options)


def test_unknown_architectures_are_named(tmp_path: Path) -> None:
    loaded = engine(BART, tmp_path)
    config = loaded.checkpoint.folder / "config.json"
    config.write_text(config.read_text().replace('"bart"', '"gpt2"'))
    with pytest.raises(CheckpointError, match="'gpt2' is not supported; known: bart, "):
        engine(BART, tmp_path)


def test_bf16_is_near_fp32(tmp_path: Path) -> None:
    """Not exact, but the same model: log-probabilities of the first token agree roughly."""
    wanted = [request(MADE, ask(1, source), str(source)) for source in range(4)]
    exact, rough = (run(engine(BART, tmp_path, dtype=dtype).engine, wanted) for dtype in ("float32", "bfloat16"))
    differences = [abs(exact[key].logprobs[0].logprob - rough[key].logprobs[0].logprob) for key in exact]
    assert 0 < np.max(differences) < 0.5


def test_an_interrupted_step_leaves_the_engine_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine(BART, tmp_path).engine
    expected = run(made, [request(MADE, ask(), "before")])["before", 0]

    def interrupted(plan: StepPlan) -> StepResult:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(made.runner, "run", interrupted)
        made.add(request(MADE, ask(), "lost"))
        with pytest.raises(KeyboardInterrupt):
            made.step()
    assert not made.unfinished
    assert run(made, [request(MADE, ask(), "after")])["after", 0] == expected


def test_a_rule_that_cannot_be_is_refused_in_its_own_request(tmp_path: Path) -> None:
    made = engine(BART, tmp_path).engine
    made.add(request(MADE, ask(), "good"))
    with pytest.raises(RequestError, match="99"):
        made.add(request(MADE, replace(ask(), rules=(RuleSpec("allowed_tokens", ((99,),)),)), "bad"))
    assert run(made, [])["good", 0].tokens


@pytest.mark.parametrize("temperature", [1e-5, 1e4])
def test_extreme_temperatures_cost_no_other_its_answer(temperature: float, tmp_path: Path) -> None:
    made = engine(BART, tmp_path).engine
    greedy = run(made, [request(MADE, ask(), "greedy")])["greedy", 0]
    extreme = replace(ask(), sampling=Sampling(temperature, 0, 1.0, 0.0, 1))
    answers = run(made, [request(MADE, ask(), "plain"), request(MADE, extreme, "extreme")])
    assert answers["plain", 0] == greedy
    assert (answers["extreme", 0].tokens == greedy.tokens) == (temperature < 1)
