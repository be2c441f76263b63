"""Batches: the two files' format, going on after an interruption, and what the app is asked."""

import asyncio
import base64
import json
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.datastructures import UploadFile

from tests.folders import text_folder
from transduce import LLM, ConfigError, cli
from transduce.server import batch

GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 16}


class Server:
    """An app that answers with the prompt in capitals, refuses "bad", and has an engine that may end."""

    def __init__(self, ends: int = 0) -> None:
        self.app = FastAPI()
        self.app.post("/v1/completions")(self.complete)
        for url in batch.AUDIO:
            self.app.post(url)(self.hear)
        self.app.get("/ready")(self.ready)
        self.asked: list[str] = []
        self.running = self.most = 0
        self._ends = ends
        self._restarting = 0

    async def complete(self, http: Request) -> Response:
        prompt = (await http.json())["prompt"]
        self.asked.append(prompt)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)  # others may come in
        self.running -= 1
        headers = {"x-request-id": f"request-{len(self.asked)}"}
        if self._ends:
            self._ends -= 1
            self._restarting = 2
            return JSONResponse({"error": {"message": "the engine process ended"}}, 503, headers)
        if prompt == "bad":
            return JSONResponse({"error": {"message": "bad is refused"}}, 400, headers)
        usage = {"prompt_tokens": len(prompt), "completion_tokens": 1}
        return JSONResponse({"choices": [{"text": prompt.upper()}], "usage": usage}, 200, headers)

    async def hear(self, http: Request) -> Response:
        """What it was sent, as text or as JSON."""
        async with http.form() as form:
            clip = form["file"]
            assert isinstance(clip, UploadFile)
            fields = {name: form.getlist(name) for name in form if name != "file"}
            said = {
                "file": (await clip.read()).decode(),
                "fields": fields,
                "usage": {"input_tokens": 9, "output_tokens": 2},
            }
        headers = {"x-request-id": "request-1"}
        if fields.get("response_format") == ["text"]:
            return PlainTextResponse(said["file"], headers=headers)
        return JSONResponse(said, headers=headers)

    async def ready(self) -> Response:
        self._restarting = max(0, self._restarting - 1)
        return Response(status_code=503 if self._restarting else 200)


def request(name: str, prompt: str = "hi", **fields: Any) -> dict[str, Any]:
    body = {"model": "m", "prompt": prompt}
    return {"custom_id": name, "method": "POST", "url": "/v1/completions", "body": body} | fields


def written(file: Path, requests: Sequence[Mapping[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(each) + "\n" for each in requests))
    return file


def results(file: Path) -> dict[str, Any]:
    rows = [json.loads(row) for row in file.read_text().splitlines()]
    found = {row["custom_id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def make(
    server: Server, lines: Sequence[batch.Line], out: Path, at_once: int = 4
) -> tuple[int, list[tuple[int, int, int]]]:
    """Run the lines that have no result yet."""
    progress: list[tuple[int, int, int]] = []
    with batch.Results(out) as kept:
        todo = [line for line in lines if line.custom_id not in kept.done]
        run = batch.run(server.app, todo, kept, at_once, lambda *counts: progress.append(counts))
        return asyncio.run(run), progress


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def lines(tmp_path: Path, *requests: Mapping[str, Any]) -> list[batch.Line]:
    return batch.read(written(tmp_path / "in.jsonl", requests))


def test_every_request_gets_a_result_in_openais_form(tmp_path: Path, out: Path) -> None:
    succeeded, progress = make(Server(), lines(tmp_path, request("a", "hello"), request("b", "bad")), out)
    assert succeeded == 1
    assert sorted(progress) == [(1, 0, 0), (1, 5, 1)]
    found = results(out)
    assert set(found) == {"a", "b"}
    for row in found.values():
        assert list(row) == ["id", "custom_id", "response", "error"]
        assert row["id"].startswith("batch_req_")
        assert row["response"]["request_id"].startswith("request-")
        assert row["error"] is None
    assert found["a"]["response"]["status_code"] == 200
    assert found["a"]["response"]["body"]["choices"][0]["text"] == "HELLO"
    assert found["b"]["response"]["status_code"] == 400
    assert found["b"]["response"]["body"] == {"error": {"message": "bad is refused"}}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"url": "/v1/embeddings"}, "url='/v1/embeddings'"),
        ({"url": "/metrics"}, "url='/metrics'"),
        ({"url": None}, "url=None"),
        ({"method": "GET"}, "method='GET'"),
        ({"body": "hello"}, "body"),
        ({"body": {"prompt": "hello", "stream": True}}, "stream"),
    ],
)
def test_what_cannot_be_asked_is_that_lines_error(fields: Any, named: str, tmp_path: Path, out: Path) -> None:
    server = Server()
    succeeded, _ = make(server, lines(tmp_path, request("a") | fields, request("b")), out)
    assert succeeded == 1
    assert len(server.asked) == 1
    found = results(out)
    assert found["a"]["response"] is None
    assert found["a"]["error"]["code"] == "invalid_request"
    assert named in found["a"]["error"]["message"]
    assert found["b"]["error"] is None


def test_clips_are_posted_in_forms(tmp_path: Path, out: Path) -> None:
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips" / "a.wav").write_text("from a file")
    url = "data:audio/wav;base64," + base64.b64encode(b"from a URL").decode()
    more = {"temperature": 0, "seed": 7, "language": None, "stop": ["a", "b"], "prompt": "é"}
    asked = [
        request("a", url=batch.AUDIO[0], body={"file": "clips/a.wav", "response_format": "text"}),
        request("b", url=batch.AUDIO[1], body={"file": url, **more}),
    ]
    succeeded, progress = make(Server(), lines(tmp_path, *asked), out)
    assert (succeeded, sorted(progress)) == (2, [(1, 0, 0), (1, 9, 2)])
    found = results(out)
    assert found["a"]["response"]["body"] == "from a file"
    heard = found["b"]["response"]["body"]
    assert heard["file"] == "from a URL"
    assert heard["fields"] == {"temperature": ["0"], "seed": ["7"], "stop[]": ["a", "b"], "prompt": ["é"]}


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (None, "body.file=None: give the path"),
        (7, "body.file=7: give the path"),
        ("https://example.com/a.wav", "nothing is fetched from elsewhere"),
        ("none.wav", "No such file"),
        (".", "Is a directory"),
        ("a\0b", "null"),
        ("../other.wav", "outside of the batch file's folder"),
        ("/etc/hostname", "outside of the batch file's folder"),
        ("link.wav", "outside of the batch file's folder"),
        ("data:audio/wav,abc", "'data:audio/wav,abc': give the path"),
        ("data:audio/wav;base64,a?", "'data:audio/wav;base64,a?': "),
    ],
)
def test_a_clip_that_cannot_be_had_is_that_lines_error(source: Any, named: str, tmp_path: Path, out: Path) -> None:
    folder = tmp_path / "batch"
    folder.mkdir()
    (tmp_path / "other.wav").write_text("private")
    (folder / "link.wav").symlink_to(tmp_path / "other.wav")
    succeeded, _ = make(Server(), lines(folder, request("a", url=batch.AUDIO[0], body={"file": source})), out)
    error = results(out)["a"]["error"]
    assert (succeeded, error["code"]) == (0, "invalid_request")
    assert named in error["message"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"custom_id": "a"}\n{"custom_id": "b"}\n\n{"custom_id": "a"}\n', "'a' more than once"),
        ('{"custom_id": "a"}\nhello\n', "line 2 is no JSON"),
        ('{"custom_id": "a"}\n\n[1]\n', "line 3 is no JSON object"),
        ('{"method": "POST"}\n', "line 1: custom_id=None"),
        ('{"custom_id": 7}\n', "line 1: custom_id=7"),
        ('{"custom_id": ""}\n', "line 1: custom_id=''"),
        (b"\xff\n", "UTF-8"),
    ],
)
def test_files_whose_results_could_not_be_known_apart_are_refused(
    text: str | bytes, named: str, tmp_path: Path
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=named):
        batch.read(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.jsonl"):
        batch.read(tmp_path / "none.jsonl")


def test_separators_within_texts_do_not_break_lines(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps(request("a\u2028b\x85"), ensure_ascii=False) + "\r\n\n", newline="")
    assert [line.custom_id for line in batch.read(file)] == ["a\u2028b\x85"]


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_so_many_run_side_by_side_and_no_more(at_once: int, tmp_path: Path, out: Path) -> None:
    server = Server()
    make(server, lines(tmp_path, *[request(str(number)) for number in range(20)]), out, at_once)
    assert server.most == min(at_once, 20)
    assert len(results(out)) == 20


def test_a_second_run_makes_what_is_missing(tmp_path: Path, out: Path) -> None:
    wanted = lines(tmp_path, *[request(name, name) for name in "abcd"])
    make(Server(), wanted[:2], out)
    before = out.read_bytes()
    server = Server()
    succeeded, _ = make(server, wanted, out)
    assert succeeded == 2
    assert server.asked == ["c", "d"]
    assert out.read_bytes().startswith(before)
    assert set(results(out)) == set("abcd")


def test_a_result_torn_anywhere_is_made_again(tmp_path: Path, out: Path) -> None:
    wanted = lines(tmp_path, request("a", "a"), request("b", "b"))
    make(Server(), wanted, out, at_once=1)
    whole = out.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first + 1, len(whole)):
        out.write_bytes(whole[:end])
        with batch.Results(out) as kept:
            assert kept.done == {"a"}
        assert out.read_bytes() == whole[:first]
    server = Server()
    make(server, wanted, out)
    assert server.asked == ["b"]
    assert set(results(out)) == {"a", "b"}


@pytest.mark.parametrize(
    "content", [b"notes of mine", b"notes\n", b'{"custom_id": "a"}\n', b"{}", b"\n", json.dumps(request("a")).encode()]
)
def test_a_file_of_something_else_is_left_alone(content: bytes, out: Path) -> None:
    out.write_bytes(content)
    with pytest.raises(ConfigError, match=r"out\.jsonl', line 1"):
        batch.Results(out)
    assert out.read_bytes() == content


def test_two_runs_do_not_write_to_one_file(out: Path) -> None:
    with batch.Results(out), pytest.raises(ConfigError, match="another run"):
        batch.Results(out)
    batch.Results(out).__exit__()


def test_a_file_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none/out\.jsonl"):
        batch.Results(tmp_path / "none" / "out.jsonl")


def test_a_request_is_made_again_when_the_engine_ended_under_it(tmp_path: Path, out: Path) -> None:
    server = Server(ends=batch.TRIES - 1)
    succeeded, _ = make(server, lines(tmp_path, request("a")), out)
    assert succeeded == 1
    assert len(server.asked) == batch.TRIES


def test_a_request_that_ends_every_engine_is_given_up(tmp_path: Path, out: Path) -> None:
    server = Server(ends=batch.TRIES)
    succeeded, _ = make(server, lines(tmp_path, request("a"), request("b")), out, at_once=1)
    assert succeeded == 1
    found = results(out)
    assert found["a"]["response"]["status_code"] == 503
    assert found["b"]["response"]["status_code"] == 200


def test_a_full_disk_ends_the_run_and_the_next_goes_on(tmp_path: Path, out: Path) -> None:
    wanted = lines(tmp_path, *[request(name, name) for name in "abc"])
    make(Server(), wanted[:1], out)
    size = out.stat().st_size
    server = Server()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            make(server, wanted, out, at_once=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert server.asked == ["b"]
    make(Server(), wanted, out)
    assert set(results(out)) == set("abc")


def test_the_command_answers_as_the_offline_api_and_goes_on(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRANSDUCE_CPU_KVCACHE_SPACE", "0.001")
    model = str(text_folder(tmp_path, GENERATION))
    prompts = ["hello", "a cab", "the end"]
    offline = {one.encoder_prompt: one.outputs[0].text for one in LLM(model, dtype="float32").generate(prompts)}
    scored = request("scored", url="/v1/score_target", body={"source": "hello", "target": "x"})
    requests = [scored, *(request(prompt, prompt) for prompt in prompts)]
    file = written(
        tmp_path / "in.jsonl",
        [*requests, request("unfit") | {"body": {"prompt": "hi", "max_tokens": -1}}, request("other", url="/v1/files")],
    )
    make(Server(), batch.read(file)[1:2], out)

    capsys.readouterr()
    command = ["run-batch", "-i", str(file), "-o", str(out), model, "--served-model-name=m", "--dtype=float32"]
    assert cli.main(command) == 0
    said = capsys.readouterr()
    assert said.out == f"{out}: 3 succeeded, 2 failed, 1 from an earlier run\n"
    assert said.err == ""
    found = results(out)
    for prompt in prompts[1:]:
        assert found[prompt]["response"]["body"]["choices"][0]["text"] == offline[prompt]
    assert found["scored"]["response"]["body"]["data"][0]["total_logprob"] < 0
    assert found["unfit"]["response"]["status_code"] == 400
    assert found["other"]["response"] is None

    before = out.read_bytes()
    assert cli.main(command) == 0
    assert capsys.readouterr().out == f"{out}: 0 succeeded, 0 failed, 6 from an earlier run\n"
    assert out.read_bytes() == before


def test_the_command_refuses_a_wrong_file(tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "in.jsonl", [request("a"), request("a")])
    assert cli.main(["run-batch", "-i", str(file), "-o", str(out), "no-such-model"]) == cli.WRONG
    said = capsys.readouterr().err
    assert "'a' more than once" in said
    assert len(said.splitlines()) == 1
    assert not out.exists()
