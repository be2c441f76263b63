"""Engine arguments: every refusal names the value and the way out."""

import os
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest
import torch

from transduce import EngineConfig
from transduce.config import from_options
from transduce.errors import ConfigError

WHOLE = "give a whole number >= 1"
FLAG = "give True or False"
FRACTION = "give a fraction in (0, 1]"
TEXT = "give a non-empty string or None"
COUNTS = "give a number for image, audio, video, such as {'image': 4} or image=4"
PATTERNS = "give a tuple of names or patterns, such as ('lm_head', '*.fc2')"

REFUSED: list[tuple[str, Any, str]] = [
    ("model", "", "give a folder or a hub id"),
    ("model", None, "give a folder or a hub id"),
    ("model", 3, "give a folder or a hub id"),
    ("tokenizer", 3, TEXT),
    ("tokenizer", "", TEXT),
    ("revision", 1.0, TEXT),
    ("attention_backend", True, TEXT),
    ("dtype", None, "give one of auto, float32, bfloat16"),
    ("dtype", ["float32"], "give one of auto, float32, bfloat16"),
    ("generation_config", "vllm", "give one of auto, none"),
    ("kv_cache_dtype", "fp8", "give one of auto, float32, bfloat16, float16, int8"),
    ("load_format", "gguf", "give one of auto, safetensors, pt, bitsandbytes, dummy"),
    ("max_model_len", "64", WHOLE),
    ("max_model_len", 0, WHOLE),
    ("kv_cache_bytes", 1e9, WHOLE),
    ("max_num_seqs", None, WHOLE),
    ("max_num_seqs", True, WHOLE),
    ("max_num_batched_tokens", 0, WHOLE),
    ("max_encode_tokens", -1, WHOLE),
    ("block_size", 16.0, WHOLE),
    ("gpu_memory_utilization", "0.9", FRACTION),
    ("gpu_memory_utilization", 0, FRACTION),
    ("gpu_memory_utilization", True, FRACTION),
    ("gpu_memory_utilization", float("nan"), FRACTION),
    ("quantization", 8, TEXT),
    ("quantization_keep", "lm_head", PATTERNS),
    ("quantization_keep", ("lm_head", ""), PATTERNS),
    ("tensor_parallel_size", 2, "tensor parallelism over several devices is not available yet; leave it at 1"),
    ("tensor_parallel_size", True, WHOLE),
    ("enforce_eager", 1, FLAG),
    ("trust_remote_code", "no", FLAG),
    ("skip_tokenizer_init", "yes", FLAG),
    ("speculate", 1, FLAG),
    ("seed", "x", "give a whole number >= 0"),
    ("seed", -1, "give a whole number >= 0"),
    ("seed", None, "give a whole number >= 0"),
    ("limit_mm_per_prompt", "image=4", COUNTS),
    ("limit_mm_per_prompt", {"images": 4}, COUNTS),
    ("limit_mm_per_prompt", {"image": -1}, COUNTS),
    ("allowed_media_domains", ["a.example"], "give a tuple of host names, such as ('images.example.com',)"),
    ("allowed_local_media_path", "", TEXT),
    ("media_timeout", 0, "give a number above 0"),
]


@pytest.mark.parametrize(("name", "value", "fix"), REFUSED)
def test_what_cannot_work_is_refused(name: str, value: Any, fix: str) -> None:
    given: dict[str, Any] = {"model": "somewhere", name: value}
    with pytest.raises(ConfigError) as caught:
        EngineConfig(**given)
    assert str(caught.value) == f"{name}={value!r}: {fix}"


def test_every_argument_has_a_value_that_is_refused() -> None:
    assert {name for name, _, _ in REFUSED} == {field.name for field in fields(EngineConfig)}


def test_the_ends_of_every_range_are_inside() -> None:
    EngineConfig(
        model="m", tokenizer="t", revision="r", attention_backend="sdpa", dtype="float16", load_format="dummy",
        max_model_len=1, max_num_seqs=1, max_num_batched_tokens=1, max_encode_tokens=1, block_size=1,
        kv_cache_bytes=1, gpu_memory_utilization=1, seed=0, enforce_eager=True, trust_remote_code=True,
        skip_tokenizer_init=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("max_num_seq", "there is no engine argument 'max_num_seq'; did you mean max_num_seqs?"),
        ("zzz", "there is no engine argument 'zzz'; leave it out"),
        ("swap_space", "swap_space: Transduce has no such argument and needs none: leave it out"),
        ("device", "device: Transduce has no such argument and needs none: leave it out"),
        (
            "speculative_config",
            "speculative_config: Transduce drafts from a request's own text, without another model: leave it out, or "
            "give speculate=True or False",
        ),
    ],
)
def test_an_unknown_argument_is_refused_with_the_way_out(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_options("m", {name: 1})
    assert str(caught.value) == message


@pytest.mark.parametrize("given", ["image=4, audio=0", '{"image": 4, "audio": 0}', {"image": 4, "audio": 0}])
def test_limits_have_vllms_forms(given: object) -> None:
    assert from_options("m", {"limit_mm_per_prompt": given}).limit_mm_per_prompt == {"image": 4, "audio": 0}


@pytest.mark.parametrize("given", ["image", "image=x", "{image: 4", "4", '{"image": "4"}'])
def test_limits_of_no_form_are_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="give a number for image"):
        from_options("m", {"limit_mm_per_prompt": given})


@pytest.mark.parametrize(
    ("given", "name"),
    [("half", "float16"), ("float", "float32"), (torch.float32, "float32"), (torch.bfloat16, "bfloat16")],
)
def test_dtypes_have_other_names(given: object, name: str) -> None:
    assert from_options("m", {"dtype": given}).dtype == name


def test_other_dtypes_are_refused_as_given() -> None:
    with pytest.raises(ConfigError, match=r"dtype=torch.int8: give one of auto, float32, bfloat16$"):
        from_options("m", {"dtype": torch.int8})


def test_patterns_may_be_a_list() -> None:
    assert from_options("m", {"quantization_keep": ["a", "b*"]}).quantization_keep == ("a", "b*")


@pytest.mark.parametrize(
    ("imports", "given", "spins"),
    [
        ("import transduce, torch", None, False),
        ("import torch, transduce", None, True),
        ("import torch, transduce", "500", False),
    ],
)
def test_threads_are_calmed_where_it_is_not_too_late(imports: str, given: str | None, spins: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    environment |= {} if given is None else {"GOMP_SPINCOUNT": given}
    program = f"{imports}; from transduce.config import threads_spin; print(threads_spin())"
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True).stdout
    assert said.decode().strip() == str(spins)
