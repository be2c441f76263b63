"""Rule states: persistent under forks and roll-backs, and the containers that make them so."""

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from transduce.core.request import RuleSpec
from transduce.rules import build, radix
from transduce.rules.history import History

CPU = torch.device("cpu")
VOCAB = 9

SPECS = [
    RuleSpec("repetition_penalty", (1.7,)),
    RuleSpec("frequency_penalty", (0.4, 1)),
    RuleSpec("presence_penalty", (0.4, 1)),
    RuleSpec("no_repeat_ngram", (1,)),
    RuleSpec("no_repeat_ngram", (3,)),
    RuleSpec("no_repeat_ngram", (200,)),
    RuleSpec("encoder_no_repeat_ngram", (1, (4, 5))),
    RuleSpec("encoder_no_repeat_ngram", (2, (0, 1, 2, 1, 3, 8, 4, 4, 5, 6, 7, 0))),
    RuleSpec("bad_words", (((1, 2), (3,), (0, 1, 4)),)),
    RuleSpec("min_tokens", (20, (2,))),
    RuleSpec("begin_suppress_tokens", (25, (2,))),
    RuleSpec("forced_eos", (30, (2,))),
    RuleSpec("logit_bias", (((1, 0.5),),)),
    RuleSpec("choices", (((1, 2), (1, 2, 3), (4,)), (0,), 2)),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.name}{spec.args}")
def test_any_old_state_goes_on_as_if_it_were_alone(spec: RuleSpec) -> None:
    choices = random.Random(str(spec))
    rule = build(spec, VOCAB, CPU)
    grown: list[tuple[Any, tuple[int, ...]]] = [(rule.state(), ())]
    for _ in range(300):
        state, past = choices.choice(grown[-12:])
        token = choices.randrange(VOCAB + 2)  # the last two stand in prompts only
        grown.append((rule.advance(state, token), (*past, token)))

    scores = torch.randn(len(grown), VOCAB, generator=torch.Generator().manual_seed(0))
    before, expected = scores.clone(), scores.clone()
    rule.apply(range(len(grown)), scores, [state for state, _ in grown])
    idle = [row for row, (state, _) in enumerate(grown) if not rule.holds(state)]
    assert torch.equal(scores[idle], before[idle])
    fresh = build(spec, VOCAB, CPU)
    for row, (_, past) in enumerate(grown):
        state = fresh.state()
        for token in past:
            state = fresh.advance(state, token)
        fresh.apply([row], expected, [state])
    assert torch.equal(scores, expected)


def test_the_newest_history_extends_in_place_and_a_second_branch_copies() -> None:
    root = History()
    for token in range(5):
        root = root.append(token)
    first, second = root.append(10), root.append(20)
    assert np.shares_memory(root.tokens, first.tokens)
    assert not np.shares_memory(root.tokens, second.tokens)
    assert first.append(11).tokens.tolist() == [0, 1, 2, 3, 4, 10, 11]
    assert second.append(21).tokens.tolist() == [0, 1, 2, 3, 4, 20, 21]
    assert root.tokens.tolist() == [0, 1, 2, 3, 4]


def test_a_history_that_only_grows_is_rarely_copied() -> None:
    states = [History()]
    for token in range(4000):
        states.append(states[-1].append(token))
    copies = sum(earlier.log is not later.log for earlier, later in pairwise(states))
    assert copies < 10
    assert states[3000].tokens.tolist() == list(range(3000))


def test_long_ngrams_that_differ_in_their_first_token_alone_are_told_apart() -> None:
    rule = build(RuleSpec("no_repeat_ngram", (500,)), VOCAB, CPU)
    state = rule.state()
    for token in [1, *[2] * 499, 3, *[2] * 498]:
        state = rule.advance(state, token)
    scores = torch.zeros(2, VOCAB)
    rule.apply([0, 1], scores, [state, rule.advance(state, 2)])
    assert [row.isinf().nonzero().flatten().tolist() for row in scores] == [[], [3]]


def test_versions_of_a_radix_map_are_dictionaries_of_their_own() -> None:
    choices = random.Random(0)
    versions: list[tuple[radix.Map[int], dict[int, int]]] = [(None, {})]
    keys = [choices.getrandbits(choices.choice((3, 12, 70))) for _ in range(60)] + [0, 16, 256, 1 << 64]
    for value in range(600):
        trie, model = choices.choice(versions[-20:])
        key = choices.choice(keys)
        versions.append((radix.put(trie, key, value), {**model, key: value}))
    for trie, model in versions:
        assert [radix.get(trie, key) for key in keys] == [model.get(key) for key in keys]


def test_a_put_copies_one_path_only() -> None:
    trie: radix.Map[int] = None
    for key in range(1 << 12):
        trie = radix.put(trie, key, key)
    changed = radix.put(trie, 5, -1)
    assert isinstance(trie, radix.Branch)
    assert isinstance(changed, radix.Branch)
    shared = [old is new for old, new in zip(trie.slots, changed.slots, strict=True)]
    assert shared.count(False) == 1
