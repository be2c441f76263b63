"""What the commands share that answer inputs by one model: its parameters, loading it, and which inputs failed.

Knows no command but as the name of one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from transduce.cli import options, terminal
from transduce.config import EngineConfig
from transduce.core.params import BeamSearchParams, SamplingParams
from transduce.errors import EngineError, RequestError

if TYPE_CHECKING:
    from transduce.llm import LLM

FAILED = 1
"""The exit code where inputs failed."""


def params(context: typer.Context, but: Collection[str] = ()) -> SamplingParams | BeamSearchParams:
    """What the flags ask of decoding. but: names that say something else in this command."""
    sampling, beams = options.given(context, SamplingParams, but), options.given(context, BeamSearchParams, but)
    with wrong():
        if "beam_width" not in beams:
            return SamplingParams(**sampling)
        return BeamSearchParams(**beams, num_return_sequences=sampling.get("n"))


@contextmanager
def wrong() -> Iterator[None]:
    """What is refused in the block is a flag's value."""
    try:
        yield
    except RequestError as error:
        raise typer.BadParameter(str(error)) from error


def load(context: typer.Context, command: str) -> "LLM":
    """The model that the command names. BadParameter where another command is the one for it."""
    terminal.log(context.params["verbose"])
    with terminal.interruptible():
        from transduce.llm import LLM

        llm = LLM(**options.given(context, EngineConfig))
    processor = llm.frontend.processor
    fitting = _fitting(processor.media, processor.interleaved)
    if command not in fitting:
        raise typer.BadParameter(f"{llm.config.model!r} takes {processor.media or 'text'}; use transduce {fitting[0]}")
    return llm


def _fitting(media: str | None, interleaved: bool) -> Sequence[str]:
    """Commands for a model. interleaved: whether it answers text alone, too."""
    match media:
        case "audio":
            return ("transcribe",)
        case "image":
            return ("ocr", "generate") if interleaved else ("ocr",)
        case _:
            return ("generate",)


@contextmanager
def refusal(records: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """A refusal of all inputs at once, as of a single one, is printed in each one's record as well."""
    try:
        yield
    except (RequestError, EngineError) as error:
        for record in records:
            terminal.show({**record, "error": str(error)})
        raise


def finish(errors: Iterable[tuple[str, str | None]]) -> None:
    """Say which inputs failed, given each one's error; exit 1 if any did."""
    failed = [(source, error) for source, error in errors if error]
    for source, error in failed:
        terminal.complain(f"{source!r}: {error}")
    if failed:
        raise typer.Exit(FAILED)
