"""Scores of given targets, on tiny checkpoints as transformers saves them, beside the losses of transformers."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel

from tests.folders import scored_folders, whisper_folder
from tests.offline import load
from transduce import LLM, CapacityError, ConfigError, RequestError, SamplingParams, TargetScore

SOURCES = ["a cab", "hello", "transducers transduce", "x", "the end"]
TARGETS = ["x", "the end of it", "a", "hello hello", "transduce"]
FAMILIES = ("bart", "marian", "t5")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return scored_folders(tmp_path_factory.mktemp("scored"))


@pytest.fixture(scope="module")
def llm(folders: dict[str, Path]) -> LLM:
    return load(folders["bart"])


def ids(llm: LLM, texts: Sequence[str]) -> list[list[int]]:
    return [llm.get_tokenizer()(text_target=text)["input_ids"] for text in texts]


def losses(model: PreTrainedModel, source: list[int], target: list[int]) -> list[float]:
    """The log-probability of each label."""
    labels = torch.tensor([target])
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([source]), labels=labels).logits
    found: list[float] = logits.log_softmax(-1)[0].gather(-1, labels[0][:, None])[:, 0].tolist()
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_the_models_own(family: str, folders: dict[str, Path]) -> None:
    llm = load(folders[family], max_num_batched_tokens=8, max_num_seqs=3)
    oracle = AutoModelForSeq2SeqLM.from_pretrained(folders[family]).eval()
    targets: list[Any] = [*TARGETS[:-1], [0, *ids(llm, TARGETS)[-1]]]  # with <s>, as BART's tokenizer has it
    labels = [*ids(llm, TARGETS[:-1]), targets[-1]]
    scores = llm.score_target(SOURCES, targets)
    for source, target, score in zip(ids(llm, SOURCES), labels, scores, strict=True):
        expected = losses(oracle, source, target)
        assert score.token_ids == target
        assert score.logprobs == pytest.approx(expected, abs=1e-4)
        assert (score.total, score.mean) == pytest.approx((sum(expected), sum(expected) / len(expected)), abs=1e-4)
        assert score.error is None


def same(some: Sequence[TargetScore], others: Sequence[TargetScore]) -> bool:
    return [(each.token_ids, each.logprobs) for each in some] == [(each.token_ids, each.logprobs) for each in others]


def test_one_source_or_target_goes_with_all_others(llm: LLM) -> None:
    forms: list[tuple[list[Any], list[Any]]] = [(SOURCES, TARGETS), (ids(llm, SOURCES), ids(llm, TARGETS))]
    for sources, targets in forms:
        each = [llm.score_target(source, targets) for source in sources]
        assert [len(scores) for scores in each] == [len(TARGETS)] * len(SOURCES)
        for at, target in enumerate(targets):
            assert same(llm.score_target(sources, target), [scores[at] for scores in each])
        assert same(llm.score_target(sources, targets), [scores[at] for at, scores in enumerate(each)])
        assert same(llm.score_target(sources[0], targets[0]), each[0][:1])
    assert len({score.total for score in each[0]}) == len(TARGETS)


def test_sources_in_other_forms(llm: LLM) -> None:
    plain = llm.score_target("hello", "x")
    forms: list[Any] = [{"prompt": "hello", "cache_salt": "mine"}, {"prompt_token_ids": ids(llm, ["hello"])[0]},
                        {"encoder_prompt": "hello", "cache_salt": "mine"}]  # fmt: skip
    for source in forms:
        assert same(llm.score_target(source, "x"), plain)
    (begun,) = llm.score_target({"encoder_prompt": "hello", "decoder_prompt": [2, 9]}, [5, 2])
    assert same([begun], [replace(whole, token_ids=whole.token_ids[1:], logprobs=whole.logprobs[1:]) for whole in
                          llm.score_target("hello", [9, 5, 2])])  # fmt: skip
    (long,) = llm.score_target("a" * 99, "x", truncate_prompt_tokens=20)
    assert (long.output.truncated, len(long.output.encoder_prompt_token_ids or ())) == (81, 20)


def test_a_source_is_encoded_once(llm: LLM) -> None:
    encoded = llm.engine.scheduler.counters.encoded_rows
    llm.score_target("only here", TARGETS)
    assert llm.engine.scheduler.counters.encoded_rows - encoded == len(ids(llm, ["only here"])[0])


def test_a_target_beside_others_in_its_place(llm: LLM) -> None:
    (score,) = llm.score_target("hello", "the end")
    asked = {"encoder_prompt": "hello", "target": "the end"}
    (output,) = llm.generate(asked, SamplingParams(prompt_logprobs=3, max_tokens=0))
    tables = output.prompt_logprobs
    assert tables is not None
    assert tables[0] is None
    told = [table or {} for table in tables[1:]]
    assert [table[token].logprob for token, table in zip(score.token_ids, told, strict=True)] == score.logprobs
    assert (
        "".join(str(table[token].decoded_token) for token, table in zip(score.token_ids, told, strict=True))
        == "the end"
    )
    for token, table in zip(score.token_ids, told, strict=True):
        likeliest = [each.logprob for each in table.values() if each.rank is not None]
        assert len(likeliest) == 3
        assert likeliest == sorted(likeliest, reverse=True)
        assert table[token].rank is not None or table[token].logprob <= likeliest[-1]


def test_a_prompts_tokens_have_the_logprobs_of_an_answers(folders: dict[str, Path], llm: LLM) -> None:
    plain = SamplingParams(temperature=1.0, top_k=1, repetition_penalty=1.0, max_tokens=9, logprobs=2)
    (whole,) = llm.generate("hello", plain)
    answer = whole.outputs[0]
    assert answer.logprobs is not None
    pair = {"encoder_prompt": "hello", "decoder_prompt": answer.token_ids[:5]}
    again = SamplingParams(
        temperature=1.0, top_k=1, repetition_penalty=1.0, max_tokens=4, prompt_logprobs=2, logprobs=2
    )
    (rest,) = llm.generate(pair, again)
    assert rest.prompt_logprobs is not None
    assert rest.prompt_logprobs[0] is None
    for table, wanted in zip(rest.prompt_logprobs[1:], answer.logprobs[:5], strict=True):
        assert table is not None
        assert [*table] == [*wanted]
        assert [each.logprob for each in table.values()] == pytest.approx(
            [each.logprob for each in wanted.values()], abs=1e-5
        )
    assert rest.outputs[0].token_ids == answer.token_ids[5:]
    assert llm.generate("hello", SamplingParams(max_tokens=2))[0].prompt_logprobs is None
    assert llm.generate("hello", SamplingParams(max_tokens=2, prompt_logprobs=1))[0].prompt_logprobs == [None]


def test_a_bad_pair_among_several_has_its_own_error(llm: LLM) -> None:
    targets: list[Any] = ["x", " ", [], [5, 999], "a" * 99, 3.5, "x\ud800"]
    scores = llm.score_target("hello", targets)
    said = ("", "' ' is empty", "[] is empty", "target has token id 999", "has 101 tokens", "3.5 of type float", "lone")
    for score, words in zip(scores, said, strict=True):
        assert words in (score.error or "")
        assert (score.error is None) == math.isfinite(score.total)
    assert same(scores[:1], llm.score_target("hello", "x"))
    assert [score.error is None for score in llm.score_target(["hello", ""], "x")] == [True, False]


def test_what_does_not_pair_up_is_refused(llm: LLM, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="2 sources and 3 targets"):
        llm.score_target(["a", "b"], ["x", "y", "z"])
    with pytest.raises(RequestError, match="an empty list of targets"):
        llm.score_target("a", [])
    with pytest.raises(RequestError, match="target None of type NoneType: give a text"):
        llm.score_target("a", None)  # type: ignore[arg-type]  # as one who has none may
    with pytest.raises(RequestError, match="the target '' is empty"):
        llm.score_target("a", "")
    with pytest.raises(CapacityError, match="the model has 64 positions, and the last token needs none"):
        llm.score_target("a", "a" * 99)
    with pytest.raises(RequestError, match="nothing to score; give a decoder_prompt"):
        llm.generate("a", SamplingParams(max_tokens=0, prompt_logprobs=0))
    with pytest.raises(ConfigError, match="takes audio, and score_target takes text"):
        load(whisper_folder(tmp_path, seed=0)).score_target("a", "b")


def test_without_a_tokenizer_ids_are_scored(folders: dict[str, Path], llm: LLM) -> None:
    bare = load(folders["bart"], skip_tokenizer_init=True)
    assert same(bare.score_target([5, 6, 2], [[7, 2], [8, 2]]), llm.score_target([5, 6, 2], [[7, 2], [8, 2]]))
    with pytest.raises(RequestError, match="no tokenizer was loaded"):
        bare.score_target([5, 6, 2], "x")
