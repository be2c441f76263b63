"""Reading a checkpoint's config.json and generation_config.json: what several families' config views share."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from transduce.errors import CheckpointError
from transduce.quant.base import Activation
from transduce.stacks.style import Style

C = TypeVar("C")

ACTIVATIONS: Mapping[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "silu": "silu",
    "swish": "silu",
}


def view(cls: type[C], raw: Mapping[str, Any]) -> C:
    """The dataclass `cls` from the fields config.json has; a file leaves out what equals the class's default."""
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # always a dataclass
    return cls(**{name: raw[name] for name in names if name in raw})


def activation(name: str) -> Activation:
    """The activation config.json names; CheckpointError where it is none of ours."""
    if name not in ACTIVATIONS:
        raise CheckpointError(f"activation {name!r} is not supported; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def token_ids(ids: int | list[int] | None) -> tuple[int, ...]:
    """A field that holds one id, several or none."""
    if ids is None:
        return ()
    return (ids,) if isinstance(ids, int) else tuple(ids)


def generation_config(folder: Path) -> dict[str, Any]:
    """generation_config.json of a checkpoint folder, empty where there is none."""
    file = folder / "generation_config.json"
    if not file.exists():
        return {}
    try:
        loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{file} is not valid JSON: {error}") from error
    return loaded


def start_token(folder: Path, default: int | None) -> int | None:
    """The decoder's first token: generation_config.json's, else what config.json says."""
    start: int | None = generation_config(folder).get("decoder_start_token_id")
    return default if start is None else start


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSided:
    """The fields that BART's relatives share; each family sets its own defaults."""

    vocab_size: int
    d_model: int
    activation_function: str
    encoder_layers: int
    encoder_attention_heads: int
    encoder_ffn_dim: int
    decoder_layers: int
    decoder_attention_heads: int
    decoder_ffn_dim: int
    bos_token_id: int | None
    eos_token_id: int | list[int] | None
    decoder_start_token_id: int | None
    tie_word_embeddings: bool = True

    @property
    def start(self) -> int | None:
        """The decoder's first token, as far as config.json knows."""
        return self.bos_token_id if self.decoder_start_token_id is None else self.decoder_start_token_id

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
            key_bias=key_bias,
        )
