"""transduce transcribe --output-dir: which files it reads and writes, what a second run does, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.cli.conftest import FLAGS, Run, clip
from tests.folders import moonshine_folder
from transduce import LLM, SamplingParams, VadOptions, cli
from transduce.cli.inputs import AUDIO, Input, find, named

SHORT = ("--language", "fr", "--max-tokens", "6", *FLAGS)


def seen(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {".transduce.jsonl"}


def test_folders_are_transcribed_and_a_second_run_goes_on(run: Run, whisper: str, tmp_path: Path) -> None:
    talks, out = tmp_path / "talks", tmp_path / "made" / "out"
    (talks / "day").mkdir(parents=True)
    clip(talks / "day" / "one.wav", 200)
    clip(talks / "two.WAV", 900, seconds=2.5)
    (talks / "bad.mp3").write_bytes(b"noise")
    (talks / "notes.txt").write_text("no audio")
    command = ("transcribe", whisper, str(talks), "--output-dir", str(out), *SHORT)
    code, said, err = run(*command)
    assert (code, said) == (cli.FAILED, f"{out}: 2 transcribed, 1 failed\n")
    (line,) = err.splitlines()
    assert line.startswith(f"transduce: '{talks}/bad.mp3': cannot read audio file")
    assert seen(out) == {
        f"{name}.{form}" for name in ("day/one", "two") for form in ("txt", "srt", "vtt", "tsv", "json")
    }
    answer = json.loads((out / "two.json").read_text())
    assert (answer["task"], answer["language"], answer["duration"]) == ("transcribe", "fr", 2.5)
    assert answer["segments"][-1]["end"] <= 2.5

    (talks / "bad.mp3").unlink()
    (out / "two.srt").unlink()
    kept = (out / "day" / "one.srt").stat().st_mtime_ns
    with (out / ".transduce.jsonl").open("a") as file:
        file.write('{"source": "cut sho')
    assert run(*command) == (0, f"{out}: 1 transcribed, 0 failed, 1 from an earlier run\n", "")
    assert (out / "day" / "one.srt").stat().st_mtime_ns == kept
    assert (out / "two.srt").exists()

    clip(talks / "two.WAV", 3000)
    assert run(*command)[1] == f"{out}: 1 transcribed, 0 failed, 1 from an earlier run\n"
    assert run(*command) == (0, f"{out}: 0 transcribed, 0 failed, 2 from an earlier run\n", "")


def test_a_single_failure_and_results_that_cannot_be_written(run: Run, whisper: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ("--output-dir", str(out), "--format", "srt, json", "--word-timestamps", "--max-line-width", "20", *SHORT)
    code, said, err = run("transcribe", whisper, "none.wav", *flags)
    assert (code, said) == (cli.FAILED, f"{out}: 0 transcribed, 1 failed\n")
    assert err.startswith("transduce: 'none.wav': cannot read audio file 'none.wav': No such file")
    good, bad = clip(tmp_path / "good.wav", 200), clip(tmp_path / "bad.wav", 900)
    (out / "bad.json").mkdir()
    code, said, err = run("transcribe", whisper, good, bad, *flags)
    assert (code, said) == (cli.FAILED, f"{out}: 1 transcribed, 1 failed\n")
    assert err == f"transduce: '{bad}': cannot write its results: Is a directory\n"
    assert {"good.srt", "good.json"} <= seen(out) <= {"good.srt", "good.json", "bad.srt"}
    assert "words" in json.loads((out / "good.json").read_text())


def test_a_model_without_timestamps_has_files_too(run: Run, tmp_path: Path) -> None:
    model, out = moonshine_folder(tmp_path / "moonshine", 0), tmp_path / "out"
    sound = clip(tmp_path / "clip.wav", 200)
    assert run("transcribe", str(model), sound, "--output-dir", str(out), "--max-tokens", "5", *FLAGS)[0] == 0
    assert json.loads((out / "clip.json").read_text())["language"] == "en"


def test_the_flags_of_long_audio_arrive(
    monkeypatch: pytest.MonkeyPatch, run: Run, whisper: str, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {}

    def transcribe(llm: LLM, audio: list[str], **options: Any) -> list[Any]:
        asked.update(options)
        raise typer.Exit

    monkeypatch.setattr(LLM, "transcribe", transcribe)
    flags = (
        "--no-condition-on-previous-text",
        "--temperatures",
        "0,0.5",
        "--logprob-threshold",
        "none",
        "--vad-filter",
    )
    assert run("transcribe", whisper, "a.wav", *flags, "--compression-ratio-threshold", "2", *FLAGS)[0] == 0
    fallback = asked["fallback"]
    assert (asked["condition_on_previous_text"], asked["vad_filter"], fallback.temperatures) == (
        False,
        True,
        (0.0, 0.5),
    )
    assert (fallback.compression_ratio_threshold, fallback.logprob_threshold) == (2.0, None)
    more = (
        "--beam-width",
        "3",
        "--best-of",
        "2",
        "--suppress-tokens",
        "-1,7",
        "--vad-threshold",
        "0.3",
        "--top-k",
        "4",
    )
    assert run("transcribe", whisper, "a.wav", *more, *FLAGS)[0] == 0
    assert (asked["beam_size"], asked["best_of"], asked["suppress_tokens"]) == (3, 2, "-1,7")
    assert (asked["vad_filter"], asked["sampling_params"]) == (VadOptions(threshold=0.3), SamplingParams(top_k=4))
    asked.clear()
    assert run("transcribe", whisper, "a.wav", *FLAGS)[0] == 0
    assert (asked["condition_on_previous_text"], asked["fallback"], asked["vad_filter"]) == (True, None, False)
    assert "beam_size" not in asked


def test_channels_are_told_apart(run: Run, whisper: str, tmp_path: Path) -> None:
    sound, out = clip(tmp_path / "both.wav", 200, channels=2), tmp_path / "out"
    flags = ("--channels", "separate", "--temperature", "0.8", "--output-dir", str(out), "--format", "json", *SHORT)
    assert run("transcribe", whisper, sound, *flags)[0] == 0
    assert {segment["channel"] for segment in json.loads((out / "both.json").read_text())["segments"]} == {1, 2}


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--format", "srt"), "give --output-dir too"),
        (("--max-line-count", "2"), "give --output-dir too"),
        (("--output-dir", "out", "--json"), "give --format json instead of --json"),
        (("--output-dir", "out", "--format", "srt,doc"), "--format 'doc': give some of txt,srt,vtt,tsv,json"),
        (("--output-dir", "out", "--max-line-count", "2"), "give max_line_width too"),
        (("--output-dir", "clip.wav"), "--output-dir 'clip.wav' is a file; give a folder"),
        (("--temperatures", "0,hot"), "temperatures has 'hot'"),
        (("--temperatures", "0,-1"), "temperatures has '-1'"),
        (("--temperatures", "0", "--temperature", "0"), "give either this or --temperatures"),
        (("--logprob-threshold", "low"), "logprob_threshold='low': give a number, or none"),
        (("--logprob-threshold", "nan"), "logprob_threshold=nan: give a number in [-inf, inf]"),
        (("--beam-size", "2", "--beam-width", "3"), "--beam-width is the same as --beam-size"),
        (("--patience", "2"), "patience=2.0: it is for beams; give a beam_size above 1"),
        (("--clip-timestamps", "2,1"), "clip_timestamps=[2.0, 1.0]: 1 is not after 2"),
        (("--vad-threshold", "2"), "vad threshold 2.0: give more than 0 and at most 1"),
        (("--channels", "left"), "channels='left': give mix or separate"),
        (("empty",), "'empty': there are no audio files in this folder"),
    ],
)
def test_refusals(
    flags: tuple[str, ...], complaint: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "clip.wav").touch()
    code, out, err = run("transcribe", "./nowhere", "clip.wav", *flags)
    assert (code, out) == (cli.WRONG, "")
    assert complaint in err


def test_files_of_folders_are_found_in_order(tmp_path: Path) -> None:
    for name in ("b.ogg", "a/z.M4A", "a/.hidden.wav", ".git/x.wav", "a.wav/c.mp3", "read.me"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = find([str(tmp_path / "read.me"), str(tmp_path)], AUDIO)
    assert [str(each.within) for each in found] == ["read.me", "a/z.M4A", "a.wav/c.mp3", "b.ogg"]
    assert [each.path for each in found] == [str(tmp_path / each.within) for each in found]
    assert {".wav", ".mp3", ".m4a", ".flac", ".ogg", ".webm", ".mp4"} <= AUDIO.suffixes


@pytest.mark.parametrize(
    ("ways", "known", "names"),
    [
        (["one.wav", "day/one.wav"], {}, ["one", "day/one"]),
        (["one.wav", "one.mp3", "two.wav"], {}, ["one.wav", "one.mp3", "two"]),
        (["one.wav", "ONE.mp3"], {}, ["one.wav", "ONE.mp3"]),
        (["one.wav", "one.wav"], {}, ["one.wav", "one.wav-2"]),
        (["one.wav"], {"/elsewhere/one.wav": "one"}, ["one.wav"]),
        (["one.wav"], {"/0/one.wav": "kept"}, ["kept"]),
        (["one.wav.mp3", "one.wav", "one.ogg"], {}, ["one.wav", "one.wav-2", "one.ogg"]),
    ],
)
def test_names_do_not_collide(ways: list[str], known: dict[str, str], names: list[str]) -> None:
    files = [Input(f"/{number}/{way}", Path(way)) for number, way in enumerate(ways)]
    assert [*named(files, known).values()] == names
