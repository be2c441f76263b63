"""transduce quantize: what it says, and that its folder is a MODEL."""

import re
from pathlib import Path

import pytest

from tests.cli.conftest import FLAGS, Run, clip
from transduce import cli
from transduce.cli import terminal


def test_the_folder_it_writes_is_a_model(run: Run, bart: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    code, said, err = run("quantize", bart, out)
    assert (code, err) == (0, "")
    assert re.fullmatch(re.escape(out) + r": \d+ layers in int8, 0 kept, 0\.1 MB to 0\.1 MB\n", said)
    expected = run("generate", bart, "hello", "a cab", "--quantization", "int8", "--json", "--logprobs", "0", *FLAGS)
    assert expected[0] == 0
    assert run("generate", out, "hello", "a cab", "--json", "--logprobs", "0", *FLAGS) == expected
    plain = run("generate", bart, "hello", "a cab", "--json", "--logprobs", "0", *FLAGS)
    assert plain != expected


def test_layers_are_kept(run: Run, bart: str, tmp_path: Path) -> None:
    out, keep = str(tmp_path / "out"), ("--keep", "shared", "--keep", "*.fc2")
    assert ", 5 kept, " in run("quantize", bart, out, *keep)[1]
    answer = run("generate", out, "hello", "--json", "--logprobs", "0", *FLAGS)
    flags = ("--json", "--logprobs", "0", "--quantization", "int8", *keep, *FLAGS)
    assert run("generate", bart, "hello", *flags) == answer


def test_speech_too(run: Run, whisper: str, tmp_path: Path) -> None:
    out, sound = str(tmp_path / "out"), clip(tmp_path / "clip.wav", 300)
    assert run("quantize", whisper, out)[0] == 0
    flags = ("--language", "de", *FLAGS)
    answer = run("transcribe", out, sound, *flags)
    assert answer == run("transcribe", whisper, sound, "--quantization", "int8", *flags)
    assert answer[0] == 0


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--keep", "nothing"), "no layer matches 'nothing'"),
        (("--scheme", "int3"), "quantization='int3': there is no such scheme; give one of bitsandbytes"),
        (("--scheme", "bitsandbytes"), "quantization='bitsandbytes': such weights are made while a model is loaded"),
    ],
)
def test_refusals(flags: tuple[str, ...], complaint: str, run: Run, bart: str, tmp_path: Path) -> None:
    code, out, err = run("quantize", bart, str(tmp_path / "out"), *flags)
    assert (code, out) == (cli.WRONG, "")
    assert err.startswith(f"transduce: {complaint}")
    assert not list(tmp_path.iterdir())


def test_what_is_watched_comes_through_and_draws_nothing_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert [*terminal.watched(iter("abc"))] == ["a", "b", "c"]
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")
