"""Reading a checkpoint's config.json and generation_config.json: what several families' config views share."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from transduce.errors import CheckpointError
from transduce.quant.base import Activation
from transduce.stacks.style import Style

C = TypeVar("C")
P = TypeVar("P")

CONFIG, GENERATION, PREPROCESSOR = "config.json", "generation_config.json", "preprocessor_config.json"

START = ("decoder_start_token_id", "bos_token_id")
"""Fields that name the decoder's first token, the one that counts first."""

Size = Annotated[int, "above 0"]

_KINDS: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
    list: "a list",
    dict: "an object",
    NoneType: "null",
}

ACTIVATIONS: Mapping[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "silu": "silu",
    "swish": "silu",
}


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; CheckpointError where it holds none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise CheckpointError(f"{path} is nested too deep for JSON: save or download it again") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON ({error}): save or download it again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a JSON {type(value).__name__}, not an object: save or download it again")
    return value


def view(cls: type[C], raw: Mapping[str, Any], file: str = CONFIG) -> C:
    """The dataclass `cls` from the fields `file` has; a file leaves out what equals the class's default.

    CheckpointError where a value is not what the field's annotation says.
    """
    hints = get_type_hints(cls, include_extras=True)
    given = {name: hint for name, hint in hints.items() if name in raw}
    for name, hint in given.items():
        if not _fits(raw[name], hint):
            raise CheckpointError(f"{file} has {name}={raw[name]!r}; it should be {_described(hint)}")
    return cls(**{name: raw[name] for name in given})


def with_rope(raw: Mapping[str, Any]) -> dict[str, Any]:
    """config.json's fields, the rope parameters among them: they may lie in an object of their own, which goes before.

    CheckpointError where that is none.
    """
    rope = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise CheckpointError(f"config.json has rope parameters {rope!r}; they should be an object")
    named = {"rope_type": rope["type"]} if "type" in rope else {}  # as older files have it
    return {**raw, **named, **rope}


def _fits(value: object, hint: Any) -> bool:
    """Whether a JSON value is of the annotated type; true is no number, a whole number is a float too."""
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if hint == Size:
        return _fits(value, int) and cast(int, value) > 0
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float) and abs(value) < math.inf
    return isinstance(value, get_origin(hint) or hint)


def _described(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_described(each) for each in get_args(hint))
    return "a whole number above 0" if hint == Size else _KINDS[get_origin(hint) or hint]


def activation(name: str) -> Activation:
    """The activation config.json names; CheckpointError where it is none of ours."""
    if name not in ACTIVATIONS:
        raise CheckpointError(f"activation {name!r} is not supported; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def preprocessor(folder: Path, read: Callable[[Path], P]) -> P:
    """What `read` makes of a checkpoint's folder; CheckpointError where its preprocessor_config.json makes nothing."""
    try:
        return read(folder)
    except CheckpointError:
        raise
    except (OSError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise CheckpointError(
            f"{folder / PREPROCESSOR} makes no preprocessor ({error}): save or download it again"
        ) from error


def inherited(fields: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """What a checkpoint asks of generation. A config.json may say it in this part, where the whole says nothing."""
    within = fields.get(part)
    if not isinstance(within, dict):
        return fields
    return {**within, **{name: value for name, value in fields.items() if value is not None}}


def start_token(fields: Mapping[str, Any]) -> int | None:
    """The decoder's first token by these generation fields, as transformers has it; None where none is named."""
    return next((fields[name] for name in START if fields.get(name) is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSided:
    """The fields that BART's relatives share; each family sets its own defaults."""

    vocab_size: Size
    d_model: Size
    activation_function: str
    encoder_layers: Size
    encoder_attention_heads: Size
    encoder_ffn_dim: Size
    decoder_layers: Size
    decoder_attention_heads: Size
    decoder_ffn_dim: Size
    tie_word_embeddings: bool = True

    def encoder_style(self, pre_norm: bool, key_bias: bool = True) -> Style:
        return self._style(self.encoder_layers, self.encoder_attention_heads, self.encoder_ffn_dim, pre_norm, key_bias)

    def decoder_style(self, pre_norm: bool, key_bias: bool = True) -> Style:
        return self._style(self.decoder_layers, self.decoder_attention_heads, self.decoder_ffn_dim, pre_norm, key_bias)

    def _style(self, layers: int, heads: int, ffn: int, pre_norm: bool, key_bias: bool) -> Style:
        if self.d_model % heads:
            raise CheckpointError(f"config.json: d_model {self.d_model} is not a multiple of {heads} heads")
        head_dim = self.d_model // heads
        return Style(
            layers=layers,
            d=self.d_model,
            heads=heads,
            head_dim=head_dim,
            ffn=ffn,
            activation=activation(self.activation_function),
            scale=head_dim**-0.5,
            pre_norm=pre_norm,
            attention_bias=(True, key_bias, True, True),
        )
