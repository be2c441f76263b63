"""What the commands share that answer inputs by one model: its parameters, loading it, and which inputs failed.

Knows no command but as the name of one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def params(context: typer.Context) -> SamplingParams | BeamSearchParams:
    """What the flags ask of decoding."""
    sampling, beams = options.given(context, SamplingParams), options.given(context, BeamSearchParams)
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
    media = llm.frontend.processor.media
    fitting = "generate" if media is None else "transcribe"
    if command != fitting:
        raise typer.BadParameter(f"{llm.config.model!r} takes {media or 'text'}; use transduce {fitting}")
    return llm


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
