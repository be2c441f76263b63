"""Tokenizers whose tokens are whole matches of a pattern: letters, or the symbols of a notation."""

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, pre_tokenizers, processors
from tokenizers.decoders import Decoder
from tokenizers.models import WordLevel

from checkpoints.convert.folder import Json


def tokenizer(words: Sequence[str], pattern: str, special: dict[str, str], decoder: Decoder) -> Json:
    """The tokenizer.json of `words`, a word's id being its index; a text becomes BOS, its words, EOS.

    special: bos_token, eos_token, unk_token and pad_token.
    """
    made = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token=special["unk_token"]))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    made.add_special_tokens([word for word in words if word in special.values()])
    bos, eos = special["bos_token"], special["eos_token"]
    made.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {eos}", special_tokens=[(token, words.index(token)) for token in (bos, eos)]
    )
    made.decoder = decoder
    content: dict[str, Any] = json.loads(made.to_str())
    return content


def tokenizer_config(special: dict[str, str], length: int) -> Json:
    """The tokenizer_config.json beside it, for inputs of up to `length` tokens."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        "model_max_length": length,
        "clean_up_tokenization_spaces": False,
    }
