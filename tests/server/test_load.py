"""A server under load: many clients at once, some of which leave, and bad requests in between.

Whatever happens around a request, its answer is the offline API's; nothing fails, and nothing is left behind.
"""

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.folders import text_folder
from tests.offline import load
from tests.server.process import PATIENCE, Server, server
from transduce import SamplingParams

SECONDS, LONG_SECONDS = 10, 1_800
CLIENTS = 64
LEAVING, BAD = 0.2, 0.1
"""Shares of the requests."""
GROWTH = 0.02
"""Of resident memory, over the second half."""
DTYPE = "bfloat16"
"""In float32 oneDNN multiplies, which keeps code for each of a thousand shapes: memory grows for a minute or two."""

GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 64}
FLAWS: tuple[Mapping[str, Any], ...] = (
    {"prompt": "a" * 99},
    {"prompt": []},
    {"prompt": [10**9]},
    {"temperature": -1},
    {"best_of": 0},
    {"suffix": "x"},
    {"n": 1_000},
    {"model": "another"},
    {"max_tokens": "many"},
)


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and the texts that the offline API answers."""

    body: Mapping[str, Any]
    texts: list[str]


@dataclass(slots=True)
class Report:
    """Requests by what became of them, and what should not have happened."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def cases(folder: Path) -> list[Case]:
    """Short and long, greedy and sampled, one answer and several, with and without a stop string."""
    draw = random.Random(0)
    prompts = ["".join(draw.choices("abcdefgh ", k=draw.randint(1, 50))).strip() or "a" for _ in range(48)]
    asked: list[dict[str, Any]] = [
        {
            "max_tokens": draw.choice((1, 4, 12, 40)),
            "temperature": draw.choice((0, 1)),
            "seed": number,
            "n": draw.choice((1, 1, 1, 3)) if number % 2 else 1,
            "stop": draw.choice(([], ["k"], ["SS"])),
        }
        for number in range(len(prompts))
    ]
    for each in asked:
        if each["temperature"] == 0:
            each["n"] = 1
    outputs = load(folder, dtype=DTYPE).generate(prompts, [SamplingParams(**each) for each in asked], use_tqdm=False)
    return [
        Case({"model": "tiny", "prompt": prompt, **each}, [answer.text for answer in output.outputs])
        for prompt, each, output in zip(prompts, asked, outputs, strict=True)
    ]


@pytest.mark.parametrize(
    "seconds", [pytest.param(SECONDS, id="short"), pytest.param(LONG_SECONDS, id="long", marks=pytest.mark.long)]
)
def test_load(seconds: float, tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "model", GENERATION)
    with server(folder, tmp_path / "log", "--dtype", DTYPE, "--max-num-seqs", "32", "--log-level", "warning") as found:
        found.wait_ready()
        report, grown = asyncio.run(_strain(found, cases(folder), seconds))
        assert report.wrong == []
        assert min(report.counts[kind] for kind in ("whole", "streamed", "left", "refused")) > CLIENTS / 4
        found.until(lambda: _gauges(found) == {"running": 0, "waiting": 0, "self": 0, "cross": 0})
        assert found.log == []
        assert grown < GROWTH
        found.signal()
        assert found.wait() == 0


async def _strain(found: Server, known: list[Case], seconds: float) -> tuple[Report, float]:
    """What the clients saw, and by which share memory grew over the second half."""
    report, end = Report(), time.monotonic() + seconds
    limits = httpx.Limits(max_connections=CLIENTS)
    async with (
        httpx.AsyncClient(base_url=found.url, timeout=PATIENCE, limits=limits) as client,
        asyncio.TaskGroup() as group,
    ):
        for number in range(CLIENTS):
            group.create_task(_visit(client, known, random.Random(number), end, report))
        await asyncio.sleep(seconds / 2)
        halfway = _resident(found)
        await asyncio.sleep(seconds / 2)
        grown = _resident(found) / halfway - 1
    return report, grown


async def _visit(client: httpx.AsyncClient, known: list[Case], draw: random.Random, end: float, report: Report) -> None:
    """One client: one request after the other."""
    while time.monotonic() < end:
        case, chance = draw.choice(known), draw.random()
        if chance < BAD:
            await _err(client, {**case.body, **draw.choice(FLAWS)}, report)
        elif chance < BAD + LEAVING:
            await _leave(client, case, draw, report)
        elif draw.random() < 0.5:
            await _ask(client, case, report)
        else:
            await _listen(client, case, report)


async def _err(client: httpx.AsyncClient, body: Mapping[str, Any], report: Report) -> None:
    answer = await client.post("/v1/completions", json=body)
    report.counts["refused"] += 1
    if not 400 <= answer.status_code < 500:
        report.wrong.append(f"{answer.status_code} for {body}: {answer.text}")


async def _leave(client: httpx.AsyncClient, case: Case, draw: random.Random, report: Report) -> None:
    """After some events of a stream, or a moment of waiting for an answer that is none."""
    if draw.random() < 0.5:
        async with aclosing(_events(client, case, report)) as stream:
            for _ in range(draw.randint(1, 5)):
                await anext(stream, None)
    else:
        await _hang_up(client.base_url, json.dumps(case.body).encode(), draw.random() * 0.1)
    report.counts["left"] += 1


async def _hang_up(url: httpx.URL, body: bytes, moment: float) -> None:
    _, writer = await asyncio.open_connection(url.host, url.port)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    writer.write(f"{head}\r\n\r\n".encode() + body)
    await writer.drain()
    await asyncio.sleep(moment)
    writer.close()
    await writer.wait_closed()


async def _ask(client: httpx.AsyncClient, case: Case, report: Report) -> None:
    answer = await client.post("/v1/completions", json=case.body)
    texts = [choice["text"] for choice in answer.json()["choices"]] if answer.status_code == 200 else answer.text
    _compare(case, texts, report)
    report.counts["whole"] += 1


async def _listen(client: httpx.AsyncClient, case: Case, report: Report) -> None:
    texts = [""] * len(case.texts)
    async with aclosing(_events(client, case, report)) as stream:
        async for event in stream:
            for choice in event["choices"]:
                texts[choice["index"]] += choice["text"]
    _compare(case, texts, report)
    report.counts["streamed"] += 1


async def _events(client: httpx.AsyncClient, case: Case, report: Report) -> AsyncGenerator[Any, None]:
    async with client.stream("POST", "/v1/completions", json={**case.body, "stream": True}) as stream:
        if stream.status_code != 200:
            report.wrong.append(f"{stream.status_code}: {(await stream.aread()).decode()}")
        async for line in stream.aiter_lines():
            data = line.removeprefix("data: ")
            if data and data != "[DONE]":
                yield json.loads(data)


def _compare(case: Case, texts: object, report: Report) -> None:
    if texts != case.texts:
        report.wrong.append(f"{texts} for {case}")


def _gauges(found: Server) -> dict[str, float]:
    text = found.client.get("/metrics").text
    requests = re.findall(r"^transduce:num_requests_(running|waiting)\{.*\} (\S+)", text, re.MULTILINE)
    usage = re.findall(r'^transduce:kv_cache_usage_perc\{kind="(self|cross)".*\} (\S+)', text, re.MULTILINE)
    return {name: float(value) for name, value in requests + usage}


def _resident(found: Server) -> int:
    """Of the server's process and its engine's, in KiB."""
    status = [Path(f"/proc/{process}/status").read_text() for process in (found.process.pid, found.engine())]
    return sum(int(re.findall(r"^VmRSS:\s+(\d+)", each, re.MULTILINE)[0]) for each in status)
