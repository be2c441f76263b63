"""Documents read page by page: each page is work of its own, and a page that fails is an error in its place.

Owns the order of pages. Knows no model and no file format: `media.image` has the pages.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from PIL.Image import Image as Picture

from transduce.errors import MediaError, RequestError
from transduce.frontend.dialogue import Branches, Dialogue, Work
from transduce.frontend.frontend import Frontend, Params
from transduce.frontend.outputs import RequestOutput
from transduce.frontend.progress import PageBar
from transduce.media.image import Image, pages


@dataclass(frozen=True, slots=True)
class Page:
    """What is on a page, numbered from 1.

    parsed: what the text says, as JSON has it, where the model writes markup: fields, boxes, or repaired Markdown.
    error: why there is no text.
    """

    number: int
    text: str
    parsed: object = None
    error: str | None = None


def raised(request_id: str, error: RequestError) -> NoReturn:
    """In place of a document's result: it has its errors in its pages, and raises none."""
    raise error


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """How documents are read. prompt: beside each page, None for none. dpi: of a PDF's pages. most: pages of a document
    that are open at once.
    """

    frontend: Frontend
    bar: PageBar
    prompt: str | None
    dpi: int
    most: int

    def dialogue(self, document: Image, params: Params) -> Dialogue[list[Page]]:
        """All pages, in order. Where nothing more of a document can be read, its last page has the error.

        A page is decoded when there is room for it, and its picture forgotten when the model's input is made of it.
        """
        found: dict[int, Page] = {}
        yield Branches(self._pages(document, params, found), self.most)
        return [page for _, page in sorted(found.items())]

    def _pages(self, document: Image, params: Params, found: dict[int, Page]) -> Iterator[Dialogue[None]]:
        number = 0
        try:
            for number, page in enumerate(pages(document, dpi=self.dpi), 1):
                if isinstance(page, MediaError):
                    self._note(found, Page(number, "", error=str(page)))
                else:
                    yield self._page(number, [page], params, found)
        except MediaError as error:
            self._note(found, Page(number + 1, "", error=str(error)))

    def _page(self, number: int, held: list[Picture], params: Params, found: dict[int, Page]) -> Dialogue[None]:
        """held: the picture, which is taken out of it."""
        size = held[0].size
        (output,) = yield [Work(self._prompt(held.pop()), params)]
        self._note(found, self._said(number, output, size))

    def _prompt(self, picture: Picture) -> object:
        beside = {} if self.prompt is None else {"prompt": self.prompt}
        return {"multi_modal_data": {"image": picture}, **beside}

    def _said(self, number: int, output: RequestOutput, size: tuple[int, int]) -> Page:
        if output.error is not None:
            return Page(number, "", error=output.error)
        answer = output.outputs[0]
        with self.frontend.lock:
            parsed = self.frontend.processor.parsed(
                output.prompt_token_ids, answer.token_ids, output.encoder_prompt, size
            )
        return Page(number, answer.text, parsed)

    def _note(self, found: dict[int, Page], page: Page) -> None:
        found[page.number] = page
        self.bar.read()
