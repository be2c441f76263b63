"""Runs in the environment that `convert` makes, as it says: makes a checkpoint with random weights, or converts one.

    convert_program.py random CONFIG FOLDER
    convert_program.py ctranslate2 CHECKPOINT QUANTIZATION FOLDER

CONFIG: JSON. The vocabulary of a random model is `t0`, `t1`, …
"""

import json
import sys
from pathlib import Path
from typing import Any

BART_BASE = {"normalize_before": False, "normalize_embedding": True, "add_final_layer_norm": False}
"""What BART's published configurations say and transformers has forgotten: the converter asks for them."""


def write_random(config_json: str, folder: str) -> None:
    """A checkpoint in transformers' layout."""
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    given = json.loads(config_json)
    known = {**given, **(BART_BASE if given["model_type"] == "bart" else {})}
    AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(**known)).save_pretrained(folder)
    write_tokenizer(given, folder)


def write_tokenizer(config: dict[str, Any], folder: str) -> None:
    """One word per id; the special ones have names."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    special = {name: f"<{name}>" for name in ("bos", "eos", "pad") if f"{name}_token_id" in config}
    words = {config[f"{name}_token_id"]: word for name, word in special.items()}
    vocab = {words.get(index, f"t{index}"): index for index in range(config["vocab_size"])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="t3"))
    named = {f"{name}_token": word for name, word in special.items()}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="t3", **named).save_pretrained(folder)


def convert(checkpoint: str, quantization: str, folder: str) -> None:
    """A checkpoint in CTranslate2's format."""
    from ctranslate2.converters import TransformersConverter

    extra = [name for name in ("tokenizer.json", "preprocessor_config.json") if (Path(checkpoint) / name).exists()]
    TransformersConverter(checkpoint, copy_files=extra).convert(folder, quantization=quantization)


if __name__ == "__main__":
    program, *arguments = sys.argv[1:]
    if program == "random":
        write_random(*arguments)
    else:
        convert(*arguments)
