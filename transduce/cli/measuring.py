"""What the commands of `transduce bench` do with their flags: draw, measure, print, write; exit code 1 for failures.

What is measured, and how, is `transduce.bench`'s.
"""

import asyncio
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import typer
from numpy.random import Generator, default_rng

from transduce.bench import load, plot, report
from transduce.bench.calls import Style
from transduce.bench.datasets import DataSet
from transduce.bench.figures import Figures, figures, parse_goals
from transduce.bench.serve import Outcome, model_name, sweep
from transduce.cli import options, terminal
from transduce.config import EngineConfig

if TYPE_CHECKING:
    from transduce.llm import LLM

FAILED = 1


def serve(context: typer.Context) -> None:
    """Sweep the levels of load."""
    flags = SimpleNamespace(**context.params)
    goals, levels = parse_goals(flags.goodput or ()), load.parse_levels(flags.request_rate, flags.concurrency)
    if not flags.stream and goals.keys() - {"e2e"}:
        raise typer.BadParameter("--no-stream: only e2e is known then; give --goodput e2e:MS alone")
    if flags.plot is not None:
        plot.check()
    style = Style(flags.model or "", flags.stream, _extra(flags.extra_body), flags.endpoint)
    dataset, seed, rng = _inputs(context)

    async def measure() -> tuple[str, list[Outcome]]:
        async with load.connection(flags.base_url, flags.api_key, flags.timeout) as client:
            named = replace(style, model=style.model or await model_name(client))
            outcomes = await sweep(client, lambda: dataset.draw(rng), named, levels, flags.num_warmups, goals, rng)
            return named.model, outcomes

    model, outcomes = asyncio.run(measure())
    found = {str(outcome.level): outcome.figures for outcome in outcomes}
    terminal.show([report.grid([*found], {**report.rates(found), **report.latencies(found)})])
    if flags.plot is not None:
        plot.draw(flags.plot, found)
    about = {"model": model, "seed": seed, "dataset": asdict(dataset), "goodput": goals}
    _finish(flags, found, **about, levels=[outcome.document() for outcome in outcomes])


def latency(context: typer.Context) -> None:
    """Time a batch."""
    flags = SimpleNamespace(**context.params)
    dataset, seed, rng = _inputs(context, num_prompts=flags.batch_size)
    llm, dataset = _loaded(context, dataset)
    from transduce.bench import offline

    records = offline.latency(llm, lambda: dataset.draw(rng), flags.num_iters_warmup, flags.num_iters)
    found = {f"batch of {flags.batch_size}": figures(records)}
    terminal.show([report.grid([*found], report.latencies(found))])
    _finish(flags, found, model=flags.model, seed=seed, dataset=asdict(dataset))


def throughput(context: typer.Context) -> None:
    """Time one call with many prompts."""
    flags = SimpleNamespace(**context.params)
    dataset, seed, rng = _inputs(context)
    llm, dataset = _loaded(context, dataset)
    from transduce.bench import offline

    found = {"all at once": figures(offline.throughput(llm, dataset.draw(rng)))}
    terminal.show([report.grid([*found], report.rates(found))])
    _finish(flags, found, model=flags.model, seed=seed, dataset=asdict(dataset))


def _inputs(context: typer.Context, **more: Any) -> tuple[DataSet, int, Generator]:
    """The data set that the flags name, the seed, and the sequence that it starts. Files are to be written later."""
    for file in filter(None, map(context.params.get, ("json_file", "plot"))):
        if not file.parent.is_dir():
            raise typer.BadParameter(f"cannot write {str(file)!r}: there is no folder {str(file.parent)!r}")
    seed = context.params["seed"]
    seed = secrets.randbits(32) if seed is None else seed
    return DataSet(**options.given(context, DataSet), **more), seed, default_rng(seed)


def _extra(text: str | None) -> dict[str, Any]:
    try:
        fields = json.loads(text or "{}")
    except ValueError as error:
        raise typer.BadParameter(f"--extra-body {text!r}: {error}") from error
    if not isinstance(fields, dict):
        raise typer.BadParameter(f"--extra-body {text!r}: give a JSON object")
    return fields


def _loaded(context: typer.Context, dataset: DataSet) -> "tuple[LLM, DataSet]":
    """The model, and the data set with its vocabulary. BadParameter where the one does not take the other."""
    terminal.log(context.params["verbose"])
    with terminal.interruptible():
        from transduce.llm import LLM

        llm = LLM(**options.given(context, EngineConfig))
    media = llm.frontend.processor.media
    if (dataset.dataset_name == "audio") != (media is not None):
        fitting = "--dataset-name random or jsonl" if media is None else f"--dataset-name {media} and a --dataset-path"
        raise typer.BadParameter(f"{llm.config.model!r} takes {media or 'text'}; give {fitting}")
    return llm, replace(dataset, vocab_size=llm.frontend.spec.source_vocab)


def _finish(flags: SimpleNamespace, found: Mapping[str, Figures], **document: Any) -> None:
    """Write what was measured, and say what failed; exit 1 if anything did."""
    if flags.json_file is not None:
        figures = {level: asdict(each) for level, each in found.items()}
        report.write_json(flags.json_file, document | {"figures": figures})
    for level, each in found.items():
        for error, count in each.errors.items():
            terminal.complain(f"{level}: {count} of {each.completed + each.failed} requests failed: {error}")
    if any(each.failed for each in found.values()):
        raise typer.Exit(FAILED)
