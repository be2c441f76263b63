"""XLM-RoBERTa as a decoder with cross-attention: RoBERTa over another vocabulary."""

from dataclasses import dataclass
from functools import partial

from transduce.models.config import Size, view
from transduce.models.parts import TextDecoder
from transduce.models.parts.bert import FILE, build
from transduce.models.parts.roberta import RobertaConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class XLMRobertaConfig(RobertaConfig):
    """The decoder's part of config.json."""

    vocab_size: Size = 30522


DECODER = TextDecoder(partial(view, XLMRobertaConfig, file=FILE), build)
