"""Beam search gives transformers' hypotheses and scores, whatever else is in the batch."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig, GenerationMixin

from tests.engine.support import Answer, Ask, asks, engine, oracle, request, run, sampled, start, tight
from tests.models import cases
from tests.models.tiny import Case, checkpoint
from transduce.core.request import Beams, EarlyStopping, RuleSpec, Sampling

FAMILIES = (cases.BART[0], cases.T5[2], cases.MARIAN[3], cases.WHISPER[0])
EARLY: tuple[EarlyStopping, ...] = (False, True, "never")
ENDS = frozenset(range(3, 12))


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@dataclass(frozen=True, eq=False)
class Asked:
    """A beam request, and the generation config that asks transformers for the same."""

    ask: Ask
    config: Mapping[str, Any] = field(default_factory=dict)


def asked(
    ask: Ask, width: int, beams: Beams, rules: tuple[RuleSpec, ...] = (), eos: frozenset[int] = ENDS, **config: Any
) -> Asked:
    return Asked(replace(ask, width=width, beams=beams, rules=rules, eos=eos), config)


@torch.no_grad()
def searched(case: Case, each: Asked) -> list[Answer]:
    """transformers' answers."""
    ask, made = each.ask, checkpoint(case)
    source, beams = made.sources[ask.source], ask.beams
    assert beams is not None
    model = oracle(case)
    result = GenerationMixin.generate(  # not Whisper's own, which decides on the prompt
        model,
        **{model.main_input_name: source.given[None]},
        decoder_input_ids=torch.tensor([ask.prompt]),
        generation_config=GenerationConfig(
            decoder_start_token_id=ask.prompt[0],
            pad_token_id=0,
            eos_token_id=sorted(ask.eos) or None,
            max_new_tokens=ask.tokens,
            num_beams=ask.width,
            num_return_sequences=beams.answers,
            length_penalty=beams.length_penalty,
            early_stopping=beams.early_stopping,
            output_scores=True,
            return_dict_in_generate=True,
            **each.config,
        ),
    )
    tokens = [until(row, ask.eos) for row in result.sequences[:, len(ask.prompt) :].tolist()]
    return [Answer(row, [], score) for row, score in zip(tokens, result.sequences_scores.tolist(), strict=True)]


def until(tokens: list[int], ends: frozenset[int]) -> list[int]:
    """The tokens up to the first that ends them."""
    at = next((i for i, token in enumerate(tokens, 1) if token in ends), len(tokens))
    return tokens[:at]


def check(case: Case, wanted: list[Asked], parent: Path, **options: Any) -> None:
    """All in one batch, against each alone by transformers."""
    made = checkpoint(case)
    requests = [request(made, replace(each.ask, logprobs=None), str(i)) for i, each in enumerate(wanted)]
    answers = run(engine(case, parent, **options).engine, requests)
    for i, each in enumerate(wanted):
        expected = searched(case, each)
        given = [answers[str(i), index] for index in range(len(expected))]
        assert [answer.tokens for answer in given] == [answer.tokens for answer in expected], each
        for ours, theirs in zip(given, expected, strict=True):
            assert ours.score == pytest.approx(theirs.score, rel=1e-4, abs=1e-4)


def ragged(case: Case, count: int, seed: int) -> list[Ask]:
    return asks(checkpoint(case), start(case), count, seed, 12)


@pytest.mark.parametrize("early", EARLY)
@pytest.mark.parametrize("case", FAMILIES, ids=lambda case: case.model_type)
def test_widths_and_length_penalties(case: Case, early: EarlyStopping, parent: Path) -> None:
    rng = np.random.default_rng(5)
    widths = [2, 3, 4, 7, 16, 2, 5, 4]
    penalties = [1.0, 0.0, 2.0, -1.0, 0.6, -2.0, 1.0, 1.5]
    wanted = [
        asked(ask, width, Beams(penalty, early, int(rng.integers(1, width + 1))))
        for ask, width, penalty in zip(ragged(case, 8, 3), widths, penalties, strict=True)
    ]
    check(case, wanted, parent)


@pytest.mark.parametrize(("case", "ends"), [(cases.T5[2], 12), (cases.MARIAN[3], 40), (cases.WHISPER[0], 40)])
def test_each_way_to_end_early_is_its_own(case: Case, ends: int, parent: Path) -> None:
    """Long answers that may end often, with a penalty for the short ones: the three ways differ in what they find."""
    tails = [Ask(source, (start(case),), 28) for source in range(4)]
    eos, beams = frozenset(range(2, ends)), Beams(1.5, answers=2)
    ways = [[asked(ask, 2, replace(beams, early_stopping=early), eos=eos) for ask in tails] for early in EARLY]
    found = [[[answer.tokens for answer in searched(case, each)] for each in way] for way in ways]
    assert len({str(answers) for answers in found}) == len(EARLY)
    check(case, [each for way in ways for each in way], parent)


@pytest.mark.parametrize("eos", [frozenset(), frozenset({7}), frozenset(range(2, 50))], ids=["never", "rare", "always"])
@pytest.mark.parametrize("case", FAMILIES, ids=lambda case: case.model_type)
def test_how_often_something_ends(case: Case, eos: frozenset[int], parent: Path) -> None:
    wanted = [asked(ask, 4, Beams(1.0, EARLY[i % 3], 4), eos=eos) for i, ask in enumerate(ragged(case, 6, 9))]
    check(case, wanted, parent)


def ruled(ask: Ask) -> list[Asked]:
    """The ask under one rule each, and under most at once."""
    prompt, longest, width, beams = len(ask.prompt), len(ask.prompt) + ask.tokens, 4, Beams(1.0, False, 4)
    ends, least = tuple(sorted(ENDS)), len(ask.prompt) + 5
    rules: dict[str, tuple[tuple[object, ...], dict[str, Any]]] = {
        "no_repeat_ngram": ((2,), {"no_repeat_ngram_size": 2}),
        "repetition_penalty": ((1.7,), {"repetition_penalty": 1.7}),
        "min_tokens": ((least, ends), {"min_length": least}),
        "suppress_tokens": (((5, 13, 21),), {"suppress_tokens": [5, 13, 21]}),
        "begin_suppress_tokens": ((prompt, (14, 15, 4)), {"begin_suppress_tokens": [14, 15, 4]}),
        "bad_words": ((((20,), (6, 7)), ends), {"bad_words_ids": [[20], [6, 7]]}),
        "forced_eos": ((longest, (3,)), {"forced_eos_token_id": 3}),
        "forced_bos": ((17,), {"forced_bos_token_id": 17}),
    }
    specs = {name: RuleSpec(name, args) for name, (args, _) in rules.items()}
    alone = [asked(ask, width, beams, (specs[name],), **config) for name, (_, config) in rules.items()]
    several = tuple(spec for name, spec in specs.items() if name not in {"bad_words", "forced_bos"})
    config = {field: value for spec in several for field, value in rules[spec.name][1].items()}
    return [*alone, asked(ask, width, beams, several, **config)]


@pytest.mark.parametrize("case", FAMILIES, ids=lambda case: case.model_type)
def test_rules_edit_log_probabilities(case: Case, parent: Path) -> None:
    first = Ask(1, (start(case),), 12)
    check(case, [*ruled(first), *ruled(replace(ragged(case, 1, 4)[0], tokens=9))], parent)


@pytest.mark.parametrize(("vocab", "width"), [(20, 16), (8, 16), (8, 5)])
def test_vocabularies_smaller_than_twice_the_width(vocab: int, width: int, parent: Path) -> None:
    case = Case("t5", f"vocabulary {vocab}", {"vocab_size": vocab})
    wanted = [
        asked(ask, width, Beams(1.0, early, width), eos=frozenset({1}))
        for ask in ragged(case, 3, 2)
        for early in (False, "never")
    ]
    check(case, wanted, parent)


@torch.no_grad()
def test_drawn_beams_are_distributed_as_transformers(parent: Path) -> None:
    case, count, width, tokens = Case("t5", "vocabulary 6", {"vocab_size": 6}), 3000, 2, 3
    made, sampling = checkpoint(case), Sampling(5.0, 5, 0.97, 0.0, 0, keep=2)
    asks = [Ask(0, (0,), tokens, replace(sampling, seed=seed), width, None, beams=Beams()) for seed in range(count)]
    answers = run(engine(case, parent).engine, [request(made, ask, str(i)) for i, ask in enumerate(asks)])
    torch.manual_seed(0)
    config = GenerationConfig(
        decoder_start_token_id=0,
        pad_token_id=0,
        max_new_tokens=tokens,
        num_beams=width,
        do_sample=True,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
    )
    source = made.sources[0].tokens.expand(count, -1)
    rows = GenerationMixin.generate(oracle(case), source, generation_config=config)
    theirs = Counter(map(tuple, rows[:, 1:].tolist()))
    ours = Counter(tuple(answer.tokens) for answer in answers.values())
    common = [tokens for tokens in theirs | ours if theirs[tokens] + ours[tokens] >= 20]
    differences = [(theirs[each] - ours[each]) ** 2 / (theirs[each] + ours[each]) for each in common]
    assert len(common) > 15
    assert sum(differences) < chi_square_999(len(common))


def chi_square_999(freedom: int) -> float:
    """The 99.9 % point of chi-square, after Wilson and Hilferty."""
    return float(freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3)


def mixture(case: Case, count: int, seed: int) -> list[Ask]:
    """Beams of all kinds, drawn ones too, beside greedy and sampled requests, some under a rule."""
    rng = np.random.default_rng(seed)
    mixed = []
    for i, ask in enumerate(asks(checkpoint(case), start(case), count, seed)):
        width = int(rng.integers(1, 6))
        beams = Beams(float(rng.choice([0.0, 1.0, 2.0])), EARLY[i % 3], int(rng.integers(1, width + 1)))
        each = [ask, sampled(ask, i, width), replace(ask, width=width, beams=beams, eos=ENDS)][(i + seed) % 3]
        if each.beams and i % 2:
            each = sampled(each, i, width)
            assert each.sampling is not None
            each = replace(each, sampling=replace(each.sampling, keep=10))
        mixed.append(replace(each, rules=(RuleSpec("no_repeat_ngram", (2,)),)) if rng.random() < 0.3 else each)
    return mixed


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("case", FAMILIES, ids=lambda case: case.model_type)
def test_bitwise_the_same_alone_and_in_pools_that_preempt(case: Case, seed: int, parent: Path) -> None:
    made, wanted = checkpoint(case), mixture(case, 8, seed)
    requests = [request(made, each, str(i), salt=str(i)) for i, each in enumerate(wanted)]
    roomy = engine(case, parent).engine
    expected: dict[tuple[str, int], Answer] = {}
    for each in requests:
        expected |= run(roomy, [each])
    small = engine(case, parent, **tight(case, wanted, 8 * 4, np.random.default_rng(seed))).engine
    assert run(small, requests) == expected
    assert small.scheduler.cache.evict(small.scheduler._pool.capacity), "blocks leaked"


@pytest.mark.parametrize("case", FAMILIES, ids=lambda case: case.model_type)
def test_preempted_beams_go_on_where_they_were(case: Case, parent: Path) -> None:
    made = checkpoint(case)
    ask = replace(ragged(case, 1, 0)[0], tokens=16, width=4, beams=Beams(answers=4), prompt=(start(case),))
    requests = [request(made, ask, name, salt=name) for name in "abcd"]
    (expected,) = [[run(engine(case, parent).engine, requests[:1])["a", i] for i in range(4)]]
    small = engine(case, parent, **tight(case, [ask], 8 * 4, np.random.default_rng(0))).engine
    answers = run(small, requests)
    assert all(answers[name, i] == expected[i] for name in "abcd" for i in range(4))
    assert small.scheduler.counters.preemptions > 0
