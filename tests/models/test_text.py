"""Text processors: what becomes of texts, ids and nonsense."""

from pathlib import Path

import pytest

from tests.models.tokenizers import text_tokenizer
from transduce.errors import RequestError
from transduce.models.base import find
from transduce.models.text import TextProcessor

START = 0


@pytest.fixture(scope="module")
def processor() -> TextProcessor:
    return TextProcessor(text_tokenizer(), START)


def test_a_source_text_has_special_tokens(processor: TextProcessor) -> None:
    assert processor.source_ids("the cat") == [3, 4, 1]
    assert processor.source_ids("") == [1]


def test_an_item_holds_its_ids(processor: TextProcessor) -> None:
    item = processor.item([3, 4, 1])
    assert item.data.tolist() == [3, 4, 1]
    assert (item.rows, item.cost) == (3, 3)


@pytest.mark.parametrize("source", ["text", [1.5], [[1]], None, [], ["a"], [[1], [2, 3]]])
def test_what_is_no_ids_is_refused(processor: TextProcessor, source: object) -> None:
    with pytest.raises(RequestError, match="token ids"):
        processor.item(source)


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        (None, (START,)),
        ("", (START,)),
        ((), (START,)),
        ("the cat", (START, 3, 4)),
        ("<pad> the", (START, 3)),
        ([3, 4], (START, 3, 4)),
        ([START, 3], (START, 3)),
    ],
)
def test_decoder_prompts_begin_with_the_start_token(
    processor: TextProcessor, prompt: str | list[int] | None, ids: tuple[int, ...]
) -> None:
    assert processor.decoder_ids(prompt, {}) == ids


def test_without_a_start_token_a_prompt_must_be_given() -> None:
    processor = TextProcessor(text_tokenizer(), None)
    assert processor.decoder_ids([4], {}) == (4,)
    with pytest.raises(RequestError, match="decoder_start_token_id"):
        processor.decoder_ids(None, {})


def test_an_option_is_refused_by_name(processor: TextProcessor) -> None:
    with pytest.raises(RequestError, match="language"):
        processor.decoder_ids(None, {"language": "en"})


def test_without_a_tokenizer_ids_still_work() -> None:
    processor = TextProcessor(None, START)
    assert processor.decoder_ids([4], {}) == (START, 4)
    with pytest.raises(RequestError, match="no tokenizer"):
        processor.source_ids("the cat")
    with pytest.raises(RequestError, match="no tokenizer"):
        processor.decoder_ids("the cat", {})


@pytest.mark.parametrize("model_type", ["bart", "marian", "t5"])
def test_each_family_starts_as_the_checkpoint_says(model_type: str, tmp_path: Path) -> None:
    family = find(model_type)
    for asked, start in (({"decoder_start_token_id": 9, "bos_token_id": 8}, 9), ({"bos_token_id": 7}, 7)):
        assert family.processor(tmp_path, family.config({}), asked, None).decoder_ids(None, {}) == (start,)
