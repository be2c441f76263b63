"""The commands: what is printed where, in which order, with which exit code."""

import io
import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.conftest import FLAGS, GENERATION, Run, clip
from tests.folders import text_folder
from transduce import LLM, BeamSearchParams, SamplingParams, cli
from transduce.errors import EngineError


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


def test_the_best_beams(run: Run, bart: str) -> None:
    code, out, _ = run("generate", bart, "hello", "--beam-width", "4", "--n", "2", "--json", *FLAGS)
    answers = json.loads(out)["outputs"]
    assert (code, len(answers)) == (0, 2)
    assert answers[0]["score"] > answers[1]["score"]


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


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("generate",), "Missing argument"),
        (("generate", "MODEL"), "no texts"),
        (("generate", "MODEL", "x", "--top-p", "3"), "top_p=3.0: give a number in (0, 1]"),
        (("generate", "MODEL", "x", "--beam-width", "0"), "beam_width=0: give a whole number >= 1"),
        (("generate", "MODEL", "x", "--logprobs", "2"), "--logprobs goes with --json"),
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
    (tmp_path / "noise.wav").write_bytes(b"noise")
    clips = [clip(tmp_path / "good.wav", 200), str(tmp_path / "none.wav"), str(tmp_path / "noise.wav")]
    code, out, err = run("transcribe", whisper, *clips, "--json", "--max-tokens", "4", *FLAGS)
    good, none, noise = [json.loads(line) for line in out.splitlines()]
    assert code == cli.FAILED
    assert good["error"] is None
    assert "No such file" in none["error"]
    assert "noise.wav" in noise["error"]
    assert len(err.splitlines()) == 2


def test_alone_it_prints_help(run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (cli.WRONG, "")
    assert "transcribe" in out


def test_version_and_help(run: Run) -> None:
    assert run("--version") == (0, version("transduce") + "\n", "")
    assert "transcribe" in run("--help")[1]
    assert "--max-tokens" in run("generate", "--help")[1]
