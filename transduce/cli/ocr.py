"""transduce ocr: what is printed, written and said of documents.

Which there are is `inputs`' matter, files of results are `results`'. Knows no model: a prompt is what the user gives.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transduce.cli import answering, options, results, terminal
from transduce.cli.inputs import DOCUMENTS, Input, find
from transduce.cli.options import option
from transduce.cli.results import Results

if TYPE_CHECKING:
    from transduce.frontend.documents import Page

FORMATS = ("txt", "json")

PAGE = "\n\f"
"""Between two pages of a txt file."""

Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", help="Images, TIFFs and PDFs, or folders of them.", show_default=False),
]
Prompt = Annotated[str | None, option("What MODEL is told beside each page, such as its task.")]
Dpi = Annotated[int | None, option("Dots per inch that pages of PDFs are drawn at.")]
Format = Annotated[str | None, option(f"With --output-dir: of {', '.join(FORMATS)}. Left out: all.", "--format")]


@dataclass(frozen=True, slots=True)
class Read:
    """A document as it was named, and its pages."""

    path: str
    pages: "Sequence[Page]"

    def rendered(self, form: str) -> str:
        """All of it in one of FORMATS."""
        if form == "txt":
            return PAGE.join(map(_shown, self.pages)) + "\n"
        return json.dumps([*self.records()], ensure_ascii=False, indent=1) + "\n"

    def records(self) -> Iterator[dict[str, Any]]:
        """What the JSON says of each page."""
        for page in self.pages:
            said = {"text": page.text, "parsed": page.parsed, "error": page.error}
            yield {"file": self.path, "page": page.number, **said}

    def errors(self) -> Iterator[str]:
        """Of the pages that failed."""
        for page in self.pages:
            if page.error is not None:
                yield f"page {page.number}: {page.error}" if len(self.pages) > 1 else page.error


def _shown(page: "Page") -> str:
    """A page as text: what was made of the model's text, where that is text as well."""
    return page.parsed if isinstance(page.parsed, str) else page.text


def ocr(
    context: typer.Context,
    model: options.Model,
    files: Files,
    prompt: Prompt = None,
    dpi: Dpi = None,
    as_json: options.Json = False,
    output_dir: results.OutputDir = None,
    formats: Format = None,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    seed: options.Seed = None,
    beam_width: options.BeamWidth = None,
    dtype: options.DType = None,
    max_num_seqs: options.MaxNumSeqs = None,
    max_model_len: options.MaxModelLen = None,
    attention_backend: options.Backend = None,
    speculate: options.Speculate = None,
    quantization: options.Quantization = None,
    quantization_keep: options.Keep = None,
    load_format: options.LoadFormat = None,
    generation_config: options.GenerationConfig = None,
    tokenizer: options.Tokenizer = None,
    revision: options.Revision = None,
    verbose: options.Verbose = False,
) -> None:
    """Print what is on each page of each FILE, or write it to files."""
    if dpi is not None and dpi < 1:
        raise typer.BadParameter(f"--dpi {dpi}: give at least 1, such as 200")
    asked = {name: context.params[name] for name in ("prompt", "dpi") if context.params[name] is not None}
    asked["sampling_params"] = answering.params(context)
    chosen, documents = results.formats(context, FORMATS), find(files, DOCUMENTS)
    if output_dir is None:
        _print(context, documents, asked)
    else:
        written = Results(output_dir, chosen, Read.rendered, documents)
        written.fill("read", partial(_written, context, asked, written))


def _print(context: typer.Context, documents: Sequence[Input], asked: Mapping[str, Any]) -> None:
    found = answering.load(context, "ocr").read([each.path for each in documents], **asked)
    read = [Read(*pair) for pair in zip((each.path for each in documents), found, strict=True)]
    for document in read:
        name = f"{document.path}: " if len(documents) > 1 else ""
        for page, record in zip(document.pages, document.records(), strict=True):
            lines = [name + line for line in _shown(page).split("\n")]
            terminal.show(record if context.params["as_json"] else lines)
    answering.finish((document.path, error) for document in read for error in document.errors())


def _written(
    context: typer.Context, asked: Mapping[str, Any], files: Results[Read], documents: Sequence[Input]
) -> Mapping[int, Sequence[str]]:
    """Write the results of each document as soon as all its pages are read; by its place, what went wrong."""
    errors: dict[int, Sequence[str]] = {}

    def done(place: int, pages: "Sequence[Page]") -> None:
        read = Read(documents[place].path, pages)
        failed = [*read.errors()]
        some = len(failed) < len(pages)
        errors[place] = failed + (files.write(documents[place].source, read, whole=not failed) if some else [])

    answering.load(context, "ocr").read([each.path for each in documents], **asked, done=done)
    return errors
