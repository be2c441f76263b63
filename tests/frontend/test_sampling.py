"""Precedence: the request over the checkpoint over the neutral value; and the rules that follow."""

from typing import Any

import pytest
from transformers import GenerationConfig

from tests.frontend.fakes import EOS, VOCABULARY
from transduce import rules
from transduce.core.params import GenerationParams, SamplingParams
from transduce.core.request import RuleSpec, Stopping
from transduce.errors import ConfigError, RequestError
from transduce.frontend.generation_config import Defaults
from transduce.frontend.sampling import GENERATE_TOP_K, Decoding, Resolver

PROMPT, ROOM, SOURCE = 2, 50, (5, 6, EOS)


def resolver(**defaults: Any) -> Resolver:
    return Resolver(Defaults(**{"eos": (EOS,)} | defaults), VOCABULARY, 0, lambda word: [tuple(word.encode())])


def resolve(params: GenerationParams | None = None, prompt: int = PROMPT, **defaults: Any) -> Decoding:
    return resolver(**defaults).resolve(params or SamplingParams(), prompt, ROOM, ROOM, source=SOURCE)


def drawn(params: SamplingParams, **defaults: Any) -> tuple[float, int, float, float]:
    sampling = resolve(params, **defaults).sampling
    assert sampling is not None
    return sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p


def specs(params: SamplingParams, prompt: int = PROMPT, **defaults: Any) -> dict[str, tuple[object, ...]]:
    return {spec.name: spec.args for spec in resolve(params, prompt, **defaults).rules}


def test_greedy_is_the_default_and_has_no_rules() -> None:
    decoding = resolve()
    assert decoding.sampling is None
    assert decoding.rules == ()


def test_generate_samples_from_fifty() -> None:
    assert GenerationConfig._get_default_generation_params()["top_k"] == GENERATE_TOP_K


def test_a_checkpoint_that_samples_is_sampled_as_generate_does() -> None:
    assert drawn(SamplingParams(), do_sample=True) == (1.0, GENERATE_TOP_K, 1.0, 0.0)
    named = drawn(SamplingParams(), do_sample=True, temperature=0.7, top_k=5, top_p=0.9, min_p=0.1)
    assert named == (0.7, 5, 0.9, 0.1)


def test_a_request_that_samples_takes_only_what_the_checkpoint_names() -> None:
    assert drawn(SamplingParams(temperature=0.5), do_sample=True) == (0.5, 0, 1.0, 0.0)
    assert drawn(SamplingParams(temperature=0.5), top_k=9, top_p=0.8) == (0.5, 9, 0.8, 0.0)
    assert drawn(SamplingParams(temperature=0.5, top_k=-1, top_p=1.0), top_k=9, top_p=0.8) == (0.5, 0, 1.0, 0.0)
    assert drawn(SamplingParams(n=2), temperature=0.3) == (0.3, 0, 1.0, 0.0)


def test_temperature_zero_is_greedy_though_the_checkpoint_samples() -> None:
    assert resolve(SamplingParams(temperature=0.0, top_p=0.5), do_sample=True).sampling is None


def test_seeds_are_kept_or_drawn_afresh_repeatably() -> None:
    def seeds(params: SamplingParams) -> list[int]:
        same = resolver()
        drawn = [same.resolve(params, PROMPT, ROOM, ROOM).sampling for _ in range(3)]
        return [sampling.seed for sampling in drawn if sampling is not None]

    assert seeds(SamplingParams(temperature=1.0, seed=7)) == [7, 7, 7]
    fresh = seeds(SamplingParams(temperature=1.0))
    assert len(set(fresh)) == 3
    assert fresh == seeds(SamplingParams(temperature=1.0))


@pytest.mark.parametrize(
    ("params", "match"),
    [
        (SamplingParams(n=2, temperature=0.0), "temperature > 0, or n=1"),
        (SamplingParams(top_p=0.9), "top_p=0.9 without a temperature"),
        (SamplingParams(top_k=5), "top_k=5 without a temperature"),
        (SamplingParams(min_p=0.1), "min_p=0.1 without a temperature"),
    ],
)
def test_what_greedy_decoding_would_ignore_is_refused(params: SamplingParams, match: str) -> None:
    with pytest.raises(RequestError, match=match):
        resolve(params)


def test_what_sampling_needs_and_lacks_is_refused_when_sampling() -> None:
    missing = (("typical_p", 0.9),)
    assert resolve(missing_when_sampling=missing).sampling is None
    with pytest.raises(RequestError, match=r"typical_p=0\.9"):
        resolve(SamplingParams(temperature=1.0), missing_when_sampling=missing)


@pytest.mark.parametrize(
    ("asked", "defaults", "expected"),
    [
        (None, {}, ROOM),
        (None, {"max_length": 20}, 20 - PROMPT),
        (None, {"max_length": 20, "max_new_tokens": 5}, 5),
        (7, {"max_length": 20, "max_new_tokens": 5}, 7),
        (1000, {}, ROOM),
        (None, {"max_length": 1000}, ROOM),
    ],
)
def test_length(asked: int | None, defaults: dict[str, Any], expected: int) -> None:
    decoding = resolve(SamplingParams(max_tokens=asked), forced_eos=(EOS,), **defaults)
    assert decoding.stopping.max_tokens == expected
    assert decoding.rules == (RuleSpec("forced_eos", (PROMPT + expected, (EOS,))),)


def test_a_prompt_as_long_as_the_checkpoints_max_length_is_refused() -> None:
    with pytest.raises(RequestError, match=r"max_length=20; set max_tokens"):
        resolve(prompt=20, max_length=20)


def test_without_positions_the_user_alone_bounds_an_answer() -> None:
    """What then cannot fit is refused by the engine, with the numbers, rather than cut."""
    boundless = resolver()
    asked = [boundless.resolve(SamplingParams(max_tokens=n), PROMPT, ROOM, None).stopping.max_tokens for n in (3, 999)]
    assert asked == [3, 999]
    assert boundless.resolve(SamplingParams(), PROMPT, ROOM, None).stopping.max_tokens == ROOM


def test_ends() -> None:
    stopping = resolve(SamplingParams(stop_token_ids=[9]), eos=(1, 2)).stopping
    assert stopping == Stopping(ROOM, frozenset({1, 2}), frozenset({9}))
    assert resolve(SamplingParams(ignore_eos=True)).stopping.eos == frozenset()
    assert resolve(stop_strings=("x",)).stop_strings == ("x",)
    assert resolve(SamplingParams(stop=["y", "z"]), stop_strings=("x",)).stop_strings == ("y", "z")


def test_rules_of_the_checkpoint() -> None:
    found = specs(
        SamplingParams(),
        repetition_penalty=1.2,
        no_repeat_ngram_size=3,
        encoder_no_repeat_ngram_size=2,
        bad_words=((4,), (5, 6)),
        min_length=10,
        suppress_tokens=(8,),
        begin_suppress_tokens=(9,),
    )
    assert found == {
        "repetition_penalty": (1.2,),
        "no_repeat_ngram": (3,),
        "encoder_no_repeat_ngram": (2, SOURCE),
        "bad_words": (((4,), (5, 6)), (EOS,)),
        "min_tokens": (10, (EOS,)),
        "suppress_tokens": ((8,),),
        "begin_suppress_tokens": (PROMPT, (9,)),
    }


def test_rules_of_the_request() -> None:
    params = SamplingParams(
        repetition_penalty=1.5,
        frequency_penalty=0.2,
        presence_penalty=-0.1,
        logit_bias={5: 1.0, 4: -1.0},
        bad_words=["no", [1, 2]],
        min_tokens=3,
        stop_token_ids=[9],
        allowed_token_ids=[4, 5],
    )
    assert specs(params, repetition_penalty=1.2, min_length=40) == {
        "logit_bias": (((4, -1.0), (5, 1.0)),),
        "repetition_penalty": (1.5,),
        "frequency_penalty": (0.2, PROMPT),
        "presence_penalty": (-0.1, PROMPT),
        "bad_words": (((110, 111), (1, 2)), (EOS,)),
        "min_tokens": (PROMPT + 3, (EOS, 9)),
        "allowed_tokens": ((4, 5),),
    }
    assert specs(SamplingParams(repetition_penalty=1.0), repetition_penalty=1.2) == {}


CHECKPOINT: dict[str, Any] = {
    "repetition_penalty": 1.2,
    "no_repeat_ngram_size": 3,
    "encoder_no_repeat_ngram_size": 2,
    "bad_words": ((4,),),
    "forced_bos": 7,
    "forced_eos": (EOS,),
    "suppress_tokens": (8,),
    "begin_suppress_tokens": (9,),
}


@pytest.mark.parametrize(
    ("rule", "off", "other", "args"),
    [
        ("repetition_penalty", {"repetition_penalty": 1.0}, {"repetition_penalty": 2.0}, (2.0,)),
        ("no_repeat_ngram", {"no_repeat_ngram_size": 0}, {"no_repeat_ngram_size": 4}, (4,)),
        (
            "encoder_no_repeat_ngram",
            {"encoder_no_repeat_ngram_size": 0},
            {"encoder_no_repeat_ngram_size": 4},
            (4, SOURCE),
        ),
        ("bad_words", {"bad_words": []}, {"bad_words": [[5]]}, (((4,), (5,)), (EOS,))),
        ("forced_bos", {"forced_bos_token_id": -1}, {"forced_bos_token_id": 4}, (4,)),
        ("forced_eos", {"forced_eos_token_id": -1}, {"forced_eos_token_id": 4}, (1 + ROOM, (4,))),
        ("forced_eos", {"forced_eos_token_id": []}, {"forced_eos_token_id": [4, 5]}, (1 + ROOM, (4, 5))),
        ("suppress_tokens", {"suppress_tokens": []}, {"suppress_tokens": [4]}, ((4,),)),
        ("begin_suppress_tokens", {"begin_suppress_tokens": []}, {"begin_suppress_tokens": [4]}, (2, (4,))),
    ],
)
def test_a_request_overrides_the_checkpoint_and_turns_it_off(
    rule: str, off: dict[str, Any], other: dict[str, Any], args: tuple[object, ...]
) -> None:
    whole = specs(SamplingParams(), 1, **CHECKPOINT)
    assert rule in whole
    begin = {"begin_suppress_tokens": (1, (9,))} if rule == "forced_bos" else {}
    without = {name: value for name, value in whole.items() if name != rule} | begin
    assert specs(SamplingParams(**off), 1, **CHECKPOINT) == without
    assert specs(SamplingParams(**other), 1, **CHECKPOINT) == whole | {rule: args}
    assert {*specs(SamplingParams(**other), 1)} == {rule}


@pytest.mark.parametrize(("prompt", "forced", "begin"), [(1, 7, 2), (1, None, 1), (3, 7, 3)])
def test_suppression_begins_after_a_forced_bos(prompt: int, forced: int | None, begin: int) -> None:
    found = specs(SamplingParams(), prompt, forced_bos=forced, begin_suppress_tokens=(9,))
    assert found["begin_suppress_tokens"] == (begin, (9,))
    assert ("forced_bos" in found) == (begin == 2)


def test_what_an_encoder_reads_that_is_no_tokens_cannot_be_repeated() -> None:
    listening = resolver(encoder_no_repeat_ngram_size=2)
    assert listening.resolve(SamplingParams(), PROMPT, ROOM, ROOM).rules == ()
    with pytest.raises(RequestError, match=r"encoder_no_repeat_ngram_size=3: this model's encoder reads no tokens"):
        listening.resolve(SamplingParams(encoder_no_repeat_ngram_size=3), PROMPT, ROOM, ROOM)


@pytest.mark.parametrize(("name", "value"), [("min_new_tokens", 8), ("min_length", PROMPT + 8)])
def test_least_length_of_the_checkpoint(name: str, value: int) -> None:
    assert specs(SamplingParams(), **{name: value}) == {"min_tokens": (PROMPT + 8, (EOS,))}
    assert specs(SamplingParams(min_tokens=0), **{name: value}) == {}


def test_every_rule_exists_and_rules_stand_in_the_order_of_their_ranks() -> None:
    import torch

    params = SamplingParams(
        frequency_penalty=0.2,
        presence_penalty=0.1,
        logit_bias={5: 1.0},
        allowed_token_ids=[4],
        min_tokens=3,
    )
    decoding = resolve(params, 1, **CHECKPOINT, num_beams=2, renormalize_logits=True)
    ranks = [rules.build(spec, VOCABULARY, torch.device("cpu")).rank for spec in decoding.rules]
    assert len(ranks) == 14
    assert ranks == sorted(ranks)


@pytest.mark.parametrize(
    "params",
    [
        {"stop_token_ids": [VOCABULARY]},
        {"logit_bias": {VOCABULARY: 1.0}},
        {"allowed_token_ids": [VOCABULARY]},
        {"bad_words": [[VOCABULARY]]},
        {"suppress_tokens": [VOCABULARY]},
        {"begin_suppress_tokens": [VOCABULARY]},
        {"forced_bos_token_id": VOCABULARY},
        {"forced_eos_token_id": VOCABULARY},
    ],
)
def test_ids_outside_the_vocabulary_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=f"{next(iter(params))} has token id {VOCABULARY}; ids go from 0 to"):
        resolve(SamplingParams(**params))


def test_spellings_that_cannot_be_generated_are_dropped() -> None:
    spellings: dict[str, list[tuple[int, ...]]] = {"both": [(4, VOCABULARY), (5,)], "neither": [(VOCABULARY,)]}
    same = Resolver(Defaults(), VOCABULARY, 0, lambda word: spellings[word])
    found = [same.resolve(SamplingParams(bad_words=[word]), PROMPT, ROOM, ROOM).rules for word in ("both", "neither")]
    assert found == [(RuleSpec("bad_words", (((5,),), ())),), ()]


def test_a_word_without_a_spelling_is_refused() -> None:
    with pytest.raises(RequestError, match="bad_words has ' ', which the tokenizer drops"):
        Resolver(Defaults(), VOCABULARY, 0, lambda word: []).resolve(SamplingParams(bad_words=[" "]), PROMPT, 9, 9)


@pytest.mark.parametrize(
    "defaults",
    [
        {"decoder_start_token_id": 999},
        {"eos": (999,)},
        {"forced_bos": 999},
        {"forced_eos": (999,)},
        {"bad_words": ((999,),)},
        {"languages": {"en": 999}},
    ],
)
def test_a_checkpoint_that_names_tokens_it_lacks_is_refused(defaults: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="999"):
        resolver(**defaults)
