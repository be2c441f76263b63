"""The rule of choices: what it allows at every node of its tree."""

import pytest
import torch

from transduce.core.request import RuleSpec
from transduce.rules import build

CPU = torch.device("cpu")
EOS, OTHER_EOS, BOS = 0, 1, 2
CHOICES = ((3, 4), (3, 4, 5), (6,))


@pytest.mark.parametrize(
    ("tokens", "allowed"),
    [
        ((7, 7), {3, 6}),
        ((7, 7, BOS), {3, 6}),
        ((7, 7, 3), {4}),
        ((7, 7, 3, 4), {5, EOS, OTHER_EOS}),
        ((7, 7, 3, 4, 5), {EOS, OTHER_EOS}),
        ((3, 4, 6), {EOS, OTHER_EOS}),
    ],
)
def test_only_what_goes_on_in_a_choice_or_ends_it(tokens: tuple[int, ...], allowed: set[int]) -> None:
    """After two tokens of the prompt, whatever they are; no other row is touched."""
    rule = build(RuleSpec("choices", (CHOICES, (EOS, OTHER_EOS), 2)), 8, CPU)
    state = rule.state()
    for token in tokens:
        state = rule.advance(state, token)
    scores = torch.arange(24.0).view(3, 8)
    before = scores.clone()
    rule.apply([1], scores, [state])
    kept = {*scores[1].isfinite().nonzero().flatten().tolist()}
    assert kept == allowed
    assert torch.equal(scores[[0, 2]], before[[0, 2]])
    assert torch.equal(scores[1, [*kept]], before[1, [*kept]])
