"""The command line: what is printed where, in which order, with which exit code."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import wave
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.folders import text_folder, whisper_folder
from transduce import LLM, BeamSearchParams, SamplingParams, cli
from transduce.errors import EngineError

GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 16}
FLAGS = ("--dtype", "float32", "--max-num-seqs", "4")
ENTRY = "import sys; from transduce.cli import main; sys.exit(main())"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", autouse=True)
def small_cache() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSDUCE_CPU_KVCACHE_SPACE", "0.001")
        yield


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(text_folder(tmp_path_factory.mktemp("bart"), GENERATION))


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(whisper_folder(tmp_path_factory.mktemp("whisper"), seed=0))


@pytest.fixture(scope="module")
def answers(bart: str) -> dict[str, str]:
    texts = ["hello", "a cab", "the end"]
    outputs = LLM(bart, dtype="float32").generate(texts)
    found = {text: output.outputs[0].text for text, output in zip(texts, outputs, strict=True)}
    assert len(set(found.values())) == len(texts)
    return found


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Ctrl-C as it was, where a command that it ended has it ignored."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_texts_are_answered_in_order(run: Run, bart: str, answers: dict[str, str]) -> None:
    code, out, err = run("generate", bart, *answers, *FLAGS)
    assert (code, out.splitlines(), err) == (0, [*answers.values()], "")


def test_texts_come_from_a_file(run: Run, bart: str, answers: dict[str, str], tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"\xef\xbb\xbfa cab\r\nthe end\n")
    code, out, _ = run("generate", bart, "hello", "--file", str(lines), *FLAGS)
    assert (code, out.splitlines()) == (0, [answers["hello"], answers["a cab"], answers["the end"]])


@pytest.mark.parametrize("form", [("-",), ("--file", "-")])
def test_texts_come_from_stdin(
    form: tuple[str, ...], run: Run, bart: str, answers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = io.BytesIO(b"\xef\xbb\xbfhello\r\nthe end\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(piped, newline="\n"))  # as Python opens stdin
    code, out, _ = run("generate", bart, *form, *FLAGS)
    assert (code, out.splitlines()) == (0, [answers["hello"], answers["the end"]])


def test_json_lines(run: Run, bart: str, answers: dict[str, str]) -> None:
    code, out, _ = run("generate", bart, "hello", "--json", "--n", "2", "--temperature", "1", "--seed", "5", *FLAGS)
    (line,) = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert (line["prompt"], line["error"], line["truncated"]) == ("hello", None, 0)
    assert [answer["index"] for answer in line["outputs"]] == [0, 1]
    assert all(answer["finish_reason"] in {"stop", "length"} for answer in line["outputs"])


def test_sampling_flags_arrive(run: Run, bart: str, answers: dict[str, str]) -> None:
    text = answers["hello"]
    assert run("generate", bart, "hello", "--max-tokens", "3", *FLAGS)[1].strip() == text[:3]
    assert (
        run("generate", bart, "hello", "--stop", text[4:6], "--stop", "?", *FLAGS)[1].strip()
        == text[: text.index(text[4:6])]
    )


def test_lengths_and_logprobs_arrive(run: Run, bart: str) -> None:
    flags = ("--truncate-prompt-tokens", "3", "--ignore-eos", "--max-tokens", "30", "--logprobs", "2", "--json")
    code, out, _ = run("generate", bart, "a" * 99, *flags, *FLAGS)
    line = json.loads(out)
    (answer,) = line["outputs"]
    assert (code, line["truncated"], len(answer["token_ids"])) == (0, 98, 30)
    assert {len(position) for position in answer["logprobs"]} <= {2, 3}


def test_a_beam_width_of_one_is_greedy_where_the_checkpoint_asks_for_beams(
    run: Run, answers: dict[str, str], tmp_path: Path
) -> None:
    beams = str(text_folder(tmp_path, GENERATION | {"num_beams": 4}))
    assert run("generate", beams, "hello", "--beam-width", "1", *FLAGS)[:2] == (0, answers["hello"] + "\n")
    code, _, err = run("generate", beams, "hello", *FLAGS)
    assert code == cli.FAILED
    assert "BeamSearchParams(beam_width=1) or --beam-width 1" in err
    assert "a temperature above 0" in err


def test_another_tokenizer_is_used(run: Run, bart: str, answers: dict[str, str], tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (bare / name).symlink_to(Path(bart) / name)
    assert run("generate", str(bare), "hello", "--tokenizer", bart, *FLAGS)[1] == answers["hello"] + "\n"


def test_a_bad_text_costs_no_other_its_answer(run: Run, bart: str, answers: dict[str, str]) -> None:
    code, out, err = run("generate", bart, "hello", "", "a" * 99, "the end", *FLAGS)
    assert code == cli.FAILED
    assert out.splitlines() == [answers["hello"], "", "", answers["the end"]]
    first, second = err.splitlines()
    assert first.startswith("transduce: '': the prompt '' is empty")
    assert "takes 64" in second


def test_a_single_bad_text_is_one_line(run: Run, bart: str) -> None:
    code, out, err = run("generate", bart, "", *FLAGS)
    assert (code, out) == (cli.FAILED, "")
    assert err.splitlines() == ["transduce: the prompt '' is empty; give at least one word or token id"]


@pytest.mark.parametrize("sources", [("",), ("", "a" * 99)])
def test_refused_texts_are_objects_too(run: Run, bart: str, sources: tuple[str, ...]) -> None:
    code, out, err = run("generate", bart, *sources, "--json", *FLAGS)
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, [line["prompt"] for line in lines]) == (cli.FAILED, [*sources])
    assert {frozenset(line) for line in lines} == {frozenset({"prompt", "outputs", "truncated", "error"})}
    assert lines[0]["error"] == "the prompt '' is empty; give at least one word or token id"
    assert [answer["finish_reason"] for line in lines for answer in line["outputs"]] == ["error"] * len(sources)
    assert len(err.splitlines()) == len(sources)


def test_a_single_refused_clip_is_an_object_too(run: Run, whisper: str) -> None:
    code, out, err = run("transcribe", whisper, "none.wav", "--language", "fr", "--json", *FLAGS)
    line = json.loads(out)
    assert (code, line["audio"], line["text"], line["language"]) == (cli.FAILED, "none.wav", "", "fr")
    assert err == f"transduce: {line['error']}\n"


def test_a_failed_step_is_a_failed_input(monkeypatch: pytest.MonkeyPatch, run: Run, bart: str) -> None:
    def failed(*arguments: object, **options: object) -> None:
        raise EngineError("a step failed")

    monkeypatch.setattr(LLM, "generate", failed)
    code, out, err = run("generate", bart, "hello", "--json", *FLAGS)
    assert (code, json.loads(out)["error"], err) == (cli.FAILED, "a step failed", "transduce: a step failed\n")


@pytest.mark.parametrize("form", [("-",), ("--file", "-")])
def test_stdin_that_is_no_text(form: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n")))
    code, out, err = run("generate", "./nowhere", *form)
    assert (code, out) == (cli.WRONG, "")
    assert err.startswith("transduce: Invalid value: cannot read '-': 'utf-8' codec can't decode byte 0xff")


def test_stdin_that_is_closed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    code, _, err = run("generate", "./nowhere", "-")
    assert (code, "no texts" in err) == (cli.WRONG, True)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_names_that_are_no_unicode_are_escaped(
    form: tuple[str, ...], run: Run, whisper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdout = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdout", stdout)
    path = clip(tmp_path / "\udcff.wav", 200)
    code, _, err = run("transcribe", whisper, path, path, "--language", "fr", "--max-tokens", "2", *form, *FLAGS)
    stdout.seek(0)
    said = stdout.read().splitlines()
    assert (code, err, len(said)) == (0, "", 2)
    assert all(r"\udcff.wav" in line for line in said)
    assert not form or json.loads(said[0])["audio"] == path


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("generate",), "Missing argument"),
        (("generate", "MODEL"), "no texts"),
        (("generate", "MODEL", "x", "--top-p", "3"), "top_p=3.0: give a number in (0, 1]"),
        (("generate", "MODEL", "x", "--beam-width", "4"), "beam_width=4: beam search is not available yet"),
        (("generate", "MODEL", "x", "--beam-width", "1", "--top-k", "3", "--n", "2"), "--beam-width and --n, --top-k"),
        (("generate", "MODEL", "x", "--logprobs", "2"), "--logprobs goes with --json"),
        (("generate", "MODEL", "x", "--beam-width", "1", "--json", "--logprobs", "2"), "--beam-width and --logprobs"),
        (("generate", "MODEL", "x", "--seed", "-1"), "seed=-1: give a whole number >= 0"),
        (("generate", "MODEL", "x", "--tokenizer", "./nowhere"), "there is no folder './nowhere'"),
        (("generate", "SPEECH", "x"), "takes audio; use transduce transcribe"),
        (("generate", "MODEL", "x", "--nope"), "No such option: --nope"),
        (("generate", "MODEL", "x", "--dtype", "int3"), "dtype='int3'"),
        (("generate", "MODEL", "x", "--attention-backend", "none"), "none"),
        (("generate", "./nowhere", "x"), "there is no folder './nowhere'"),
        (("generate", "x" * 5000, "x"), "xxx': File name too long; give a folder"),
        (("generate", "MODEL", "--file", "/nowhere/lines.txt"), "cannot read '/nowhere/lines.txt'"),
        (("transcribe", "MODEL", "clip.wav"), "takes text; use transduce generate"),
        (("transcribe", "SPEECH", "clip.wav", "--top-p", "3"), "top_p=3.0: give a number in (0, 1]"),
        (("transcribe", "SPEECH", "clip.wav", "--max-model-len", "999"), "the model has 64 decoder positions"),
        (("dance",), "dance"),
    ],
)
def test_a_wrong_command_is_one_line(run: Run, bart: str, whisper: str, arguments: tuple[str, ...], match: str) -> None:
    folders = {"MODEL": bart, "SPEECH": whisper}
    code, out, err = run(*(folders.get(argument, argument) for argument in arguments))
    assert (code, out) == (cli.WRONG, "")
    (line,) = err.splitlines()
    assert line.startswith("transduce: ")
    assert match in line


def clip(path: Path, hertz: float, seconds: float = 0.5) -> str:
    times = np.arange(int(16_000 * seconds)) / 16_000
    samples = (np.sin(2 * np.pi * hertz * times) * 30_000).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.tobytes())
    return str(path)


def test_clips_are_transcribed_in_order(run: Run, whisper: str, tmp_path: Path) -> None:
    clips = [clip(tmp_path / f"{hertz}.wav", hertz) for hertz in (200, 3000)]
    flags = ("--language", "fr", "--max-tokens", "6", *FLAGS)
    code, out, _ = run("transcribe", whisper, *clips, "--json", *flags)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [(line["audio"], line["language"], line["error"]) for line in lines] == [(c, "fr", None) for c in clips]
    texts = [LLM(whisper, dtype="float32").transcribe(c, "fr").text[:2] for c in clips]
    assert [line["text"][:2] for line in lines] == texts
    assert run("transcribe", whisper, clips[0], *flags)[1] == lines[0]["text"] + "\n"
    assert run("transcribe", whisper, *clips, *flags)[1].startswith(f"{clips[0]}: {lines[0]['text']}\n")


def test_transcribing_takes_the_flags_of_generate_and_earlier_text(run: Run, whisper: str, tmp_path: Path) -> None:
    path, llm = clip(tmp_path / "clip.wav", 200), LLM(whisper, dtype="float32")

    def said(*flags: str) -> str:
        code, out, _ = run("transcribe", whisper, path, "--language", "fr", "--json", *flags, *FLAGS)
        assert code == 0
        text: str = json.loads(out)["text"]
        return text

    drawn = SamplingParams(temperature=1.0, top_k=9, top_p=0.9, seed=5, max_tokens=12)
    sampled = ("--temperature", "1", "--top-k", "9", "--top-p", "0.9", "--seed", "5", "--max-tokens", "12")
    assert said(*sampled) == llm.transcribe(path, "fr", sampling_params=drawn).text
    greedy = BeamSearchParams(beam_width=1, max_tokens=12)
    for before in (None, "zum"):
        expected = llm.transcribe(path, "fr", prompt=before, sampling_params=greedy).text
        earlier = ("--prompt", before) if before else ()
        assert said(*earlier, "--beam-width", "1", "--max-tokens", "12") == expected
    assert llm.transcribe(path, "fr", prompt="zum", sampling_params=greedy).text != said("--max-tokens", "12")
    code, _, err = run("transcribe", whisper, path, "--language", "fr", "--max-model-len", "3", *FLAGS)
    assert (code, "the decoder prompt has 4 tokens and the model takes 3" in err) == (cli.FAILED, True)


def test_a_bad_clip_costs_no_other_its_text(run: Run, whisper: str, tmp_path: Path) -> None:
    clips = [clip(tmp_path / "good.wav", 200), str(tmp_path / "none.wav"), clip(tmp_path / "long.wav", 200, 1.5)]
    code, out, err = run("transcribe", whisper, *clips, "--json", "--max-tokens", "4", *FLAGS)
    good, none, long = [json.loads(line) for line in out.splitlines()]
    assert code == cli.FAILED
    assert good["error"] is None
    assert "No such file" in none["error"]
    assert "longer than the model's 1 s" in long["error"]
    assert len(err.splitlines()) == 2


def test_verbose_says_what_the_engine_chose(bart: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, "generate", bart, "hello", "--verbose", *FLAGS],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "dtype float32" in done.stderr
    quiet = subprocess.run(
        [sys.executable, "-c", ENTRY, "generate", bart, "hello", *FLAGS], capture_output=True, text=True, check=True
    )
    assert (quiet.stderr, quiet.stdout) == ("", done.stdout)


def test_ctrl_c_stops_at_once_without_a_traceback(bart: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("hello\n" * 50_000)
    command = [sys.executable, "-u", "-c", ENTRY, "generate", bart, "--file", str(lines), "--verbose", *FLAGS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == cli.INTERRUPTED
    assert out == ""
    assert "Traceback" not in first + err


@pytest.mark.long  # Python itself reports an interruption inside some callbacks of an import, rarely
@pytest.mark.parametrize("moment", [0.0, 0.3, 0.8, 1.3])
def test_ctrl_c_at_any_time_and_again(bart: str, tmp_path: Path, moment: float) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("hello\n" * 50_000)
    started = f"from transduce.cli import main; print('started', flush=True); {ENTRY}"
    command = [sys.executable, "-c", started, "generate", bart, "--file", str(lines), *FLAGS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(0.05 + moment)  # Python code is running, wherever it is
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            time.sleep(0.02)
            process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, first, out, err.strip()) == (cli.INTERRUPTED, "started\n", "", "")


@pytest.mark.parametrize("swallowed", [True, False])
def test_an_interruption_that_a_library_turns_into_something_else(
    swallowed: bool, monkeypatch: pytest.MonkeyPatch, run: Run, bart: str, interrupts: None
) -> None:
    def load(*arguments: object, **options: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        if not swallowed:
            raise ValueError("could not determine the shape")

    monkeypatch.setattr(LLM, "__init__", load)
    assert run("generate", bart, "hello", *FLAGS)[:2] == (cli.INTERRUPTED, "")


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        (">/dev/full", cli.FAILED, "transduce: cannot write the answers: No space left on device\n"),
        (">&-", 0, ""),
        ("<&-", 0, ""),
    ],
)
def test_streams_that_are_full_or_closed(redirected: str, code: int, said: str) -> None:
    command = ["sh", "-c", f'exec "$0" -c "$1" --version {redirected}', sys.executable, ENTRY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, said)


def test_a_reader_that_leaves_is_no_error(bart: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, "generate", bart, "hello", *FLAGS],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode != 0


def test_an_interruption_anywhere_is_130(
    monkeypatch: pytest.MonkeyPatch, run: Run, bart: str, interrupts: None
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LLM, "generate", interrupted)
    code, out, err = run("generate", bart, "hello", *FLAGS)
    assert (code, out, err.strip()) == (cli.INTERRUPTED, "", "")


def test_alone_it_prints_help(run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (cli.WRONG, "")
    assert "transcribe" in out


def test_version_and_help(run: Run) -> None:
    assert run("--version") == (0, version("transduce") + "\n", "")
    assert "transcribe" in run("--help")[1]
    assert "--max-tokens" in run("generate", "--help")[1]
