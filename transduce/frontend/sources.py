"""What a prompt gives the encoder, as items: ids of a text, cut or refused where it is too long, media, or both.

Knows no decoder and no request.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transduce.core.checks import shown
from transduce.core.request import EncoderItem
from transduce.errors import CapacityError, MediaError, RequestError
from transduce.frontend.checks import check_length, check_texts, check_vocabulary
from transduce.frontend.prompts import Ids, Media
from transduce.frontend.readers import Readers
from transduce.models.base import Processor


@dataclass(frozen=True, slots=True)
class Source:
    """What the encoder gets, as text and ids too where it is either; `truncated` ids were cut."""

    items: tuple[EncoderItem, ...]
    text: str | None = None
    ids: Ids | None = None
    truncated: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """vocabulary: the ids that the encoder takes. most: longest encoder input in tokens, None: no limit."""

    processor: Processor
    readers: Readers
    vocabulary: int
    most: int | None

    def read(self, given: str | Ids | Media, keep: int | None) -> Source:
        """keep: so many ids stay. Raises RequestError, MediaError or CapacityError."""
        check_texts([given.text if isinstance(given, Media) else given])
        if not isinstance(given, Media):
            return self._text(given, keep)
        return self._prompted(given, keep) if self.processor.prompted else self._media(given, keep)

    def _media(self, given: Media, keep: int | None) -> Source:
        if keep is not None:
            raise RequestError(f"truncate_prompt_tokens={keep}: the encoder takes {self.processor.media}; leave it out")
        return Source(tuple(self._items(given.items)))

    def _items(self, items: Sequence[object]) -> Iterator[EncoderItem]:
        for place, item in enumerate(items, 1):
            try:
                yield self.processor.item(item)
            except MediaError as error:
                if len(items) == 1:
                    raise
                raise MediaError(f"{self.processor.media} {place} of {len(items)}: {error}") from error

    def _prompted(self, given: Media, keep: int | None) -> Source:
        """Media with a prompt beside, be it empty."""
        text, (media,) = given.text or "", given.items
        item = self.processor.item(media)
        ids, cut = self._ids(text, keep, None if self.most is None else max(0, self.most - item.rows))
        return Source((item.with_text(ids),), text if isinstance(text, str) else None, ids, cut)

    def _text(self, given: str | Ids, keep: int | None) -> Source:
        if not (given.strip() if isinstance(given, str) else given):
            raise RequestError(f"the prompt {shown(listed(given))} is empty; give at least one word or token id")
        ids, cut = self._ids(given, keep, self.most)
        return Source((self.processor.item(ids),), given if isinstance(given, str) else None, ids, cut)

    def _ids(self, given: str | Ids, keep: int | None, most: int | None) -> tuple[Ids, int]:
        """What is read, and how many ids were cut. most: ids that the encoder takes."""
        ids = self._tokenized(given, keep, most) if isinstance(given, str) else given
        check_vocabulary("prompt", ids, self.vocabulary)
        kept = ids if keep is None else self._truncated(ids, keep)
        if most is not None and len(kept) > most:
            raise CapacityError(
                f"the prompt has {len(kept)} tokens and the model takes {most}; "
                f"shorten it, or cut it with truncate_prompt_tokens={most} (--truncate-prompt-tokens)"
            )
        return kept, len(ids) - len(kept)

    def _tokenized(self, text: str, keep: int | None, most: int | None) -> Ids:
        if keep is None:
            check_length("prompt", text, most)
        with self.readers.alone(text) as processor:
            return tuple(processor.source_ids(text))

    def _truncated(self, ids: Ids, keep: int) -> Ids:
        """The first `keep` ids, but with the special tokens that close them, such as EOS."""
        tokenizer = self.processor.tokenizer
        with self.readers.lock:
            special = set(tokenizer.all_special_ids) if tokenizer is not None else set()
        closing = 0
        while closing < len(ids) and ids[len(ids) - 1 - closing] in special:
            closing += 1
        if len(ids) <= keep or closing >= keep:
            return ids[:keep]
        return ids[: keep - closing] + ids[len(ids) - closing :]


def listed(given: str | Sequence[int]) -> str | list[int]:
    """As users write it."""
    return given if isinstance(given, str) else [*given]
