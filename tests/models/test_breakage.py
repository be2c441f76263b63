"""The parity comparison turns red for every single thing that could be wrong."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models import cases
from tests.models.harness import TOLERANCE, Result, Run, difference, load, run
from tests.models.small import SMALL
from tests.models.tiny import RATIOS, Case, Checkpoint, State, checkpoint
from transduce.layers.step import StepInput
from transduce.layers.windows import Windows
from transduce.models.base import find
from transduce.stacks import windowed

SINES = {"use_learned_position_embeddings": False}
LLAMA3 = SMALL["mllama"]["text_config"]["rope_parameters"]

SHALLOW = (
    cases.bart("one layer", {"encoder_layers": 1, "decoder_layers": 1}),
    cases.t5("one layer", {"num_layers": 1, "feed_forward_proj": "gated-gelu"}, untie=("lm_head",)),
    cases.marian(
        "one layer, three tables",
        {"encoder_layers": 1, "decoder_layers": 1, **cases.THREE_TABLES},
    ),
    cases.whisper("one layer", {"encoder_layers": 1, "decoder_layers": 1}),
    cases.moonshine("one layer", {"encoder_num_hidden_layers": 1, "decoder_num_hidden_layers": 1}),
    cases.mllama(
        "one layer of each kind",
        {"num_hidden_layers": 2, "cross_attention_layers": [1]},
        {"num_hidden_layers": 1, "num_global_layers": 1, "intermediate_layers_indices": [0], "vision_output_dim": 32},
    ),
    cases.seeing(
        "one layer, sines", {**cases.DEIT, "num_hidden_layers": 1}, {**cases.TROCR, **SINES, "decoder_layers": 1}
    ),
    cases.seeing(
        "one layer in each stage, a projection",
        {**cases.SWIN, "embed_dim": 6, "depths": [1, 1], "use_absolute_embeddings": True},
        {**cases.ROBERTA, "num_hidden_layers": 1},
    ),
    cases.florence2("one layer", {"encoder_layers": 1, "decoder_layers": 1}, {"depths": [1, 1]}),
)


def _by_name(table: tuple[Case, ...], name: str) -> Case:
    return next(case for case in table if case.name == name)


def _differs(case: Case, made: Checkpoint, raw: Mapping[str, Any], state: State) -> bool:
    loaded = load(find(case.model_type), raw, state)
    return difference(run(loaded, made.sources, made.decoder, 99), made.expected) > 2 * TOLERANCE


def _changed(name: str, tensor: Tensor) -> Tensor:
    """Biases and norms switched off, matrices and tables turned by a row."""
    if tensor.dim() == 1 or name == "final_logits_bias":
        return torch.ones_like(tensor) if name.endswith("norm.weight") else torch.zeros_like(tensor)
    return tensor.roll(1, next((axis for axis, size in enumerate(tensor.shape) if size > 1), 0))


@pytest.mark.parametrize("case", SHALLOW, ids=lambda case: case.model_type)
def test_every_tensor_of_a_checkpoint_matters(case: Case) -> None:
    """But for key biases, which add the same to all of a query's scores, and what is left out."""
    made = checkpoint(case)
    unnoticed = {
        name
        for name, tensor in made.state.items()
        if not _differs(case, made, case.raw, {**made.state, name: _changed(name, tensor)})
    }
    rename = find(case.model_type).rename
    assert unnoticed == {n for n in made.state if re.search(r"\bk(_proj|ey)\.bias$", n) or rename(n) is None}


FLAGS: tuple[tuple[Case, dict[str, Any]], ...] = (
    (_by_name(cases.BART, "plain"), {"scale_embedding": True}),
    (_by_name(cases.BART, "scaled embedding"), {"scale_embedding": False}),
    (_by_name(cases.BART, "plain"), {"activation_function": "relu"}),
    (_by_name(cases.BART, "plain"), {"activation_function": "gelu_new"}),
    (_by_name(cases.BART, "gelu_new"), {"activation_function": "gelu"}),
    (_by_name(cases.BART, "swish"), {"activation_function": "gelu"}),
    (_by_name(cases.BART, "plain"), {"encoder_attention_heads": 4}),
    (_by_name(cases.BART, "plain"), {"encoder_layers": 1}),
    (_by_name(cases.MARIAN, "scaled embedding"), {"scale_embedding": False}),
    (_by_name(cases.MARIAN, "sines"), {"scale_embedding": True}),
    (_by_name(cases.MARIAN, "relu"), {"activation_function": "gelu"}),
    (_by_name(cases.T5, "1.0"), {"tie_word_embeddings": False}),
    (_by_name(cases.T5, "1.1"), {"tie_word_embeddings": True}),
    (_by_name(cases.T5, "1.1 as transformers 5 saves it"), {"scale_decoder_outputs": None}),
    (_by_name(cases.T5, "1.1"), {"feed_forward_proj": "gated-relu"}),
    (_by_name(cases.T5, "exact gelu"), {"feed_forward_proj": "gelu_new"}),
    (_by_name(cases.T5, "1.0"), {"relative_attention_max_distance": 11}),
    (_by_name(cases.T5, "coarse epsilon"), {"layer_norm_epsilon": 1e-6}),
    (_by_name(cases.T5, "deep decoder"), {"num_decoder_layers": None}),
    (_by_name(cases.WHISPER, "relu"), {"activation_function": "gelu"}),
    (_by_name(cases.WHISPER, "plain"), {"decoder_attention_heads": 4}),
    (_by_name(cases.MOONSHINE, "plain"), {"partial_rotary_factor": 0.9}),
    (_by_name(cases.MOONSHINE, "an odd number of dimensions turned"), {"partial_rotary_factor": 1.0}),
    (_by_name(cases.MOONSHINE, "short waves"), {"rope_theta": 51.0}),
    (_by_name(cases.MOONSHINE, "rope parameters apart"), {"rope_parameters": {"rope_theta": 50.0}}),
    (_by_name(cases.MOONSHINE, "plain"), {"encoder_hidden_act": "gelu_new"}),
    (_by_name(cases.MOONSHINE, "plain"), {"decoder_hidden_act": "gelu"}),
    (_by_name(cases.MOONSHINE, "attention biases"), {"attention_bias": False}),
    (_by_name(cases.MOONSHINE, "deep decoder"), {"decoder_num_hidden_layers": 2}),
)


@pytest.mark.parametrize(("case", "wrong"), FLAGS, ids=[f"{c.model_type}: {c.name}, {w}" for c, w in FLAGS])
def test_every_flag_matters(case: Case, wrong: dict[str, Any]) -> None:
    made = checkpoint(case)
    assert _differs(case, made, {**case.raw, **wrong}, made.state)


MLLAMA: tuple[tuple[str, dict[str, Any]], ...] = (
    ("text_config", {"rope_parameters": {"rope_theta": 500.0}}),
    ("text_config", {"rope_parameters": {**LLAMA3, "factor": 4.0}}),
    ("text_config", {"rope_parameters": {**LLAMA3, "low_freq_factor": 1.2}}),
    ("text_config", {"rope_parameters": {**LLAMA3, "high_freq_factor": 3.0}}),
    ("text_config", {"rope_parameters": {**LLAMA3, "original_max_position_embeddings": 62}}),
    ("text_config", {"rms_norm_eps": 1e-2}),
    ("text_config", {"hidden_act": "gelu"}),
    ("vision_config", {"hidden_act": "gelu_new"}),
    ("vision_config", {"norm_eps": 1e-2}),
    ("vision_config", {"intermediate_layers_indices": [0, 1]}),
    ("vision_config", {"supported_aspect_ratios": [[*ratio] for ratio in RATIOS[::-1]]}),
)


TROCR: tuple[tuple[str, dict[str, Any]], ...] = (
    ("encoder", {"num_attention_heads": 4}),
    ("encoder", {"hidden_act": "relu"}),
    ("encoder", {"layer_norm_eps": 1e-2}),
    ("encoder", {"qkv_bias": False}),
    ("decoder", {"decoder_attention_heads": 4}),
    ("decoder", {"activation_function": "relu"}),
    ("decoder", {"scale_embedding": True}),
    ("decoder", {"layernorm_embedding": False}),
    ("decoder", SINES),
)
SWIN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("encoder", {"model_type": "donut-swin", "use_absolute_embeddings": False}),
    ("encoder", {"use_absolute_embeddings": False}),
    ("encoder", {"hidden_act": "relu"}),
    ("encoder", {"layer_norm_eps": 1e-5}),
    ("encoder", {"qkv_bias": False}),
)
ROBERTA: tuple[tuple[str, dict[str, Any]], ...] = (
    ("encoder", {"model_type": "donut-swin"}),
    ("decoder", {"model_type": "bert"}),
    ("decoder", {"pad_token_id": 0}),
)
BERT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("decoder", {"model_type": "roberta"}),
    ("decoder", {"hidden_act": "relu"}),
    ("decoder", {"num_attention_heads": 4}),
    ("decoder", {"layer_norm_eps": 1e-2}),
)

FLORENCE2: tuple[tuple[str, dict[str, Any]], ...] = (
    ("vision_config", {"window_size": 4}),
    ("vision_config", {"num_heads": [2, 4]}),
    ("vision_config", {"num_groups": [4, 3]}),
    ("vision_config", {"qkv_bias": False}),
    ("vision_config", {"activation_function": "relu"}),
)

WITHIN: tuple[tuple[Case, str, dict[str, Any]], ...] = tuple(
    (case, part, wrong)
    for case, differences in (
        (_by_name(cases.MLLAMA, "plain"), MLLAMA),
        (_by_name(cases.SEEING, "ViT and TrOCR"), TROCR),
        (_by_name(cases.SEEING, "Swin with positions"), SWIN),
        (_by_name(cases.SEEING, "Swin and RoBERTa"), ROBERTA),
        (_by_name(cases.SEEING, "BERT"), BERT),
        (_by_name(cases.FLORENCE2, "plain"), FLORENCE2),
        (_by_name(cases.SEEING, "Donut"), (("decoder", {"model_type": "bart"}),)),
        (_by_name(cases.SEEING, "DeiT and TrOCR with sines"), (("decoder", {"pad_token_id": 0}),)),
    )
    for part, wrong in differences
)


@pytest.mark.parametrize(("case", "part", "wrong"), WITHIN, ids=[f"{c.name}, {p}: {w}" for c, p, w in WITHIN])
def test_every_flag_within_a_part_matters(case: Case, part: str, wrong: dict[str, Any]) -> None:
    assert _differs(case, checkpoint(case), {**case.raw, part: {**case.raw[part], **wrong}}, checkpoint(case).state)


def _swapped(first: str, second: str) -> Callable[[State], State]:
    """Exchange tensors whose names differ in this."""

    def change(state: State) -> State:
        pairs = [(name, name.replace(first, second)) for name in state if first in name]
        return {**state, **{a: state[b] for a, b in pairs}, **{b: state[a] for a, b in pairs}}

    return change


def _scaled(pattern: str, factor: float) -> Callable[[State], State]:
    def change(state: State) -> State:
        return {name: t * factor if re.search(pattern, name) else t for name, t in state.items()}

    return change


def _dropped(name: str) -> Callable[[State], State]:
    return lambda state: {key: tensor for key, tensor in state.items() if key != name}


WEIGHTS: tuple[tuple[Case, str, Callable[[State], State]], ...] = (
    (
        _by_name(cases.BART, "plain"),
        "sides' positions swapped",
        _swapped("encoder.embed_positions", "decoder.embed_positions"),
    ),
    (_by_name(cases.BART, "tied, but the head differs"), "head ignored", _dropped("lm_head.weight")),
    (_by_name(cases.BART, "plain"), "logits bias dropped", _dropped("final_logits_bias")),
    (
        _by_name(cases.MARIAN, "learned positions"),
        "stored positions ignored",
        _dropped("model.decoder.embed_positions.weight"),
    ),
    (_by_name(cases.T5, "1.0"), "attention scaled", _scaled(r"\.q\.weight", 8**-0.5)),
    (
        _by_name(cases.T5, "1.0"),
        "biases of the sides swapped",
        _swapped(
            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
            "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        ),
    ),
    (
        _by_name(cases.T5, "1.1"),
        "gate and linear swapped",
        _swapped("wi_0", "wi_1"),
    ),
    (
        _by_name(cases.MOONSHINE, "plain"),
        "gate and linear swapped",
        lambda state: {name: t.roll(40, 0) if len(t) == 80 else t for name, t in state.items()},
    ),
)


@pytest.mark.parametrize(
    ("case", "change"), [(c, f) for c, _, f in WEIGHTS], ids=[f"{c.model_type}: {what}" for c, what, _ in WEIGHTS]
)
def test_every_mixed_up_tensor_is_noticed(case: Case, change: Callable[[State], State]) -> None:
    made = checkpoint(case)
    assert _differs(case, made, case.raw, change(made.state))


class LatePositions(Run):
    """After the first step, positions are one too many."""

    def step(self, spans: Sequence[tuple[int, int]]) -> StepInput:
        step = super().step(spans)
        return replace(step, positions=step.positions + any(start for start, _ in spans))


class OthersRows(Run):
    """Each sequence reads another's encoder rows."""

    def step(self, spans: Sequence[tuple[int, int]]) -> StepInput:
        step = super().step(spans)
        self.cross_blocks, self.rows = np.roll(self.cross_blocks, 1, axis=0), [self.rows[-1], *self.rows[:-1]]
        cross = super().step(spans).groups["cross"]
        return replace(step, groups={**step.groups, "cross": cross})


@pytest.mark.parametrize(
    ("case", "broken"),
    [(case, OthersRows) for case in SHALLOW]
    + [(case, LatePositions) for case in SHALLOW if case.model_type != "t5"],  # T5's positions are the kernel's
    ids=lambda value: value.model_type if isinstance(value, Case) else value.__name__,
)
def test_a_wrong_step_is_noticed(case: Case, broken: type[Run]) -> None:
    made = checkpoint(case)
    loaded = load(find(case.model_type), case.raw, made.state)
    decoder = [tokens[:8] for tokens in made.decoder]
    with torch.inference_mode():
        batch = broken(loaded, made.sources, decoder)
        logits = batch.decode(2)
    expected = [rows[:8] for rows in made.expected.logits]
    assert difference(Result(batch.encoded, logits), Result(made.expected.encoded, expected)) > 2 * TOLERANCE


@pytest.mark.parametrize("wrong", ["unshifted", "unmasked"])
def test_wrong_windows_are_noticed(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = _by_name(cases.SEEING, "Donut")
    if wrong == "unshifted":
        monkeypatch.setattr(windowed, "Windows", lambda height, width, size, shift: Windows(height, width, size, 0))
    else:
        monkeypatch.setattr(Windows, "blocks", lambda windows, bias: [(slice(None), slice(None), bias)])
    assert _differs(case, checkpoint(case), case.raw, checkpoint(case).state)
