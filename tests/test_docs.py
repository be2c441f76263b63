"""What README.md, docs/ and examples/ say, held against the product: commands and snippets run, on tiny checkpoints.

Only models and files are replaced: a hub id by a tiny folder of the same family, clip.wav and others by small ones.
"""

import io
import re
import runpy
import shlex
import sys
import tomllib
import wave
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command
from vision_models import MODELS, drawn, save

from tests.folders import text_folder, whisper_folder
from transduce import (
    BeamSearchParams,
    CompletionOutput,
    EngineConfig,
    RequestOutput,
    SamplingParams,
    cli,
    config,
    errors,
)
from transduce.models.base import find, known

ROOT = Path(__file__).parent.parent
PAGES = (
    "README.md",
    "docs/offline.md",
    "docs/speech.md",
    "docs/async.md",
    "docs/cli.md",
    "docs/ocr.md",
    "docs/design.md",
    "docs/from-vllm.md",
    "docs/quantization.md",
    "docs/scores.md",
    "docs/speculation.md",
    "docs/structured-output.md",
    "docs/speed.md",
    "docs/benchmarking.md",
    "docs/operations.md",
)
GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 16}
TEXT_MODELS = ("google/flan-t5-small", "facebook/bart-large-cnn")
SPEECH_MODELS = ("openai/whisper-tiny",)
COMMANDS = get_command(cli.app).commands  # type: ignore[attr-defined]  # an app of several commands is a group


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(language: str) -> list[Any]:
    """Every fenced block of a language, named by its page and line."""
    found = []
    for page in PAGES:
        for match in re.finditer(rf"^```{language}\n(.*?)^```", text(page), re.MULTILINE | re.DOTALL):
            line = text(page)[: match.start()].count("\n") + 1
            found.append(pytest.param(match[1], id=f"{page}:{line}"))
    return found


def table(page: str, heading: str) -> dict[str, str]:
    """The rows of a page's tables under a heading: by each name in the first cell, the other cells."""
    section = re.split(r"^## ", text(page), flags=re.MULTILINE)
    (found,) = [part for part in section if part.startswith(heading)]
    rows: dict[str, str] = {}
    for first, rest in re.findall(r"^\|(.*?)(?<!\\)\|(.*)\|$", found, re.MULTILINE):
        rows |= dict.fromkeys(re.findall(r"`([^`]+)`", first), rest)
    return rows


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tiny folders by the hub ids they stand for."""
    bart = text_folder(tmp_path_factory.mktemp("bart"), GENERATION)
    whisper = whisper_folder(tmp_path_factory.mktemp("whisper"), seed=0)
    return dict.fromkeys(TEXT_MODELS, str(bart)) | dict.fromkeys(SPEECH_MODELS, str(whisper)) | seeing(tmp_path_factory)


def seeing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same for those of the examples with images."""
    found = {}
    for kind, sample in MODELS.items():
        folder = tmp_path_factory.mktemp(kind)
        save(sample, folder)
        found[sample.published] = str(folder)
    return found


@pytest.fixture(autouse=True)
def workplace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with the files that the pages name, little memory, and no network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSDUCE_CPU_KVCACHE_SPACE", "0.001")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "lines.txt").write_text("hello\na cab\n")
    samples = (np.sin(np.arange(8_000) / 20) * 9_000).astype(np.int16)
    with wave.open("clip.wav", "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.tobytes())
    (tmp_path / "scans").mkdir()
    for name in ("line.png", "scan.pdf", "scans/one.tif"):
        drawn("a line").save(name)
    return tmp_path


@pytest.mark.parametrize("source", blocks("python"))
def test_snippets_run(source: str, places: dict[str, str]) -> None:
    for name, folder in places.items():
        source = source.replace(f'"{name}"', repr(folder))
    source = source.replace("[8774, 1]", "[7, 2]")  # T5's ids; the tiny vocabulary has 49
    exec(compile(source, "<snippet>", "exec"), {})


def commands() -> list[Any]:
    """Every `$ transduce …` line."""
    lines = [(each.id, line) for each in blocks("console") for line in each.values[0].splitlines()]
    return [pytest.param(line, id=f"{at} {line}") for at, line in lines if "transduce " in line]


@pytest.mark.parametrize("line", commands())
def test_commands_run(
    line: str, places: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, _, command = line.removeprefix("$ ").rpartition("transduce ")
    if before:
        assert before == "cat lines.txt | "
        monkeypatch.setattr(sys, "stdin", io.StringIO(Path("lines.txt").read_text()))
    arguments = [places.get(word, word) for word in shlex.split(command)]
    code, said = cli.main(arguments), capsys.readouterr()
    assert (code, said.err) == (0, "")
    assert said.out.strip()


def test_there_is_something_to_run() -> None:
    assert len(blocks("python")) >= 8
    assert len(commands()) >= 8


def flags(command: str) -> set[str]:
    params = COMMANDS[command].params
    return {name for param in params for name in (*param.opts, *param.secondary_opts) if name.startswith("--")}


@pytest.mark.parametrize("command", ["generate", "transcribe", "ocr"])
def test_every_flag_is_described_where_it_belongs(command: str) -> None:
    described = table("docs/cli.md", f"transduce {command}").keys() | table("docs/cli.md", "Shared flags").keys()
    assert {name for name in described if name.startswith("--")} == flags(command) | {"--help"}


def test_flags_of_quantize_are_described_with_it() -> None:
    described = table("docs/cli.md", "transduce quantize")
    assert {name for name in described if name.startswith("--")} == flags("quantize") | {"--help"}


def test_the_cli_page_describes_every_command() -> None:
    headings = re.findall(r"^## transduce ([\w-]+)", text("docs/cli.md"), re.MULTILINE)
    assert set(headings) == set(COMMANDS)


def test_exit_codes() -> None:
    stated = re.findall(r"^\| (\d+) ", text("docs/cli.md").partition("## Exit codes")[2], re.MULTILINE)
    assert [*map(int, stated)] == [0, cli.FAILED, cli.WRONG, cli.INTERRUPTED]


@pytest.mark.parametrize(
    ("record", "heading"),
    [
        (EngineConfig, "Engine arguments"),
        (SamplingParams, "Parameters"),
        (RequestOutput, "Outputs"),
        (CompletionOutput, "Outputs"),
    ],
)
def test_every_field_is_described_and_no_other(record: type, heading: str) -> None:
    described = {name for name in table("docs/offline.md", heading) if name.isidentifier()}
    own = {field.name for field in fields(record)}
    assert own <= described
    if heading != "Outputs":
        assert described == own


def test_stated_engine_defaults_are_the_defaults() -> None:
    for field in fields(EngineConfig):
        stated = table("docs/offline.md", "Engine arguments")[field.name].split("|")[0].strip().strip("`")
        if stated in {"64", "2048", "16", "0.9", "15.0", "1", "0", "True", "False", "None", '"auto"'}:
            assert stated.strip('"') == str(field.default)
        else:
            assert field.default is None or field.name == "model"


def test_beam_search_fields_are_described() -> None:
    beams, sampling = ({field.name for field in fields(kind)} for kind in (BeamSearchParams, SamplingParams))
    assert beams - sampling == set(table("docs/offline.md", "Beam search")) - {"field"}
    assert sampling - beams == {"n", "best_of"}


def test_every_exception_is_described() -> None:
    own = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert own == set(re.findall(r"\b\w+Error\b", text("docs/offline.md")))


def test_environment_variables_are_those_that_are_read() -> None:
    read = {
        config.KV_SPACE,
        config.SPIN,
        *re.findall(r'environ\.(?:get|setdefault)\("(\w+)"', (ROOT / "transduce/config.py").read_text()),
    }
    described = set(table("README.md", "Environment"))
    assert {name for name in described if not name.startswith(("http", "~", "1"))} == read | {"TRANSDUCE_CHECKPOINTS"}


def test_models_are_those_that_are_found() -> None:
    rows = table("README.md", "Models")
    assert set(rows) == {"model_type", *known()}
    for model_type in known():
        assert find(model_type).architectures == set(re.findall(r"`(\w+)`", rows[model_type]))


def test_dependencies_are_those_required() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = project["dependencies"] + extras["checkpoints"] + extras["speech"] + extras["ocr"]
    names = {re.split(r"[><=\[]", requirement)[0] for requirement in required}
    section = text("README.md").partition("## Dependencies")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| ([\w, -]+) \|", section, re.MULTILINE)[1:]
    assert {name for row in listed for name in row.split(", ")} == names


@pytest.mark.parametrize("page", [*PAGES, "docs/realtime.md", "CONTRIBUTING.md"])
def test_links_and_files_exist(page: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#?([\w-]*)\)", text(page)):
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), target
        headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


def test_files_that_the_design_names_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)`", text("docs/design.md").partition("## The life of a request")[2])
    assert len(named) >= 15
    for name in named:
        assert list((ROOT / "transduce").glob(f"**/{name}")), name


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vision_language", "mllama"),
        ("vision_language", "trocr"),
        ("vision_language", "nougat"),
        ("ocr", "donut"),
        ("ocr", "florence2"),
    ],
)
def test_examples_with_images_run(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    number = ["--num-prompts", "3"] if name == "vision_language" else ["--max-tokens", "8"]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "-m", kind, "--random-weights", *number])
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith(("3 pictures, ", "3 pages in "))


@pytest.mark.parametrize(
    ("name", "model", "argument"),
    [("batch_generate", "google/flan-t5-small", "lines.txt"), ("transcribe", "openai/whisper-tiny", ".")],
)
def test_examples_run(
    name: str,
    model: str,
    argument: str,
    places: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [f"{name}.py", places[model], argument])
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(lines)
