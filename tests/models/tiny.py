"""Tiny random checkpoints in transformers' layout, with transformers as their oracle.

Every weight is drawn anew, large enough that outputs depend on the source and on the position.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel
from transformers.models.bart.modeling_bart import BartForConditionalGeneration
from transformers.models.florence2.modeling_florence2 import Florence2ForConditionalGeneration
from transformers.models.marian.modeling_marian import MarianMTModel
from transformers.models.mllama.modeling_mllama import MllamaForConditionalGeneration
from transformers.models.moonshine.modeling_moonshine import MoonshineForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration
from transformers.models.vision_encoder_decoder.modeling_vision_encoder_decoder import VisionEncoderDecoderModel
from transformers.models.whisper.modeling_whisper import WhisperForConditionalGeneration

from tests.models import mllama
from tests.models.harness import Oracle, Result, Source, reference
from tests.models.small import SMALL
from transduce.models.base import find
from transduce.models.vision_encoder_decoder.config import read

RATIOS = ((1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1))
"""Of an image's tiles, above one another and side by side, where a config names none."""

State = dict[str, Tensor]
SEED = 7

CLASSES: Mapping[str, type[PreTrainedModel]] = {
    "bart": BartForConditionalGeneration,
    "t5": T5ForConditionalGeneration,
    "marian": MarianMTModel,
    "whisper": WhisperForConditionalGeneration,
    "moonshine": MoonshineForConditionalGeneration,
    "mllama": MllamaForConditionalGeneration,
    "vision-encoder-decoder": VisionEncoderDecoderModel,
    "florence2": Florence2ForConditionalGeneration,
}

ALIASES = tuple(
    f"{name}.weight"
    for name in (
        "model.shared",
        "model.encoder.embed_tokens",
        "model.decoder.embed_tokens",
        "shared",
        "encoder.embed_tokens",
        "decoder.embed_tokens",
        "lm_head",
        "proj_out",
    )
)


@dataclass(frozen=True, eq=False)
class Case:
    """One configuration of a family.

    flags: config.json beside the small sizes. untie: modules that have a weight of their own. initial: tensors that
    keep the value transformers gives them. stored: what the file holds of what transformers would write.
    """

    model_type: str
    name: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    untie: tuple[str, ...] = ()
    initial: tuple[str, ...] = ()
    stored: Callable[[State], State] = dict

    @property
    def raw(self) -> dict[str, Any]:
        return {"model_type": self.model_type, **SMALL[self.model_type], **self.flags}


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A case's files, a ragged batch for it, and what transformers makes of that in fp32."""

    raw: dict[str, Any]
    state: State
    sources: list[Source]
    decoder: list[list[int]]
    expected: Result


@cache
def checkpoint(case: Case) -> Checkpoint:
    """Made once: many tests look at one checkpoint."""
    generator = torch.Generator().manual_seed(SEED)
    model = random_model(case, generator)
    sources = [_source(case, length, generator) for length in (5, 1, 17, 9)]
    targets = model.get_output_embeddings().weight.shape[0]
    decoder = [_ids(targets, length, generator).tolist() for length in (6, 1, 15, 24)]
    expected = reference(_runs(model), sources, decoder)
    return Checkpoint(case.raw, case.stored(_saved(model)), sources, decoder, expected)


def random_model(case: Case, generator: torch.Generator) -> PreTrainedModel:
    sizes = {name: value for name, value in case.raw.items() if name != "model_type"}
    model: PreTrainedModel = CLASSES[case.model_type](AutoConfig.for_model(case.model_type, **sizes)).eval()
    for name in case.untie:
        module = model.get_submodule(name)
        module.weight = torch.nn.Parameter(torch.empty_like(module.get_parameter("weight")))
    if isinstance(model, MllamaForConditionalGeneration):
        mllama.masked(model)
    stored = set(model.state_dict()) - set(case.initial)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name in stored and tensor.is_floating_point():
                tensor.copy_(_drawn(name, tensor, generator))
    return model


# Standard deviations of weights, by the first pattern that is found in a tensor's name; matrices are divided by
# the square root of their inputs. Sharp attention and a strong residual keep positions apart.
GAINS = (
    (r"(?i:norm).*weight$", 0.4),
    (r"(?i:norm).*bias$", 0.1),
    (r"patch_embeddings.*weight$", 0.7),
    (r"embed|shared|relative|final_logits|lm_head|cls\.|proj_out", 1.0),
    (r"bias$", 0.2),
    (r"\b([qk](_proj)?|query|key)\.", 2.0),
    (r"\b(fc|wi|wo)", 0.5),
    (r"", 0.7),
)


def _drawn(name: str, tensor: Tensor, generator: torch.Generator) -> Tensor:
    gain = next(gain for pattern, gain in GAINS if re.search(pattern, name))
    noise = gain * torch.randn(tensor.shape, generator=generator)
    if re.search(r"(?i:norm).*weight$", name):
        return 1 + noise
    is_matrix = tensor.dim() > 1 and gain != 1.0
    return noise / tensor[0].numel() ** 0.5 if is_matrix else noise


def _saved(model: PreTrainedModel) -> State:
    """The state dict without the tensors that share another's memory, as a file holds it."""
    state: State = {}
    for name, tensor in model.state_dict().items():
        if all(tensor.data_ptr() != other.data_ptr() for other in state.values()):
            state[name] = tensor
    return state


def _ids(vocab: int, length: int, generator: torch.Generator) -> Tensor:
    return torch.randint(3, vocab, (length,), generator=generator)


def _source(case: Case, length: int, generator: torch.Generator) -> Source:
    raw = case.raw
    match case.model_type:
        case "whisper":
            rows = raw["max_source_positions"]
            return _features(rows, (raw["num_mel_bins"], 2 * rows), generator)
        case "moonshine":
            return _features(length, (895 + 384 * (length - 1) + 7 * length,), generator)  # the last few make no row
        case "mllama":
            ratios = raw["vision_config"].get("supported_aspect_ratios", RATIOS)
            return picture(raw, ratios[length % 7 % len(ratios)], generator)
        case "vision-encoder-decoder":
            image = read(raw).image
            return _features(image.rows, image.shape, generator)
        case "florence2":
            return _pictured(raw, length, generator)
        case _:
            return Source(_ids(raw["vocab_size"], length, generator), length)


def picture(raw: Mapping[str, Any], ratio: tuple[int, int], generator: torch.Generator) -> Source:
    """An image of so many tiles (above one another, side by side)."""
    size, patch = raw["vision_config"]["image_size"], raw["vision_config"]["patch_size"]
    rows = ratio[0] * ratio[1] * ((size // patch) ** 2 + 1)
    return _features(rows, (*ratio, 3, size, size), generator)


def _pictured(raw: Mapping[str, Any], length: int, generator: torch.Generator) -> Source:
    """A text of so many tokens beside an image, whose size differs too."""
    sides = (20, 12 + length % 9)
    rows = find("florence2").config(raw).vision.rows(*sides)
    text = _ids(raw["text_config"]["vocab_size"], length, generator)
    return Source(text, rows + length, torch.randn((3, *sides), generator=generator))


def _features(rows: int, shape: tuple[int, ...], generator: torch.Generator) -> Source:
    return Source(torch.zeros(0, dtype=torch.int64), rows, torch.randn(shape, generator=generator))


def _runs(model: PreTrainedModel) -> Oracle:
    if isinstance(model, MllamaForConditionalGeneration):
        return _sees_one_image(model)

    between = dict(model.named_children()).get("enc_to_dec_proj", torch.nn.Identity())

    def oracle(source: Source, tokens: Sequence[int]) -> tuple[Tensor, Tensor]:
        out = model(**arguments(model, source), decoder_input_ids=torch.tensor([list(tokens)]))
        return between(out.encoder_last_hidden_state[0]), out.logits[0]

    return oracle


def arguments(model: PreTrainedModel, source: Source) -> dict[str, Tensor]:
    """A source, as the model calls it."""
    if source.features is None or not len(source.tokens):
        return {model.main_input_name: source.given[None]}
    image = torch.full((source.rows - len(source.tokens),), model.config.image_token_id)
    return {"input_ids": torch.cat((image, source.tokens))[None], "pixel_values": source.features[None]}


def _sees_one_image(model: MllamaForConditionalGeneration) -> Oracle:
    """Every token of the sequence sees the image."""

    def oracle(source: Source, tokens: Sequence[int]) -> tuple[Tensor, Tensor]:
        mask = mllama.seen_by_all(tokens, [source.given], mllama.vision(model).max_num_tiles)
        (encoded,), logits = mllama.answer(model, tokens, [source.given], mask)
        return encoded, logits

    return oracle


def only(*names: str) -> Callable[[State], State]:
    """Of a table with several names, store these."""

    def stored(state: State) -> State:
        table = next(state[alias] for alias in ALIASES if alias in state)
        kept = {name: tensor for name, tensor in state.items() if name not in ALIASES}
        return kept | dict.fromkeys(names, table)

    return stored


def without(*names: str) -> Callable[[State], State]:
    """Leave these tensors out of the file."""
    return lambda state: {name: tensor for name, tensor in state.items() if name not in names}
