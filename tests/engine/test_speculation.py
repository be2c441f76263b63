"""Drafts change no bit of any answer, on any row-exact backend; and where a source is copied they save most steps."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BartForConditionalGeneration

import checkpoints
from benchmarks.copying import Copying, plant
from benchmarks.models import CONFIGS
from tests.engine.support import engine, request, run, tight
from tests.engine.test_invariance import mixed, row_bytes
from tests.models import cases
from tests.models.tiny import Case, checkpoint
from transduce import LLM, BeamSearchParams, SamplingParams
from transduce.core.speculation import Drafter, Speculation

SIDES = ("encoder", "decoder")
TINY = {
    **CONFIGS["bart-base"],
    "vocab_size": 120,
    "d_model": 64,
    "max_position_embeddings": 64,
    **{
        f"{side}_{name}": size
        for side in SIDES
        for name, size in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 48))
    },
}


class Bold(Speculation):
    """Drafts far, whatever its guesses are worth; only tokens that were read often are guessed right by chance."""

    def __init__(self, vocabulary: int, computed: Callable[[int], int]) -> None:
        super().__init__(vocabulary, computed)
        self._rates = [0.9]

    def learn(self, drafter: Drafter, token: int) -> None:
        drafter.see(token)


@pytest.fixture
def bold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.engine.Speculation", Bold)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def copier(parent: Path) -> tuple[Path, Copying]:
    return parent / "copier", plant(TINY, parent / "copier")


MANY = [
    (cases.BART[0], "native", "float32", None),
    (cases.BART[0], "reference", "bfloat16", "int8"),
    (cases.T5[2], "native", "bfloat16", "int8"),
    (cases.MARIAN[6], "native", "bfloat16", None),
    (cases.MARIAN[6], "reference", "float32", None),
    (cases.WHISPER[0], "native", "float32", "int8"),
]


@pytest.mark.usefixtures("bold")
@pytest.mark.parametrize(("case", "backend", "dtype", "quantization"), MANY)
def test_drafts_change_no_bit(case: Case, backend: str, dtype: str, quantization: str | None, parent: Path) -> None:
    """Greedy, sampled, several samples, beams, a rule and log-probabilities, in one batch; preempted too."""
    options: dict[str, Any] = {"attention_backend": backend, "dtype": dtype, "quantization": quantization}
    made, wanted = checkpoint(case), mixed(case, 14, 3, tokens=18)
    requests = [request(made, ask, str(i), salt=str(i)) for i, ask in enumerate(wanted)]
    expected = run(engine(case, parent, speculate=False, **options).engine, requests)
    small = tight(case, wanted, row_bytes(backend, dtype, quantization), np.random.default_rng(1))
    for pool in {}, {**small, "max_num_batched_tokens": 40}:
        drafting = engine(case, parent, speculate=True, **options, **pool).engine
        assert run(drafting, requests) == expected
        assert 0 < drafting.scheduler.counters.accepted < drafting.scheduler.counters.drafted
    assert drafting.scheduler.counters.preemptions > 0


PARAMS: Mapping[str, SamplingParams | BeamSearchParams] = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=40, logprobs=2),
    "sampled": SamplingParams(temperature=0.8, seed=3, max_tokens=40, logprobs=0),
    "stop": SamplingParams(temperature=0.0, max_tokens=40, stop=["ə", "an", "e"]),
    "rules": SamplingParams(
        temperature=0.0, max_tokens=30, no_repeat_ngram_size=2, min_tokens=12, repetition_penalty=1.2
    ),
    "regex": SamplingParams(temperature=0.0, max_tokens=30, guided_regex="[a-zA-Z ]{9,20}"),
    "choice": SamplingParams(temperature=0.0, max_tokens=30, guided_choice=["transfer", "transformer", "engine"]),
    "two": SamplingParams(temperature=1.0, seed=1, n=2, max_tokens=20),
    "beams": BeamSearchParams(beam_width=3, max_tokens=20),
}


@pytest.mark.usefixtures("bold")
@pytest.mark.parametrize(
    ("name", "options"), [("bart-g2p", {"dtype": "float32"}), ("annalog-marian", {"quantization": "int8"})]
)
def test_trained_checkpoints_answer_alike(name: str, options: dict[str, Any]) -> None:
    texts = ["transformer engine", "an encoder and an encoder", "receipt receipt receipt"]
    asked = [(text, params) for text in texts for params in PARAMS.values()]
    answers = []
    for speculate in False, True:
        llm = LLM(checkpoints.path(name), kv_cache_bytes=64 << 20, speculate=speculate, **options)
        outputs = llm.generate([text for text, _ in asked], [params for _, params in asked], use_tqdm=False)
        answers.append([output.outputs for output in outputs])
    assert answers[0] == answers[1]
    assert llm.engine.scheduler.counters.accepted > 0


def copied(folder: Path, speculate: bool, sources: list[list[int]], **options: Any) -> tuple[LLM, list[Any]]:
    """An engine after it has copied these, and its tokens with their log-probabilities."""
    llm = LLM(folder, skip_tokenizer_init=True, speculate=speculate, kv_cache_bytes=8 << 20, **options)
    params = [SamplingParams(temperature=i % 2 / 10, seed=i, max_tokens=62, logprobs=1) for i in range(len(sources))]
    outputs = llm.generate([{"prompt_token_ids": source} for source in sources], params, use_tqdm=False)
    return llm, [(output.outputs[0].token_ids, output.outputs[0].logprobs) for output in outputs]


def steps(llm: LLM) -> int:
    return llm.engine.runner.graphs.replays + llm.engine.runner.graphs.eager


@pytest.mark.parametrize(("dtype", "quantization"), [("float32", None), ("bfloat16", "int8")])
@pytest.mark.parametrize("batch", [1, 8])
def test_copying_takes_few_steps(
    batch: int, dtype: str, quantization: str | None, copier: tuple[Path, Copying]
) -> None:
    (folder, task), rng = copier, np.random.default_rng(0)
    sources = [task.source(60, TINY, rng) for _ in range(batch)]
    plain, expected = copied(folder, False, sources, dtype=dtype, quantization=quantization)
    drafting, answers = copied(folder, True, sources, dtype=dtype, quantization=quantization)
    assert answers == expected
    assert [tokens for tokens, _ in answers] == [task.answer(source) for source in sources]
    assert steps(plain) == 60
    assert steps(drafting) < steps(plain) / 2


@torch.no_grad()
def test_the_copier_copies_in_transformers_too(copier: tuple[Path, Copying]) -> None:
    folder, task = copier
    source = task.source(60, TINY, np.random.default_rng(4))
    model = BartForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    answer = task.answer(source)
    assert model.generate(torch.tensor([source]), max_new_tokens=61)[0, 1:].tolist() == answer
    assert answer != source


def test_speculation_is_off_where_rows_are_not_exact(parent: Path) -> None:
    for backend, exact in (("sdpa", False), ("reference", True)):
        loaded = engine(cases.BART[0], parent, attention_backend=backend)
        assert (loaded.engine.scheduler.speculation is not None) == exact
