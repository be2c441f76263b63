"""The engine's greedy tokens and log-probabilities are transformers' generate()'s, in ragged batches of all sizes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import Answer, Ask, asks, engine, greedy, request, run, start
from tests.models import cases
from tests.models.tiny import Case, checkpoint

TIE = 1e-5
EACH = (cases.BART[0], cases.T5[2], cases.MARIAN[3], cases.WHISPER[0], cases.MOONSHINE[12])


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


def check(case: Case, ask: Ask, answer: Answer) -> int:
    """Compare token by token up to a tie of transformers' two best; returns the tokens compared."""
    tokens, scores = greedy(case, ask)
    for at, (token, row) in enumerate(zip(tokens, scores, strict=True)):
        reported = answer.logprobs[at]
        assert reported.logprob == pytest.approx(row.log_softmax(-1)[reported.token].item(), abs=1e-4)
        best = row.topk(2).values
        if best[0] - best[1] < TIE:
            return at
        assert answer.tokens[at] == token, (at, answer.tokens, tokens)
    assert len(answer.tokens) == ask.tokens
    return ask.tokens


@pytest.mark.parametrize("case", cases.ALL, ids=lambda case: f"{case.model_type}, {case.name}")
def test_greedy_is_generates(case: Case, parent: Path) -> None:
    made = checkpoint(case)
    wanted = asks(made, start(case), 6, seed=len(case.name))
    loaded = engine(case, parent)
    answers = run(loaded.engine, [request(made, ask, str(i)) for i, ask in enumerate(wanted)])
    compared = sum(check(case, ask, answers[str(i), 0]) for i, ask in enumerate(wanted))
    assert compared > 0.9 * sum(ask.tokens for ask in wanted)


@pytest.mark.parametrize("case", EACH, ids=str)
@pytest.mark.parametrize("count", [1, 7, 64])
def test_batches_of_all_sizes(case: Case, count: int, parent: Path) -> None:
    made = checkpoint(case)
    wanted = asks(made, start(case), count, seed=count)
    tight: dict[str, Any] = {"kv_cache_bytes": 160 << 10, "max_num_batched_tokens": 7, "max_encode_tokens": 20}
    for options in ({}, tight):
        loaded = engine(case, parent, **options)
        answers = run(loaded.engine, [request(made, ask, str(i), salt=str(i)) for i, ask in enumerate(wanted)])
        for i, ask in enumerate(wanted):
            check(case, ask, answers[str(i), 0])


@pytest.mark.parametrize("case", EACH, ids=str)
def test_the_oracle_could_tell(case: Case) -> None:
    """Sources and prompts make a difference: at default initialisation one token would repeat."""
    made = checkpoint(case)
    wanted = asks(made, start(case), 24, seed=24)
    answers = [(ask, greedy(case, ask)) for ask in wanted]
    assert len({token for _, (tokens, _) in answers for token in tokens}) >= 6
    for ask, (_, scores) in answers:
        other = greedy(case, replace(ask, source=(ask.source + 1) % len(made.sources)))[1]
        assert (scores[0] - other[0]).abs().max() > 0.1
