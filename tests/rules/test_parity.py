"""Every rule against the transformers processor of the same meaning, over random histories and arguments."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.generation import logits_process as oracle

from transduce.core.request import RuleSpec
from transduce.errors import RequestError
from transduce.rules import Rule, build

CPU = torch.device("cpu")
Processor = Callable[[Tensor, Tensor], Tensor]
Case = tuple[RuleSpec, Processor]


def replay(rule: Rule, tokens: Sequence[int]) -> Any:
    state = rule.state()
    for token in tokens:
        state = rule.advance(state, token)
    return state


class Draws:
    """Random numbers for one trial."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.vocab = self.number(3, 40)

    def number(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=self.generator))

    def real(self, low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand(1, generator=self.generator))

    def tokens(self, count: int, vocab: int | None = None) -> tuple[int, ...]:
        return tuple(torch.randint(0, vocab or self.vocab, (count,), generator=self.generator).tolist())

    def scores(self, rows: int) -> Tensor:
        scores = 5 * torch.randn(rows, self.vocab, generator=self.generator)
        dead = torch.rand(rows, self.vocab, generator=self.generator) < 0.1
        return scores.masked_fill(dead, -torch.inf)


def repetition_penalty(draws: Draws) -> Case:
    penalty = draws.real(0.5, 3)
    return RuleSpec("repetition_penalty", (penalty,)), oracle.RepetitionPenaltyLogitsProcessor(penalty)


def logit_bias(draws: Draws) -> Case:
    biases = tuple((token, draws.real(-5, 5)) for token in sorted(set(draws.tokens(4))))
    reference = oracle.SequenceBiasLogitsProcessor([[[token], bias] for token, bias in biases])
    return RuleSpec("logit_bias", (biases,)), reference


def allowed_tokens(draws: Draws) -> Case:
    ids = draws.tokens(draws.number(1, 6))
    constrained = oracle.PrefixConstrainedLogitsProcessor(lambda batch, tokens: list(ids), 1)

    def reference(tokens: Tensor, scores: Tensor) -> Tensor:
        # Where another rule has forbidden all of them, transformers allows them again; a forbidden token stays so.
        return torch.minimum(constrained(tokens, scores), scores)

    return RuleSpec("allowed_tokens", (ids,)), reference


def suppress_tokens(draws: Draws) -> Case:
    ids = draws.tokens(draws.number(0, 6), draws.vocab + 3)
    return RuleSpec("suppress_tokens", (ids,)), oracle.SuppressTokensLogitsProcessor(ids)


def begin_suppress_tokens(draws: Draws) -> Case:
    index, ids = draws.number(1, 6), draws.tokens(3, draws.vocab + 3)
    return (
        RuleSpec("begin_suppress_tokens", (index, ids)),
        oracle.SuppressTokensAtBeginLogitsProcessor(ids, index),
    )


def no_repeat_ngram(draws: Draws) -> Case:
    size = draws.number(1, 4)
    return RuleSpec("no_repeat_ngram", (size,)), oracle.NoRepeatNGramLogitsProcessor(size)


def encoder_no_repeat_ngram(draws: Draws) -> Case:
    size, source = draws.number(1, 3), draws.tokens(draws.number(1, 12), min(6, draws.vocab))
    reference = oracle.EncoderNoRepeatNGramLogitsProcessor(size, torch.LongTensor([source]))
    return RuleSpec("encoder_no_repeat_ngram", (size, source)), reference


def prefix_allowed_tokens(draws: Draws) -> Case:
    ids, place = draws.tokens(draws.number(2, 6)), draws.number(0, 3)

    def allowed(place: int, tokens: Tensor) -> list[int]:
        return list(ids[: 1 + (place + len(tokens) + int(tokens[-1])) % len(ids)])

    constrained = oracle.PrefixConstrainedLogitsProcessor(lambda batch, tokens: allowed(place, tokens), 1)

    def reference(tokens: Tensor, scores: Tensor) -> Tensor:
        return torch.minimum(constrained(tokens, scores), scores)  # as with allowed_tokens

    return RuleSpec("prefix_allowed_tokens_fn", (allowed, place)), reference


def renormalize(draws: Draws) -> Case:
    return RuleSpec("renormalize"), oracle.LogitNormalization()


def bad_words(draws: Draws) -> Case:
    eos = draws.tokens(2)
    words = [list(draws.tokens(draws.number(1, 3), 4 if draws.vocab > 4 else None)) for _ in range(12)]
    words += [[eos[0]], [*eos]]
    reference = oracle.NoBadWordsLogitsProcessor(words, list(eos))
    return RuleSpec("bad_words", (tuple(map(tuple, words)), eos)), reference


def min_length(draws: Draws) -> Case:
    length, ids = draws.number(0, 8), draws.tokens(2, draws.vocab + 2)
    return RuleSpec("min_tokens", (length, ids)), oracle.MinLengthLogitsProcessor(length, list(ids))


def min_new_tokens(draws: Draws) -> Case:
    prompt, count, ids = draws.number(1, 3), draws.number(0, 5), draws.tokens(2)
    reference = oracle.MinNewTokensLengthLogitsProcessor(prompt, count, list(ids))
    return RuleSpec("min_tokens", (prompt + count, ids)), reference


def forced_bos(draws: Draws) -> Case:
    (token,) = draws.tokens(1)
    return RuleSpec("forced_bos", (token,)), oracle.ForcedBOSTokenLogitsProcessor(token)


def forced_eos(draws: Draws) -> Case:
    length, ids = draws.number(1, 8), draws.tokens(draws.number(1, 2))
    return RuleSpec("forced_eos", (length, ids)), oracle.ForcedEOSTokenLogitsProcessor(length, list(ids))


CASES = [
    repetition_penalty,
    logit_bias,
    allowed_tokens,
    suppress_tokens,
    begin_suppress_tokens,
    no_repeat_ngram,
    encoder_no_repeat_ngram,
    bad_words,
    min_length,
    min_new_tokens,
    forced_bos,
    forced_eos,
    prefix_allowed_tokens,
    renormalize,
]


def histories(draws: Draws, count: int) -> list[tuple[int, ...]]:
    """Some long ones over few tokens, so that sequences repeat, and one that holds ids without a score."""
    few = [draws.tokens(draws.number(1, 30), min(4, draws.vocab)) for _ in range(count - 3)]
    return [*few, draws.tokens(1), draws.tokens(draws.number(2, 8)), draws.tokens(8, draws.vocab + 4)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(25))
def test_edits_its_rows_as_transformers_does_and_no_other(case: Callable[[Draws], Case], seed: int) -> None:
    draws = Draws(seed)
    spec, reference = case(draws)
    rule = build(spec, draws.vocab, CPU)
    before = draws.scores(12)
    rows = sorted(torch.randperm(12, generator=draws.generator)[:7].tolist(), reverse=True)
    pasts = histories(draws, len(rows))

    after = before.clone()
    rule.apply(rows, after, [replay(rule, past) for past in pasts])

    expected = before.clone()
    for row, past in zip(rows, pasts, strict=True):
        expected[row] = reference(torch.tensor([past]), before[row : row + 1].clone())[0]
    assert torch.equal(after, expected)


@pytest.mark.parametrize("case", CASES)
def test_trials_are_not_vacuous(case: Callable[[Draws], Case]) -> None:
    changed = 0
    for seed in range(25):
        draws = Draws(seed)
        spec, _ = case(draws)
        rule = build(spec, draws.vocab, CPU)
        before = draws.scores(7)
        after = before.clone()
        rule.apply(range(7), after, [replay(rule, past) for past in histories(draws, 7)])
        changed += not torch.equal(after, before)
    assert changed >= 5


def test_rules_stand_in_the_order_of_transformers_processors() -> None:
    specs = [case(Draws(0)) for case in CASES if case is not min_new_tokens]
    ranked = sorted((build(spec, 40, CPU) for spec, _ in specs), key=lambda rule: rule.rank)
    assert [rule.name for rule in ranked] == [
        "logit_bias",
        "repetition_penalty",
        "no_repeat_ngram",
        "encoder_no_repeat_ngram",
        "bad_words",
        "min_tokens",
        "allowed_tokens",
        "prefix_allowed_tokens_fn",
        "forced_bos",
        "forced_eos",
        "suppress_tokens",
        "begin_suppress_tokens",
        "renormalize",
    ]


def test_sources_of_several_requests_are_looked_up_in_one_call() -> None:
    first, second = (build(RuleSpec("encoder_no_repeat_ngram", (2, source)), 9, CPU) for source in ((1, 2), (1, 3)))
    assert {first: 0} == {second: 0}
    scores = torch.zeros(2, 9)
    first.apply([0, 1], scores, [rule.advance(rule.state(), 1) for rule in (first, second)])
    assert scores.isinf().nonzero().tolist() == [[0, 2], [1, 3]]


def test_a_row_without_a_token_left_is_not_made_one_of_no_numbers() -> None:
    scores = torch.tensor([[-torch.inf] * 3, [0.0, -torch.inf, 0.0]])
    build(RuleSpec("renormalize"), 3, CPU).apply([0, 1], scores, [None, None])
    assert scores[0].tolist() == [-torch.inf] * 3
    assert scores[1].exp().tolist() == pytest.approx([0.5, 0, 0.5])


@pytest.mark.parametrize(
    "answer", [[], [-1], [2, 9], None, 5, "ab", [1.5], [True], {1}, [[1]], [[1], [1, 2]], [2**70], [1, None]]
)
def test_a_function_that_names_no_tokens_of_the_model_is_refused(answer: object) -> None:
    rule = build(RuleSpec("prefix_allowed_tokens_fn", (lambda place, tokens: answer, 0)), 9, CPU)
    with pytest.raises(
        RequestError, match=r"^the answer of prefix_allowed_tokens_fn (is empty|has token id|is .* list)"
    ):
        rule.apply([0], torch.zeros(1, 9), [replay(rule, [1])])


def test_a_function_that_raises_is_named() -> None:
    rule = build(RuleSpec("prefix_allowed_tokens_fn", (lambda place, tokens: {}[place], 0)), 9, CPU)
    with pytest.raises(RequestError, match=r"^prefix_allowed_tokens_fn raised KeyError: 0"):
        rule.apply([0], torch.zeros(1, 9), [replay(rule, [1])])


@pytest.mark.parametrize("seed", range(10))
def test_frequency_and_presence_count_output_tokens_only(seed: int) -> None:
    draws = Draws(seed)
    prompt, amount = draws.number(1, 4), draws.real(-2, 2)
    pasts = [draws.tokens(prompt + extra) for extra in (0, 1, 20)]
    before = draws.scores(3)
    counts = torch.stack(
        [torch.tensor(past[prompt:], dtype=torch.long).bincount(minlength=draws.vocab) for past in pasts]
    )
    expected = {
        "frequency_penalty": before - amount * counts,
        "presence_penalty": before - amount * (counts > 0),
    }
    for name, scores in expected.items():
        rule = build(RuleSpec(name, (amount, prompt)), draws.vocab, CPU)
        after = before.clone()
        rule.apply([0, 1, 2], after, [replay(rule, past) for past in pasts])
        assert torch.equal(after, scores)
