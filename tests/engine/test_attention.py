"""What heads look at, told beside log-probabilities: transformers' cross_attentions, however the prompt is cut up."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.engine.support import Ask, engine, oracle, request, run
from tests.models.tiny import Case, checkpoint
from transduce.core.output import Output
from transduce.core.request import Attention, Request, Scored, Stopping
from transduce.engine import Engine

CASE = Case("whisper", "attention", {"decoder_layers": 3, "encoder_layers": 1})
HEADS = ((0, 2), (2, 0), (2, 1))
AMONG = 40
EXACT = 1e-5


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attention")


def asked(source: int, rows: int, name: str) -> Request:
    """A prompt of 15 tokens of which nothing comes; its tokens from the third on are told."""
    made = checkpoint(CASE)
    ids = tuple(made.decoder[2])
    targets = tuple(token for token in ids[2:-1] if token < AMONG)
    scored = Scored(2, targets=targets, among=AMONG, attention=Attention(HEADS, rows))
    return replace(request(made, Ask(source, ids, 0), name), stopping=Stopping(0), scored=scored)


def told(of: Engine, *requests: Request) -> dict[str, Output]:
    """What the engine says of each request, all steps in one."""
    outputs: dict[str, Output] = {}
    for each in requests:
        of.add(each)
    while of.unfinished:
        for output in of.step():
            outputs.setdefault(output.request_id, Output(output.request_id)).extend(output)
    return outputs


@torch.no_grad()
def expected(asking: Request, source: int) -> tuple[npt.NDArray[np.float32], list[float]]:
    """Weights over all encoder rows, and the log-probabilities."""
    features = checkpoint(CASE).sources[source].features
    assert features is not None
    model: Any = oracle(CASE)
    model.set_attn_implementation("eager")
    ids = torch.tensor([asking.prompt[:-1]])
    out = model(input_features=features[None], decoder_input_ids=ids, output_attentions=True)
    weights = torch.stack([out.cross_attentions[layer][0, head] for layer, head in HEADS])
    logprobs = out.logits[0, 1 : 1 + len(asking.targets), :AMONG].log_softmax(-1)
    return weights.numpy(), [float(line[token]) for line, token in zip(logprobs, asking.targets, strict=True)]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"attention_backend": "reference"}, EXACT),
        ({"attention_backend": "sdpa", "max_num_batched_tokens": 4}, EXACT),
        ({"attention_backend": "native", "max_num_batched_tokens": 4}, EXACT),
        ({"kv_cache_dtype": "int8"}, 0.1),
    ],
    ids=["reference", "sdpa in chunks", "native in chunks", "int8 pages"],
)
def test_attention_is_that_of_transformers(options: Mapping[str, Any], error: float, parent: Path) -> None:
    of = engine(CASE, parent, **options).engine
    requests = [asked(0, 12, "whole"), asked(1, 7, "part")]
    outputs = told(of, *requests)
    for source, each in enumerate(requests):
        weights, logprobs = expected(each, source)
        rows = each.attention.rows if each.attention else 0
        among = weights[..., :rows] / weights[..., :rows].sum(-1, keepdims=True)
        found = np.concatenate(outputs[each.request_id].weights, axis=1)
        assert found.shape == (3, 14, rows)
        assert np.abs(found - among).max() < error
        assert np.abs([one.logprob for one in outputs[each.request_id].scored] - np.array(logprobs)).max() < 30 * error
    assert np.abs(weights[0] - weights[1]).max() > 0.2, "any head would do"


def test_it_costs_nobody_else_a_bit(parent: Path) -> None:
    """Neither tokens, log-probabilities nor graphs."""
    others = [request(checkpoint(CASE), Ask(source, (2, 5), 6), f"other {source}") for source in range(3)]
    alone, among = (engine(CASE, parent).engine for _ in range(2))
    answers = run(among, [asked(0, 12, "asked"), *others])
    assert run(alone, others) == {key: answer for key, answer in answers.items() if key[0] != "asked"}
    assert among.runner.graphs.replays == alone.runner.graphs.replays
