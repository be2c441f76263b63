"""TrOCR's decoder: BART's, whose positions may be sines and whose encoder rows may be of another width."""

from dataclasses import dataclass, replace
from functools import partial
from math import log

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.layers.build import Builder
from transduce.layers.embedding import Embedding
from transduce.models.config import Size, view
from transduce.models.parts import Decoder, TextDecoder
from transduce.models.parts.bart import FILE, BartConfig, assembled, learned
from transduce.stacks.style import Style


@dataclass(frozen=True, slots=True, kw_only=True)
class TrOCRConfig(BartConfig):
    """The decoder's part of config.json."""

    max_position_embeddings: Size = 512
    use_learned_position_embeddings: bool = True
    layernorm_embedding: bool = True
    cross_attention_hidden_size: Size | None = None
    pad_token_id: int | None = 1

    @property
    def style(self) -> Style:
        """As in TextConfig."""
        return replace(self.decoder_style(pre_norm=False), encoded=self.cross_attention_hidden_size)


def build(config: TrOCRConfig, b: Builder) -> Decoder:
    """The decoder, loaded."""
    return assembled(config, b, _positions(config, b), config.layernorm_embedding)


def _positions(config: TrOCRConfig, b: Builder) -> Embedding:
    if config.use_learned_position_embeddings:
        return learned(config, b)
    first = 1 + (config.pad_token_id or 0)
    return Embedding(sines(first, config.positions, config.d_model).to(b.context.device, b.context.dtype))


def sines(first: int, positions: int, d: int) -> Tensor:
    """[positions, d] float32, from position `first` on: sines, then cosines, wavelengths 2π to 2π·10⁴.

    With d odd the last column is 0. A padding token, which no prompt has, would have no position of its own.
    """
    # float32, as trained: the angles of late positions are what float32 rounds them to.
    frequencies = torch.exp(torch.arange(d // 2).float() * -(log(10000) / (d // 2 - 1)))
    angles = torch.arange(first, first + positions).float()[:, None] * frequencies
    return F.pad(torch.cat([angles.sin(), angles.cos()], dim=1), (0, d % 2))


DECODER = TextDecoder(partial(view, TrOCRConfig, file=FILE), build)
