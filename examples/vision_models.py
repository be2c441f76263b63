"""The models that the examples with images run: where each is published, what it is asked, and tiny ones like it.

A tiny one has random weights, reads bytes and answers nonsense, but takes the way of its big sister through the engine.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from PIL import Image, ImageDraw
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CLIPImageProcessorPil,
    DonutImageProcessorPil,
    DonutSwinConfig,
    Florence2Config,
    Florence2ForConditionalGeneration,
    GenerationConfig,
    MBartConfig,
    MllamaConfig,
    MllamaForConditionalGeneration,
    MllamaImageProcessorPil,
    NougatImageProcessorPil,
    PreTrainedTokenizerFast,
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessorPil,
)
from transformers.image_processing_backends import PilBackend
from transformers.utils.logging import disable_progress_bar

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
BYTES = (*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()))
IDS: dict[str, Any] = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
SIDE = 64
SIZE = {"height": SIDE, "width": SIDE}
LAYERS = {"decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64}
DECODER: dict[str, Any] = {**LAYERS, "d_model": 32, "vocab_size": 300, "max_position_embeddings": 128}
SWIN: dict[str, Any] = {"image_size": [SIDE, SIDE], "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4]}

Model = MllamaForConditionalGeneration | VisionEncoderDecoderModel | Florence2ForConditionalGeneration
Tiny = tuple[Model, PilBackend, PreTrainedTokenizerFast]


@dataclass(frozen=True, slots=True)
class Sample:
    """published: a hub id. prompt: what it is asked beside a picture, None for nothing. tiny: makes one like it."""

    published: str
    prompt: str | None
    tiny: Callable[[], Tiny]


def _mllama() -> Tiny:
    text = {"vocab_size": len(BYTES), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "cross_attention_layers": [1, 3]}
    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_global_layers": 1, "attention_heads": 4}
    tiles = {"image_size": SIDE, "patch_size": 16, "vision_output_dim": 64, "intermediate_layers_indices": [1]}
    config = MllamaConfig(
        vision_config={**vision, **tiles, "intermediate_size": 64},
        text_config={**text, **heads, **IDS, "max_position_embeddings": 256},
        image_token_index=len(BYTES),
    )
    return MllamaForConditionalGeneration(config), MllamaImageProcessorPil(size=SIZE), _tokenizer("<|image|>")


def _seeing(encoder: Any, decoder: Any, pixels: PilBackend) -> Tiny:
    config = VisionEncoderDecoderConfig(encoder=encoder.to_dict(), decoder=decoder.to_dict(), **IDS)
    tags = ("<s_docvqa>", "<s_question>", "</s_question>", "<s_answer>", "</s_answer>")
    return VisionEncoderDecoderModel(config), pixels, _tokenizer(*tags)


def _trocr() -> Tiny:
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    encoder = ViTConfig(image_size=SIDE, patch_size=16, **sizes)
    return _seeing(encoder, TrOCRConfig(**DECODER), ViTImageProcessorPil(size=SIZE))


def _donut() -> Tiny:
    return _seeing(DonutSwinConfig(**SWIN), MBartConfig(**DECODER), DonutImageProcessorPil(size=SIZE))


def _nougat() -> Tiny:
    return _seeing(DonutSwinConfig(**SWIN), MBartConfig(**DECODER), NougatImageProcessorPil(size=SIZE))


def _florence2() -> Tiny:
    heads = {"embed_dim": [16, 32], "num_heads": [2, 4], "num_groups": [2, 4], "projection_dim": 32, "depths": [1, 1]}
    patches = {"patch_size": [7, 3], "patch_stride": [4, 2], "patch_padding": [3, 1], "patch_prenorm": [False, True]}
    sides = {name.replace("decoder", side): value for side in ("encoder", "decoder") for name, value in LAYERS.items()}
    config = Florence2Config(
        text_config={"model_type": "bart", **IDS, **DECODER, **sides},
        vision_config={**heads, **patches, "window_size": 4, "max_position_embeddings": 20},
        image_token_id=len(BYTES),
        **IDS,
    )
    tokenizer = _tokenizer(image_token="<image>")
    return Florence2ForConditionalGeneration(config), CLIPImageProcessorPil(size=SIZE, do_center_crop=False), tokenizer


MODELS = {
    "mllama": Sample("meta-llama/Llama-3.2-11B-Vision-Instruct", "<|image|>What is in this picture?", _mllama),
    "trocr": Sample("microsoft/trocr-base-printed", None, _trocr),
    "donut": Sample(
        "naver-clova-ix/donut-base-finetuned-docvqa",
        "<s_docvqa><s_question>What does it say?</s_question><s_answer>",
        _donut,
    ),
    "nougat": Sample("facebook/nougat-base", None, _nougat),
    "florence2": Sample("florence-community/Florence-2-base", "<CAPTION>", _florence2),
}


def parser(description: str | None) -> argparse.ArgumentParser:
    """Arguments that say which model it is."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("-m", "--model-type", choices=MODELS, default="donut", help="what kind of model")
    made.add_argument("--model", help="a folder or a hub id; otherwise the kind's best-known one")
    made.add_argument("--random-weights", action="store_true", help="make a tiny one instead, which says nonsense")
    return made


@contextmanager
def chosen(arguments: argparse.Namespace) -> Iterator[str]:
    """The model that the arguments name, which is there for as long as the context is open."""
    sample = MODELS[arguments.model_type]
    with TemporaryDirectory() as folder:
        if arguments.random_weights:
            save(sample, Path(folder))
        yield folder if arguments.random_weights else arguments.model or sample.published


def drawn(text: str) -> Image.Image:
    """A sheet with a few words."""
    sheet = Image.new("RGB", (640, 480), "white")
    draw = ImageDraw.Draw(sheet)
    draw.ellipse((400, 200, 600, 400), fill="steelblue")
    draw.text((40, 40), text, fill="black", font_size=40)
    return sheet


def save(sample: Sample, folder: Path) -> None:
    """Make a tiny checkpoint."""
    disable_progress_bar()  # of what is done at once
    torch.manual_seed(0)
    model, pixels, tokenizer = sample.tiny()
    for weight in model.parameters():
        if weight.dim() > 1:
            weight.detach().normal_(0, weight[0].numel() ** -0.5)  # larger than at first, or all say nothing at all
    model.generation_config = GenerationConfig(max_length=40, **IDS)
    model.save_pretrained(folder)
    pixels.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokenizer(*extra: str, **named: str) -> PreTrainedTokenizerFast:
    """Bytes, some tokens more, and some with names."""
    made = Tokenizer(models.BPE({name: index for index, name in enumerate(BYTES)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*extra, *named.values()])
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=made, **names, extra_special_tokens=named)
