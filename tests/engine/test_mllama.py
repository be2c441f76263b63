"""Llama 3.2 Vision in the engine: images anywhere in a prompt, beside prompts without any, as transformers has it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import MllamaImageProcessorPil
from transformers.models.mllama.modeling_mllama import MllamaForConditionalGeneration

from tests.engine.support import Answer, engine, oracle, run
from tests.engine.test_graphs import Recorder
from tests.models import cases, mllama
from tests.models.tiny import RATIOS, Case, picture
from transduce.attention import backends
from transduce.core.request import EncoderInput, EncoderItem, Request, Sampling, Stopping
from transduce.errors import RequestError
from transduce.models.base import find
from transduce.models.mllama.config import MllamaConfig
from transduce.models.mllama.processor import MllamaProcessor

PLAIN, DEEP = cases.MLLAMA[:2]
I = 50  # noqa: E741  # stands for an image, in prompts that are to be read
TIE = 1e-4


@dataclass(frozen=True, slots=True)
class Ask:
    """A decoder prompt, the images in it by number, and how many new tokens are wanted."""

    prompt: tuple[int, ...]
    images: tuple[int, ...] = ()
    tokens: int = 10


TURNS = ((2, 9, I, 31, 8, 17, 44, 12), (23, 7, 7, 40, 3, I, 29, 11, 35), (4, 19, 27, 13, 5))
"""Of a chat."""

ASKS = {
    "no image": Ask((2, 9, 31, 8, 17)),
    "an image first": Ask((I, 2, 9, 31), (3,)),
    "nothing but an image": Ask((I,), (0,)),
    "text before an image": Ask((2, 9, 31, 8, 17, I, 12, 44), (5,)),
    "an image last": Ask((2, 9, 31, 8, I), (1,)),
    "images apart": Ask((2, I, 9, 31, I, 8, 17, 44, I, 5), (2, 0, 7)),
    "images side by side": Ask((2, 31, I, I, I, 12), (0, 5, 2)),
    "side by side and last": Ask((2, 9, I, 31, I, I), (6, 1, 0)),
    "side by side, then another": Ask((I, I, 9, I, 8, I, I, I, 3, 3), (4, 0, 2, 1, 1, 0)),
    "the same image twice": Ask((2, I, 9, I, 30), (3, 3)),
    "a second turn": Ask(TURNS[0] + TURNS[1], (7, 2)),
    "a third turn": Ask(TURNS[0] + TURNS[1] + TURNS[2], (7, 2)),
    "one token": Ask((2,)),
}


def images(case: Case) -> list[Tensor]:
    """One of every aspect ratio."""
    generator = torch.Generator().manual_seed(5)
    return [picture(case.raw, ratio, generator).given for ratio in RATIOS]


def processor(case: Case) -> MllamaProcessor:
    config: MllamaConfig = find("mllama").config(case.raw)
    return MllamaProcessor(None, MllamaImageProcessorPil(), config)


def request(case: Case, ask: Ask, name: str, salt: str = "", sampling: Sampling | None = None) -> Request:
    """The engine's request, its images grouped by the processor."""
    known = images(case)
    items = [_item(known[number]) for number in ask.images]
    groups, spans = processor(case).grouped(ask.prompt, items)
    inputs = tuple(EncoderInput(_key(group, salt), group) for group in groups)
    return Request(name, ask.prompt, inputs, spans, Stopping(ask.tokens), sampling, logprobs=3)


def _item(image: Tensor) -> EncoderItem:
    rows = 5 * image.shape[0] * image.shape[1]
    return EncoderItem(image.numpy(), rows, 32)


def _key(group: Sequence[EncoderItem], salt: str) -> bytes:
    return salt.encode() + b"".join(item.data.tobytes() for item in group)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


def check(case: Case, ask: Ask, answer: Answer) -> None:
    """Compare with transformers token by token, and by the log-probabilities of what was chosen."""
    model = oracle(case)
    assert isinstance(model, MllamaForConditionalGeneration)
    known = images(case)
    tokens, logits = mllama.greedy(model, ask.prompt, [known[number] for number in ask.images], ask.tokens)
    assert all((best := row.topk(2).values)[0] - best[1] > TIE for row in logits), "a tie decides nothing"
    assert answer.tokens == tokens
    for reported, row in zip(answer.logprobs, logits, strict=True):
        assert reported.logprob == pytest.approx(row.log_softmax(-1)[reported.token].item(), abs=1e-4)


@pytest.mark.parametrize(("case", "pool"), [(PLAIN, 26 << 10), (DEEP, 18 << 10)], ids=["2:1", "4:1"])
@pytest.mark.parametrize("backend", [backend.caps.name for backend in backends()])
def test_all_kinds_in_one_batch(case: Case, pool: int, backend: str, parent: Path) -> None:
    """Prompts are prefilled in chunks, one image is encoded a step, and pages are scarce."""
    tight: dict[str, Any] = {"max_num_batched_tokens": 7, "max_encode_tokens": 32, "kv_cache_bytes": pool}
    loaded = engine(case, parent, attention_backend=backend, **tight)
    answers = run(loaded.engine, [request(case, ask, name) for name, ask in ASKS.items()])
    assert loaded.engine.scheduler.counters.preemptions
    for name, ask in ASKS.items():
        check(case, ask, answers[name, 0])


@pytest.mark.parametrize(("dtype", "quantization"), [("float32", None), ("bfloat16", None), ("bfloat16", "int8")])
def test_the_same_alone_and_among_others(dtype: str, quantization: str | None, parent: Path) -> None:
    options: dict[str, Any] = {"dtype": dtype, "quantization": quantization}
    draws = [None, Sampling(0.9, 12, 0.95, 0.0, seed=3)]
    loaded = engine(PLAIN, parent, max_num_batched_tokens=16, **options)
    wanted = [request(PLAIN, ask, name, sampling=draws[i % 2]) for i, (name, ask) in enumerate(ASKS.items())]
    together = run(loaded.engine, wanted)
    for each in wanted:
        alone = run(engine(PLAIN, parent, speculate=False, **options).engine, [each])
        assert alone[each.request_id, 0] == together[each.request_id, 0]


def test_the_oracle_could_tell() -> None:
    """Images and their order make a difference, and text before an image does not see it."""
    model, known = oracle(PLAIN), images(PLAIN)
    assert isinstance(model, MllamaForConditionalGeneration)

    def logits(prompt: Sequence[int], *numbers: int) -> Tensor:
        given = [known[number] for number in numbers]
        return mllama.answer(model, prompt, given, mllama.visible(prompt, given, I, 4))[1]

    before, after = logits((2, 9, I, 31), 3), logits((2, 9, I, 31), 5)
    assert torch.equal(before[:2], after[:2])
    assert torch.allclose(before[:2], logits((2, 9)), atol=1e-5)
    assert (before[2:] - after[2:]).abs().amax(1).min() > 0.1
    two, swapped = logits((I, I, 9), 3, 5), logits((I, I, 9), 5, 3)
    assert (two - swapped).abs().max() > 0.1


@pytest.mark.parametrize("name", ASKS)
def test_what_each_token_sees(name: str) -> None:
    """The contents of transformers' mask, as spans."""
    ask, known = ASKS[name], images(PLAIN)
    mask = mllama.visible(ask.prompt, [known[number] for number in ask.images], I, 4)
    made = request(PLAIN, ask, name)
    ours = np.zeros_like(mask)
    at = 0
    for length, span in made.seen(0, len(ask.prompt)):
        rows = 0 if span is None else span.rows
        first = 0 if span is None else sum(len(source.items) for source in made.inputs[: span.source])
        for number, item in enumerate(() if span is None else made.inputs[span.source].items, first):
            seen, rows = min(rows, item.rows), max(0, rows - item.rows)
            ours[at : at + length, number, : seen // 5] = 1
        at += length
    assert np.array_equal(ours, mask)


@pytest.mark.parametrize(("prompt", "count"), [((2, I, 9), 0), ((2, 9), 1), ((I, I), 1), ((I, 9), 2)])
def test_a_token_for_each_image(prompt: tuple[int, ...], count: int) -> None:
    items = [_item(image) for image in images(PLAIN)[:count]]
    with pytest.raises(RequestError, match=f"{prompt.count(I)} image tokens and {count} images"):
        processor(PLAIN).grouped(prompt, items)


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_one_recording_serves_all_kinds(backend: str, parent: Path) -> None:
    """What was captured for prompts without an image is replayed for those with one, and for both at once."""
    text, picture = Ask((2, 9, 31, 8), (), 5), Ask((I, 2, 9, 31), (1,), 5)
    kinds = [(text, text), (picture, picture), (text, picture)]
    options: dict[str, Any] = {"attention_backend": backend, "block_size": 16, "speculate": False}
    recorded, plain = (engine(PLAIN, parent, device=device, **options).engine for device in (Recorder(), None))
    graphs = recorded.runner.graphs
    for at, pair in enumerate(kinds):
        wanted = [request(PLAIN, ask, f"{at} {i}", salt=str(i)) for i, ask in enumerate(pair)]
        before = graphs.captures
        assert run(recorded, wanted) == run(plain, wanted)
        assert at == 0 or graphs.captures == before
    assert graphs.eager == 0


def test_a_chat_goes_on_where_it_was(parent: Path) -> None:
    """Turns that are known are not computed again, and an image is encoded once; other images are another chat."""
    loaded = engine(PLAIN, parent)
    scheduler = loaded.engine.scheduler
    first, second = Ask(TURNS[0], (7,)), Ask(TURNS[0] + TURNS[1], (7, 2))
    other = Ask(TURNS[0] + TURNS[1], (4, 2))
    hits, rows = list[int](), list[int]()
    for name, ask in (("first", first), ("second", second), ("again", second), ("other", other)):
        check(PLAIN, ask, run(loaded.engine, [request(PLAIN, ask, name)])[name, 0])
        hits.append(scheduler.prefixes.hits)
        rows.append(scheduler.counters.encoded_rows)
    assert np.diff(hits).tolist() == [8, 16, 0]
    assert np.diff(rows).tolist() == [15, 0, 10]
