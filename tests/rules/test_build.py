"""Finding rules by name, and what is refused."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from transduce.core.request import RuleSpec
from transduce.errors import RequestError
from transduce.rules import build
from transduce.rules.base import LogitsRule

CPU = torch.device("cpu")


class FamilyRule(LogitsRule[None]):
    name = "family_rule"
    rank = 200

    def __init__(self, vocab_size: int, device: torch.device, token: int) -> None:
        self.token = token

    def state(self) -> None:
        return None

    def advance(self, state: None, token: int) -> None:
        return None

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[None]) -> None:
        scores[list(rows), self.token] = -torch.inf


def test_a_family_brings_its_own_rules() -> None:
    spec = RuleSpec("family_rule", (3,))
    rule = build(spec, 10, CPU, [FamilyRule])
    assert isinstance(rule, FamilyRule)
    assert rule.token == 3
    with pytest.raises(RequestError, match=r"no logits rule 'family_rule'; the rules are allowed_tokens, bad_words"):
        build(spec, 10, CPU)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (RuleSpec("repetition_penalty", (0.0,)), r"repetition_penalty is 0.0; give a finite number above 0"),
        (RuleSpec("repetition_penalty", (float("inf"),)), r"repetition_penalty is inf; give"),
        (RuleSpec("repetition_penalty", (float("nan"),)), r"repetition_penalty is nan; give"),
        (RuleSpec("frequency_penalty", (float("nan"), 1)), r"frequency_penalty is nan; give a finite number"),
        (RuleSpec("presence_penalty", (0.5, -1)), r"presence_penalty's prompt length is -1; give .* at least 0"),
        (RuleSpec("logit_bias", (((10, 1.0),),)), r"logit_bias has token id 10; ids go from 0 to 9"),
        (RuleSpec("logit_bias", (((3, float("-inf")),),)), r"logit_bias of token 3 is -inf; give a finite"),
        (RuleSpec("allowed_tokens", ((),)), r"allowed_tokens is empty; give at least one token id"),
        (RuleSpec("allowed_tokens", ((-1,),)), r"allowed_tokens has token id -1"),
        (RuleSpec("choices", (((1,), ()), (2,), 0)), r"choices is empty; give at least one token id"),
        (RuleSpec("choices", (((1, 99),), (2,), 0)), r"choices has token id 99; ids go from 0 to 9"),
        (RuleSpec("no_repeat_ngram", (0,)), r"no_repeat_ngram is 0; give a whole number of at least 1"),
        (RuleSpec("encoder_no_repeat_ngram", (0, (1,))), r"encoder_no_repeat_ngram is 0; give a whole number of at"),
        (RuleSpec("bad_words", (((1,), ()),)), r"bad_words is empty; give at least one token id"),
        (RuleSpec("bad_words", (((1, 99),),)), r"bad_words has token id 99; ids go from 0 to 9"),
        (RuleSpec("min_tokens", (-2, (1,))), r"min_tokens's length is -2; give"),
        (RuleSpec("forced_bos", (10,)), r"forced_bos has token id 10; ids go from 0 to 9"),
        (RuleSpec("forced_eos", (5, ())), r"forced_eos is empty; give"),
    ],
)
def test_bad_arguments_are_refused_with_value_and_fix(spec: RuleSpec, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        build(spec, 10, CPU)
