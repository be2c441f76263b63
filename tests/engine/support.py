"""Engines over tiny random checkpoints, requests for them, and transformers' greedy answers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.models.mllama.modeling_mllama import MllamaForConditionalGeneration

from tests.models import mllama
from tests.models.harness import Source
from tests.models.tiny import SEED, Case, Checkpoint, arguments, checkpoint, random_model
from transduce.config import EngineConfig
from transduce.core.request import Beams, EncoderInput, EncoderItem, Request, RuleSpec, Sampling, Span, Stopping
from transduce.device.base import Device
from transduce.engine import Engine, Loaded, load


def folder(case: Case, parent: Path) -> Path:
    """The case's checkpoint on disk."""
    path = parent / f"{case.model_type} {case.name}".replace(" ", "-").replace("/", "-")
    if not path.exists():
        path.mkdir(parents=True)
        made = checkpoint(case)
        (path / "config.json").write_text(json.dumps(made.raw))
        save_file(
            {name: tensor.contiguous().clone() for name, tensor in made.state.items()}, path / "model.safetensors"
        )
    return path


def engine(case: Case, parent: Path, *, device: Device | None = None, **options: Any) -> Loaded:
    """An engine for the case; options as in EngineConfig."""
    fields = {"dtype": "float32", "block_size": 4, "kv_cache_bytes": 4 << 20, **options}
    return load(EngineConfig(model=str(folder(case, parent)), **fields), device)


@dataclass(frozen=True, eq=False)
class Ask:
    """A request, short: which source of the checkpoint, the decoder's prompt, how many new tokens."""

    source: int
    prompt: tuple[int, ...]
    tokens: int
    sampling: Sampling | None = None
    width: int = 1
    logprobs: int | None = 3
    rules: tuple[RuleSpec, ...] = ()
    eos: frozenset[int] = frozenset()
    beams: Beams | None = None


def item(source: Source) -> EncoderItem:
    """A source as the engine takes it."""
    if source.features is None:
        return EncoderItem(source.tokens.numpy(), source.rows, source.rows)
    rows = source.rows - len(source.tokens)
    return EncoderItem(source.features.numpy(), rows, rows).with_text(source.tokens.tolist())


def request(made: Checkpoint, ask: Ask, name: str, salt: str = "") -> Request:
    """The engine's request for an Ask. Equal sources share an encoder entry unless salted apart."""
    encoded = item(made.sources[ask.source])
    key = f"{ask.source} {salt}".encode()
    return Request(
        name,
        ask.prompt,
        (EncoderInput(key, (encoded,)),),
        (Span(0, 0, encoded.rows),),
        Stopping(ask.tokens, ask.eos),
        ask.sampling,
        ask.width,
        ask.logprobs,
        ask.rules,
        beams=ask.beams,
    )


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


@dataclass
class Answer:
    """One answer: its tokens, what was reported beside each, and a beam's score."""

    tokens: list[int]
    logprobs: list[Any]
    score: float | None = None


def run(engine: Engine, requests: Sequence[Request]) -> dict[tuple[str, int], Answer]:
    """Answers by (request id, index)."""
    answers: dict[tuple[str, int], Answer] = {}
    for each in requests:
        engine.add(each)
    while engine.unfinished:
        for output in engine.step():
            assert output.error is None, output.error
            for delta in output.deltas:
                answer = answers.setdefault((output.request_id, delta.index), Answer([], []))
                answer.tokens += delta.tokens
                answer.logprobs += delta.logprobs
                answer.score = delta.score
    return answers


def asks(made: Checkpoint, first: int, count: int, seed: int, tokens: int = 10) -> list[Ask]:
    """Random asks over the checkpoint's sources, after decoder prompts of several lengths that begin with `first`."""
    rng = np.random.default_rng(seed)
    prompts = [(first, *row[:length][:17]) for row in made.decoder for length in (0, 3, len(row))]
    chosen = [prompts[int(rng.integers(len(prompts)))] for _ in range(count)]
    room = 32  # the tiny models' positions
    return [
        Ask(int(rng.integers(len(made.sources))), prompt, int(rng.integers(1, min(tokens, room - len(prompt)) + 1)))
        for prompt in chosen
    ]


def sampled(each: Ask, seed: int, width: int = 1) -> Ask:
    """The ask with sampling on."""
    return replace(each, sampling=Sampling(0.9, 12, 0.95, 0.0, seed), width=width)


@cache
def oracle(case: Case) -> PreTrainedModel:
    """transformers' model of the case, in fp32, without generation rules of its own."""
    model = random_model(case, torch.Generator().manual_seed(SEED))
    model.generation_config = GenerationConfig()
    return model


def start(case: Case) -> int:
    """The decoder's first token."""
    return int(case.raw.get("decoder_start_token_id", 0 if case.model_type == "t5" else 2))


@torch.no_grad()
def greedy(case: Case, ask: Ask) -> tuple[list[int], list[Tensor]]:
    """New tokens by transformers' generate(), and its scores [vocab] at each."""
    source = checkpoint(case).sources[ask.source]
    model, prompt = oracle(case), torch.tensor([ask.prompt])
    if isinstance(model, MllamaForConditionalGeneration):
        return mllama.greedy(model, ask.prompt, [source.given], ask.tokens, everywhere=True)
    if case.raw.get("num_decoder_layers", 0) > case.raw.get("num_layers", 0):
        return _without_cache(model, source.tokens[None], prompt, ask.tokens)  # generate() raises IndexError
    result = GenerationMixin.generate(  # not Whisper's own, which decides on the prompt
        model,
        **arguments(model, source),
        decoder_input_ids=prompt,
        generation_config=GenerationConfig(
            decoder_start_token_id=ask.prompt[0],
            pad_token_id=0,
            max_new_tokens=ask.tokens,
            output_scores=True,
            return_dict_in_generate=True,
        ),
    )
    return result.sequences[0, -ask.tokens :].tolist(), [scores[0] for scores in result.scores]


def _without_cache(model: Any, source: Tensor, tokens: Tensor, count: int) -> tuple[list[int], list[Tensor]]:
    scores = []
    for _ in range(count):
        scores.append(model(input_ids=source, decoder_input_ids=tokens).logits[0, -1])
        tokens = torch.cat([tokens, scores[-1].argmax().view(1, 1)], dim=1)
    return tokens[0, -count:].tolist(), scores
