"""transduce bench serve, against a server that answers as it is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.conftest import Run
from tests.bench.support import Answer, Posted, clip, completion, serving, transcription
from transduce import cli

SMALL = ("--num-prompts", "4", "--input-len", "5", "--output-len", "3")


def rows(table: str) -> dict[str, list[str]]:
    """Each row's cells by its name."""
    lines = [[cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in table.splitlines()]
    return {name: cells for name, *cells in lines if cells}


def test_a_sweep_counts_exactly(run: Run, tmp_path: Path) -> None:
    out, drawn = tmp_path / "out.json", tmp_path / "out.png"
    with serving(completion) as fake:
        code, said, err = run(
            *("serve", "--base-url", fake.url, "--concurrency", "1,2", "--seed", "5", *SMALL),
            *("--goodput", "ttft:60000", "--json", str(out), "--plot", str(drawn)),
        )
    assert (code, err) == (0, "")
    table = rows(said)
    assert table[""] == ["1 client", "2 clients"]
    assert table["completed requests"] == ["4", "4"]
    assert table["prompt tokens"] == ["20", "20"]
    assert table["output tokens"] == ["12", "12"]
    assert table["goodput (requests/s)"] == table["requests/s"]
    assert drawn.stat().st_size > 1_000
    document = json.loads(out.read_text())
    assert (document["model"], document["seed"], document["goodput"]) == ("fake", 5, {"ttft": 60_000.0})
    assert [level["concurrency"] for level in document["levels"]] == [1, 2]
    assert [len(level["requests"]) for level in document["levels"]] == [4, 4]
    assert document["levels"][0]["requests"][0]["output_tokens"] == 3
    assert document["figures"]["1 client"]["completed"] == 4
    assert len(fake.posted) == 9  # one before them


def test_what_is_sent(run: Run) -> None:
    with serving(completion) as fake:
        flags = (
            "--model",
            "m",
            "--extra-body",
            '{"top_k": 2, "temperature": 1}',
            "--api-key",
            "ké",
            "--num-warmups",
            "0",
        )
        assert run("serve", "--base-url", fake.url, *flags, *SMALL)[0] == 0
    bodies = [posted.body for posted in fake.posted]
    assert len({tuple(body.pop("prompt")) for body in bodies}) == 4
    drawn: dict[str, Any] = {"max_tokens": 3, "ignore_eos": True, "skip_special_tokens": False}
    given: dict[str, Any] = {"model": "m", "temperature": 1, "top_k": 2}
    assert bodies == [{**drawn, **given, "stream": True, "stream_options": {"include_usage": True}}] * 4
    assert {posted.path for posted in fake.posted} == {"/v1/completions"}
    assert {posted.headers["authorization"] for posted in fake.posted} == {"Bearer ké".encode().decode("latin-1")}


def test_unstreamed(run: Run) -> None:
    with serving(completion) as fake:
        code, said, _ = run("serve", "--base-url", fake.url, "--no-stream", "--request-rate", "500,inf", *SMALL)
    table = rows(said)
    assert (code, table[""]) == (0, ["500/s", "all at once"])
    assert table["output tokens"] == ["12", "12"]
    assert "TTFT mean (ms)" not in table
    assert all("stream" not in posted.body for posted in fake.posted)


def test_audio(run: Run, tmp_path: Path) -> None:
    clip(tmp_path / "a.wav", 1.5)
    clip(tmp_path / "b.wav", 0.5)
    flags = ("--dataset-name", "audio", "--dataset-path", str(tmp_path), "--extra-body", '{"language": "en"}')
    with serving(transcription) as fake:
        code, said, err = run("serve", "--base-url", fake.url, *flags, "--json", str(tmp_path / "out.json"))
    assert (code, err) == (0, "")
    assert rows(said)["output tokens"] == ["4"]
    assert "audio seconds/s" in rows(said)
    assert json.loads((tmp_path / "out.json").read_text())["figures"]["all at once"]["audio_seconds"] == 2.0
    assert {posted.path for posted in fake.posted} == {"/v1/audio/transcriptions"}
    for posted in fake.posted:
        for field in (b'name="language"\r\n\r\nen', b'name="stream"\r\n\r\ntrue', b'name="model"\r\n\r\nfake', b"RIFF"):
            assert field in posted.content


def test_another_endpoint_and_lines_of_a_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "ab", "max_tokens": 2}\n{"prompt": "abc", "max_tokens": 5}\n')
    with serving(completion) as fake:
        flags = ("--dataset-name", "jsonl", "--dataset-path", str(file), "--endpoint", "/other", "--concurrency", "1")
        code, said, _ = run("serve", "--base-url", fake.url, *flags)
    assert (code, rows(said)["output tokens"], rows(said)["prompt tokens"]) == (0, ["7"], ["5"])
    assert {posted.path for posted in fake.posted} == {"/other"}


def test_failures_are_counted_and_shown(run: Run) -> None:
    def answer(posted: Posted) -> Answer:
        busy = Answer([b'{"error": {"message": "busy"}}'], status=429)
        return busy if len(fake.posted) in (2, 4) else completion(posted)

    with serving(answer) as fake:
        code, said, err = run("serve", "--base-url", fake.url, "--concurrency", "1", *SMALL)
    assert (code, err) == (cli.FAILED, "transduce: 1 client: 2 of 4 requests failed: HTTP 429: busy\n")
    assert (rows(said)["completed requests"], rows(said)["failed requests"]) == (["2"], ["2"])


@pytest.mark.parametrize(
    ("status", "message", "hint"),
    [
        (400, "no", ""),
        (
            400,
            "the prompt has token id 882; this model's go from 0 to 58",
            " (random texts are token ids below --vocab-size",
        ),
        (400, "Token id 882 is out of vocabulary", " (random texts are token ids below --vocab-size"),
        (400, "the prompt has 600 tokens and the model takes 512", " (--input-len and --output-len say how long"),
        (400, "messages is missing; give it", " (chats are not measured"),
        (400, "Unrecognized request argument supplied: skip_special_tokens", " (random texts ask for this extension"),
        (422, "stream_options is not supported", " (--no-stream asks for whole answers)"),
        (401, "a token is missing", " (give a key with --api-key"),
        (404, "Not Found", " (--endpoint and --dataset-name choose where requests go"),
    ],
)
def test_where_the_first_request_fails_no_load_is_sent(status: int, message: str, hint: str, run: Run) -> None:
    answer = Answer([json.dumps({"error": {"message": message}}).encode()], status=status)
    with serving(lambda posted: answer) as fake:
        code, said, err = run("serve", "--base-url", f"{fake.url}/v1/", *SMALL)
    assert (code, said, len(fake.posted)) == (cli.FAILED, "", 1)
    told = f"transduce: {fake.url}/v1/completions: a first request failed: HTTP {status}: {message}"
    assert err.startswith(f"{told}{hint}")
    assert hint or err == f"{told}\n"


def test_where_there_is_no_server(run: Run) -> None:
    with serving(completion) as fake:
        pass
    code, said, err = run("serve", "--base-url", fake.url)
    assert (code, said) == (cli.FAILED, "")
    assert f"{fake.url}/v1/models does not answer" in err
    assert "is a server running there?" in err


@pytest.mark.parametrize(
    ("models", "complaint"),
    [
        (Answer([b"{}"], status=401), "/v1/models asks for a key; give one with --api-key, or in OPENAI_API_KEY"),
        (Answer([b"{}"], status=503), "/v1/models names no model (status 503); check --base-url, or give --model"),
        (Answer([b"{}"]), "/v1/models names no model (status 200); check --base-url, or give --model"),
    ],
)
def test_where_no_model_is_named(models: Answer, complaint: str, run: Run) -> None:
    with serving(completion, models) as fake:
        code, said, err = run("serve", "--base-url", fake.url)
    assert (code, said, err) == (cli.FAILED, "", f"transduce: {fake.url}{complaint}\n")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--goodput", "itl:5"), "give ttft, tpot, e2e"),
        (("--goodput", "ttft:5", "--no-stream"), "only e2e is known then"),
        (("--extra-body", "{"), "--extra-body '{'"),
        (("--extra-body", "[]"), "give a JSON object"),
        (("--concurrency", "0"), "concurrency 0"),
        (("--dataset-name", "audio"), "audio that of a folder"),
        (("--base-url", "nowhere"), "give one such as http"),
        (("--base-url", "http://127.0.0.1:99999"), "give one such as http"),
        (("--seed", "-1"), "'--seed'"),
        (("--timeout", "0"), "'--timeout'"),
        (("--num-warmups", "-1"), "'--num-warmups'"),
        (("--noise", "-1"), "'--noise'"),
        (("--json", "/nowhere/out.json"), "there is no folder '/nowhere'"),
        (("--plot", "/nowhere/out.png"), "there is no folder '/nowhere'"),
        (("--num-prompts", "0"), "give at least 1"),
    ],
)
def test_flags_that_are_refused(flags: tuple[str, ...], complaint: str, run: Run) -> None:
    code, out, err = run("serve", *flags)
    assert (code, out) == (cli.WRONG, "")
    assert complaint in err
