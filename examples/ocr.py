"""What is on the pages of documents, and what the model's markup says of them: images, TIFFs and PDFs, in one batch.

Usage: python examples/ocr.py -m donut [--random-weights] [FILE...]
"""

from io import BytesIO
from time import perf_counter

from rich.console import Console
from rich.text import Text
from vision_models import MODELS, chosen, drawn, parser

from transduce import LLM, SamplingParams

PAGES = 3


def document() -> bytes:
    """A TIFF of some pages."""
    first, *rest = (drawn(f"Page {number}") for number in range(1, PAGES + 1))
    file = BytesIO()
    first.save(file, "TIFF", save_all=True, append_images=rest)
    return file.getvalue()


def main() -> None:
    """Print every page of every document; without one, of one that is drawn here."""
    arguments = parser(__doc__)
    arguments.add_argument("--prompt", help="what the model is told beside each page; otherwise what its kind knows")
    arguments.add_argument("--max-tokens", type=int, default=64, help="of a page, at most")
    arguments.add_argument("files", metavar="FILE", nargs="*", help="an image, a TIFF or a PDF")
    given = arguments.parse_args()
    prompt = given.prompt or MODELS[given.model_type].prompt
    documents, names = [*given.files] or [document()], given.files or ["a drawn TIFF"]
    with chosen(given) as model:
        llm = LLM(model)
        start = perf_counter()
        read = llm.read(documents, prompt, sampling_params=SamplingParams(max_tokens=given.max_tokens))
        seconds = perf_counter() - start
    console = Console(highlight=False)
    for name, pages in zip(names, read, strict=True):
        for page in pages:
            console.print(
                Text(f"{name}, page {page.number}: {page.error or page.parsed or page.text!r}"), soft_wrap=True
            )
    count = sum(map(len, read))
    console.print(f"[dim]{count} pages in {seconds:.2f} s, {count / seconds:.1f} pages/s[/]")


if __name__ == "__main__":
    main()
