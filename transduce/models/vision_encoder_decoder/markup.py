"""What a document reader's whole answer says: Donut's tags as fields, Nougat's pages as repaired Markdown.

Which of the two a checkpoint is tells its preprocessor. The parsing is transformers' own.
"""

from collections.abc import Sequence
from typing import Any

from transformers import DonutImageProcessorPil, DonutProcessor, NougatImageProcessorPil, NougatTokenizer
from transformers.image_processing_backends import PilBackend

from transduce.errors import ConfigError


def parsed(pixels: PilBackend, tokenizer: Any, start: Sequence[int], answer: Sequence[int]) -> object:
    """An object of fields, or Markdown, for a decoder that started from the ids `start`; None for any other model.

    Raises ConfigError where a package is missing that repairs Markdown.
    """
    match pixels:
        case _ if tokenizer is None:
            return None
        case DonutImageProcessorPil():
            return _fields(pixels, tokenizer, (*start, *answer))
        case NougatImageProcessorPil():
            return repaired(tokenizer.decode(answer, skip_special_tokens=True))
        case _:
            return None


def _fields(pixels: DonutImageProcessorPil, tokenizer: Any, ids: Sequence[int]) -> object:
    """The prompt's tags, such as the question's, are among them."""
    around = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}
    text = tokenizer.decode([each for each in ids if each not in around], skip_special_tokens=False)
    return DonutProcessor(pixels, tokenizer).token2json(text)


def repaired(text: str) -> str:
    """A page of Markdown without repetitions, broken references, lists and tables.

    A page that ends within a sentence gets a space behind it, whatever its last word is. With NLTK's corpus of words,
    which nobody is made to download, transformers leaves it out behind what is no word.
    """
    try:
        made = NougatTokenizer().post_process_generation(text)
    except ImportError as error:
        raise ConfigError('repairing Markdown needs nltk and levenshtein; pip install "transduce[ocr]"') from error
    assert isinstance(made, str), "of one text"
    return made
