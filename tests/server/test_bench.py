"""`transduce bench serve` against the real server: what it counts is what the server made."""

from pathlib import Path

import pytest

from tests.bench.support import clip
from tests.bench.test_serve import rows
from tests.server.live import Live
from transduce import cli

RANDOM = ("--num-prompts", "6", "--vocab-size", "49", "--input-len", "9", "--output-len", "5")


def bench(served: Live, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, list[str]]:
    code = cli.main(["bench", "serve", "--base-url", str(served.http.base_url), *flags])
    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    return rows(said.out)


@pytest.mark.parametrize("form", ["--stream", "--no-stream"])
def test_texts(form: str, text: Live, capsys: pytest.CaptureFixture[str]) -> None:
    table = bench(text, capsys, "--concurrency", "1,3", form, *RANDOM)
    assert (table["completed requests"], table["output tokens"]) == (["6", "6"], ["30", "30"])
    assert table["prompt tokens"] == ["60", "60"]  # with the decoder's start
    assert ("TTFT mean (ms)" in table) == (form == "--stream")


def test_clips(speech: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clip(tmp_path / "a.wav", 0.5)
    flags = ("--dataset-name", "audio", "--dataset-path", str(tmp_path), "--num-prompts", "2")
    table = bench(speech, capsys, *flags, "--extra-body", '{"language": "en"}')
    assert table["completed requests"] == ["2"]
    assert {"TTFT mean (ms)", "audio seconds/s", "output tokens/s"} <= table.keys()
