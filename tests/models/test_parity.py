"""Every family against transformers in fp32, over every flag, and that the comparison would notice."""

import pytest
import torch

from tests.models import cases
from tests.models.harness import TOLERANCE, difference, distinct, load, run
from tests.models.tiny import Case, checkpoint
from transduce.models.base import find

CASES = pytest.mark.parametrize("case", cases.ALL, ids=lambda case: f"{case.model_type}: {case.name}")


@CASES
def test_follows_transformers_whole_and_token_by_token(case: Case) -> None:
    made = checkpoint(case)
    loaded = load(find(case.model_type), made.raw, made.state)
    assert not loaded.weights.unknown
    for chunk in (1, 99):
        assert difference(run(loaded, made.sources, made.decoder, chunk), made.expected) < TOLERANCE


@CASES
def test_the_oracle_could_tell(case: Case) -> None:
    """It names many tokens, and its answers depend on the source."""
    made = checkpoint(case)
    assert distinct(made.expected) >= 6
    loaded = load(find(case.model_type), made.raw, made.state)
    swapped = run(loaded, made.sources[::-1], made.decoder, 99)
    for ours, theirs in zip(swapped.logits, made.expected.logits, strict=True):
        if len(ours) != 1:
            assert (ours - theirs).abs().max() > 0.1


def test_bf16_is_near() -> None:
    made = checkpoint(cases.BART[0])
    loaded = load(find("bart"), made.raw, made.state, torch.bfloat16)
    assert 1e-4 < difference(run(loaded, made.sources, made.decoder, 5), made.expected) < 0.2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", cases.ONE_EACH, ids=lambda case: case.model_type)
def test_a_sequence_has_the_same_bits_alone(case: Case, dtype: torch.dtype) -> None:
    made = checkpoint(case)
    loaded = load(find(case.model_type), made.raw, made.state, dtype)
    together = run(loaded, made.sources, made.decoder, 3)
    for i, (source, tokens) in enumerate(zip(made.sources, made.decoder, strict=True)):
        alone = run(loaded, [source], [tokens], 5)
        assert torch.equal(alone.encoded[0], together.encoded[i])
        assert torch.equal(alone.logits[0], together.logits[i])
