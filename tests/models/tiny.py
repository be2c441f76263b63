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
from transformers.models.marian.modeling_marian import MarianMTModel
from transformers.models.moonshine.modeling_moonshine import MoonshineForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration
from transformers.models.whisper.modeling_whisper import WhisperForConditionalGeneration

from tests.models.harness import Oracle, Result, Source, reference

State = dict[str, Tensor]
SEED = 7

CLASSES: Mapping[str, type[PreTrainedModel]] = {
    "bart": BartForConditionalGeneration,
    "t5": T5ForConditionalGeneration,
    "marian": MarianMTModel,
    "whisper": WhisperForConditionalGeneration,
    "moonshine": MoonshineForConditionalGeneration,
}

SIDES = {
    "d_model": 24,
    "encoder_layers": 2,
    "encoder_attention_heads": 3,
    "encoder_ffn_dim": 40,
    "decoder_layers": 2,
    "decoder_attention_heads": 3,
    "decoder_ffn_dim": 40,
}
IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1, "decoder_start_token_id": 2}
SMALL: Mapping[str, Mapping[str, Any]] = {
    "bart": {**SIDES, "vocab_size": 50, "max_position_embeddings": 32},
    "marian": {**SIDES, **IDS, "forced_eos_token_id": 1, "vocab_size": 50, "max_position_embeddings": 32},
    "t5": {
        "d_model": 24,
        "d_kv": 8,
        "d_ff": 40,
        "num_layers": 2,
        "num_heads": 3,
        "vocab_size": 50,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 12,
    },
    "whisper": {
        **SIDES,
        **IDS,
        "vocab_size": 50,
        "num_mel_bins": 10,
        "max_source_positions": 12,
        "max_target_positions": 32,
    },
    "moonshine": {
        **IDS,
        "vocab_size": 50,
        "hidden_size": 24,
        "intermediate_size": 40,
        "encoder_num_hidden_layers": 2,
        "encoder_num_attention_heads": 3,
        "decoder_num_hidden_layers": 2,
        "decoder_num_attention_heads": 3,
        "max_position_embeddings": 32,
        "partial_rotary_factor": 0.8,
    },
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
    stored = set(model.state_dict()) - set(case.initial)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name in stored:
                tensor.copy_(_drawn(name, tensor, generator))
    return model


# Standard deviations of weights, by the first pattern that is found in a tensor's name; matrices are divided by
# the square root of their inputs. Sharp attention and a strong residual keep positions apart.
GAINS = (
    (r"norm.*weight$", 0.4),
    (r"norm.*bias$", 0.1),
    (r"embed|shared|relative|final_logits|lm_head|proj_out", 1.0),
    (r"bias$", 0.2),
    (r"\b[qk](_proj)?\.", 2.0),
    (r"\b(fc|wi|wo)", 0.5),
    (r"", 0.7),
)


def _drawn(name: str, tensor: Tensor, generator: torch.Generator) -> Tensor:
    gain = next(gain for pattern, gain in GAINS if re.search(pattern, name))
    noise = gain * torch.randn(tensor.shape, generator=generator)
    if re.search(r"norm.*weight$", name):
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
            return _heard(rows, (raw["num_mel_bins"], 2 * rows), generator)
        case "moonshine":
            return _heard(length, (895 + 384 * (length - 1) + 7 * length,), generator)  # the last few make no row
        case _:
            return Source(_ids(raw["vocab_size"], length, generator), length)


def _heard(rows: int, shape: tuple[int, ...], generator: torch.Generator) -> Source:
    return Source(torch.zeros(0, dtype=torch.int64), rows, torch.randn(shape, generator=generator))


def _runs(model: PreTrainedModel) -> Oracle:
    def oracle(source: Source, tokens: Sequence[int]) -> tuple[Tensor, Tensor]:
        given = {model.main_input_name: source.given[None]}
        out = model(**given, decoder_input_ids=torch.tensor([list(tokens)]))
        return out.encoder_last_hidden_state[0], out.logits[0]

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
