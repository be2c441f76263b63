"""A BART that copies its source and replaces every tenth token of the vocabulary: weights that are planted, not learnt.

Token vectors are random in one subspace of the model's width, position vectors in another. All sublayers add zero, at
the cost of what they compute, but the last cross-attention: it looks at its own position in the source, and adds that
token's vector. A row of the head is the vector of the token that it stands for.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import BartConfig, BartForConditionalGeneration, GenerationConfig

from benchmarks.models import SPECIAL_IDS, Config

EVERY, REPLACED = 10, 7
SHARPNESS = 100.0
"""Of the attention: the score of the right position, as an exponent."""

GAIN = 4.0
"""How much the copied token outweighs the one before it."""

IDS = ("decoder_start_token_id", "eos_token_id", "bos_token_id", "pad_token_id")


@dataclass(frozen=True, slots=True, eq=False)
class Copying:
    """The task. replaced: by source token, the target's [vocabulary]."""

    replaced: np.ndarray[tuple[int], np.dtype[np.int64]]

    @classmethod
    def of(cls, config: Config) -> Self:
        """Tokens that are replaced take each other's place, in a ring."""
        replaced = np.arange(config["vocab_size"])
        ring = replaced[SPECIAL_IDS:][replaced[SPECIAL_IDS:] % EVERY == REPLACED]
        replaced[ring] = np.roll(ring, 1)
        return cls(replaced)

    def source(self, length: int, config: Config, rng: np.random.Generator) -> list[int]:
        """A text of `length` tokens with BOS and EOS; the k-th token is as frequent as 1/k, as words are."""
        drawn = (len(self.replaced) - SPECIAL_IDS) ** rng.random(length - 2)
        words = SPECIAL_IDS - 1 + drawn.astype(np.int64)
        return [config["bos_token_id"], *words.tolist(), config["eos_token_id"]]

    def answer(self, source: list[int]) -> list[int]:
        """What the model makes of it."""
        answer: list[int] = self.replaced[source].tolist()
        return answer


def plant(config: Config, folder: Path, seed: int = 0) -> Copying:
    """Write such a checkpoint of a BART's shape with several heads."""
    torch.manual_seed(seed)
    model = BartForConditionalGeneration(BartConfig(**config, tie_word_embeddings=False))
    task, within = Copying.of(config), config["d_model"] // config["decoder_attention_heads"]
    with torch.no_grad():
        _embed(model, task, within)
        _silence(model)
        _copy(model, within)
    model.generation_config = GenerationConfig(**{name: config[name] for name in IDS})
    model.bfloat16().save_pretrained(folder)
    return task


def _embed(model: BartForConditionalGeneration, task: Copying, within: int) -> None:
    """Vectors of equal length without a mean, which normalisation only scales. within: a position's size, a head's."""
    tokens = torch.zeros_like(model.lm_head.weight)
    tokens[:, within:] = _vectors(len(tokens), tokens.shape[1] - within)
    for side in model.model.encoder, model.model.decoder:
        side.embed_tokens.weight.copy_(tokens)
        side.embed_positions.weight.zero_()
        side.embed_positions.weight[:, :within] = _vectors(len(side.embed_positions.weight), within, seed=1)
    model.lm_head.weight[torch.from_numpy(task.replaced)] = tokens


def _vectors(count: int, size: int, seed: int = 0) -> Tensor:
    vectors = torch.randn(count, size, generator=torch.Generator().manual_seed(seed))
    return functional.normalize(vectors - vectors.mean(dim=1, keepdim=True))


def _silence(model: BartForConditionalGeneration) -> None:
    for name, parameter in model.named_parameters():
        if ".out_proj." in name or ".fc2." in name:
            parameter.zero_()


def _copy(model: BartForConditionalGeneration, within: int) -> None:
    attention = model.model.decoder.layers[-1].encoder_attn
    width = attention.embed_dim
    # A normalised row's square is its width, of which a half is the position's.
    scale = (SHARPNESS * within**0.5 / (width / 2)) ** 0.5
    for projection in attention.q_proj, attention.k_proj:
        projection.weight.zero_()
        for head in projection.weight.split(within):
            head[:, :within] = scale * torch.eye(within)
    attention.v_proj.weight.copy_(torch.eye(width))
    attention.out_proj.weight[within:, within:] = GAIN * torch.eye(width - within)
