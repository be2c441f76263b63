"""RoBERTa as a decoder with cross-attention: BERT, whose positions begin behind the padding's index."""

from dataclasses import dataclass
from functools import partial

from transduce.models.config import Size, view
from transduce.models.parts import TextDecoder
from transduce.models.parts.bert import FILE, BertConfig, build


@dataclass(frozen=True, slots=True, kw_only=True)
class RobertaConfig(BertConfig):
    """The decoder's part of config.json."""

    vocab_size: Size = 50265
    pad_token_id: int | None = 1

    @property
    def unused(self) -> int:
        """The first rows of the table of positions, which only padding reads."""
        return 1 + (self.pad_token_id or 0)

    @property
    def head_activation(self) -> str:
        """Of the layer before the head."""
        return "gelu"


DECODER = TextDecoder(partial(view, RobertaConfig, file=FILE), build)
