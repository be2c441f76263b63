"""Beam search by the offline API, on tiny checkpoints as transformers saves them, beside transformers' generate()."""

from pathlib import Path
from typing import Any

import pytest
from transformers import BartForConditionalGeneration

from tests.folders import text_folder
from tests.offline import load, tokens
from tests.test_llm import GENERATION, SOURCES
from transduce import LLM, BeamSearchParams, CapacityError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_folder(tmp_path_factory.mktemp("bart"), GENERATION)


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return load(folder)


BEAMS: dict[str, dict[str, Any]] = {
    "plain": {"num_beams": 4},
    "several": {"num_beams": 5, "num_return_sequences": 5, "length_penalty": 0.3, "early_stopping": True},
    "forced": {"num_beams": 3, "num_return_sequences": 2, "forced_bos_token_id": 0, "forced_eos_token_id": 2},
    "ruled": {"num_beams": 4, "no_repeat_ngram_size": 2, "min_length": 12, "early_stopping": "never"},
    "new": {"num_beams": 3, "encoder_no_repeat_ngram_size": 1},
    "normalised": {"num_beams": 4, "num_return_sequences": 4, "renormalize_logits": True, "no_repeat_ngram_size": 1},
    "eos of several": {"num_beams": 4, "eos_token_id": [2, 30, 31, 32, 33, 34], "num_return_sequences": 3},
}


@pytest.mark.parametrize("name", BEAMS)
def test_a_checkpoints_beams_are_those_of_generate(name: str, tmp_path: Path) -> None:
    llm = load(text_folder(tmp_path, GENERATION | BEAMS[name]))
    oracle = BartForConditionalGeneration.from_pretrained(tmp_path).eval()
    for source, output in zip(SOURCES, llm.generate(list(SOURCES)), strict=True):
        asked = {"return_dict_in_generate": True, "output_scores": True}
        expected = oracle.generate(**llm.get_tokenizer()(source, return_tensors="pt"), **asked)
        rows = [[token for token in row if token != 1] for row in expected.sequences[:, 1:].tolist()]
        assert [answer.token_ids for answer in output.outputs] == rows
        assert [answer.score for answer in output.outputs] == pytest.approx(
            expected.sequences_scores.tolist(), abs=1e-4
        )
        assert [answer.index for answer in output.outputs] == [*range(len(rows))]
        penalty = BEAMS[name].get("length_penalty", 1.0)
        totals = [(answer.score or 0) * len(answer.token_ids) ** penalty for answer in output.outputs]
        assert [answer.cumulative_logprob for answer in output.outputs] == pytest.approx(totals)


def test_one_beam_is_greedy(tmp_path: Path, llm: LLM) -> None:
    beams = load(text_folder(tmp_path, GENERATION | {"num_beams": 4, "length_penalty": 2.0}))
    assert tokens(beams.generate("hello", BeamSearchParams(beam_width=1))) == tokens(llm.generate("hello"))


def test_more_beams_than_run_at_once_are_refused_with_the_numbers(folder: Path) -> None:
    narrow = load(folder, max_num_seqs=3)
    with pytest.raises(CapacityError, match="beam_width=4: at most max_num_seqs=3 hypotheses run at once"):
        narrow.generate("hello", BeamSearchParams(beam_width=4))


def test_beams_report_their_tokens_logprobs(llm: LLM) -> None:
    (output,) = llm.generate("hello", BeamSearchParams(beam_width=3, num_return_sequences=3, logprobs=2))
    for answer in output.outputs:
        assert answer.logprobs is not None
        chosen = [table[token].logprob for table, token in zip(answer.logprobs, answer.token_ids, strict=True)]
        assert answer.cumulative_logprob == pytest.approx(sum(chosen))


def test_drawn_beams_repeat_with_their_seed(llm: LLM) -> None:
    def drawn(seed: int) -> list[list[int]]:
        params = BeamSearchParams(beam_width=3, temperature=1.5, seed=seed, num_return_sequences=2)
        return [answer.token_ids for output in llm.generate(list(SOURCES), params) for answer in output.outputs]

    assert drawn(1) == drawn(1) != drawn(2)
