"""What docs/server.md says, held against the server: its examples run, and its tables are complete."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.server.live import MODEL, Live, tone
from tests.test_mllama import picture
from transduce.server import errors
from transduce.server.protocol.audio import AudioRequest
from transduce.server.protocol.base import Body
from transduce.server.protocol.chat import ChatRequest
from transduce.server.protocol.completions import CompletionRequest
from transduce.server.protocol.score import ScoreRequest

PAGE = Path(__file__).parents[2] / "docs" / "server.md"
TEXT = PAGE.read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8000"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    joined = "".join(blocks("sh")).replace("\\\n", "")
    return [line for line in joined.splitlines() if line.startswith("curl ")]


def here(source: str, text: Live, speech: Live, seeing: Live) -> str:
    """The example, asking the server that it is about."""
    served = speech if "/audio/" in source or "whisper" in source else seeing if "Vision" in source else text
    for name in ("google/flan-t5-small", "openai/whisper-tiny", "meta-llama/Llama-3.2-11B-Vision-Instruct"):
        source = source.replace(name, MODEL)
    return source.replace(ADDRESS, str(served.http.base_url).rstrip("/"))


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("clip.wav").write_bytes(tone(200))
    picture(40, 9).save("image.png")


@pytest.mark.parametrize("source", blocks("python"), ids=range(len(blocks("python"))))
def test_snippets_run(source: str, text: Live, speech: Live, seeing: Live, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(here(source, text, speech, seeing), "<snippet>", "exec"), {})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("line", commands())
def test_commands_run(line: str, text: Live, speech: Live, seeing: Live) -> None:
    asked = here(line, text, speech, seeing)
    said = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True).stdout
    assert said.strip()
    assert '"error"' not in said


def test_there_is_something_to_run() -> None:
    assert len(blocks("python")) >= 5
    assert len(commands()) >= 5


def table(heading: str) -> set[str]:
    """The names in the first cells of the tables under a heading."""
    (found,) = [part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE) if part.startswith(heading)]
    cells = re.findall(r"^\|(.*?)\|", found, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def fields(model: type[Body]) -> set[str]:
    return {*model.model_fields, *model.unread}


def test_every_field_is_described_and_no_other() -> None:
    assert table("Completions") == fields(CompletionRequest)
    assert table("Speech") == fields(AudioRequest)
    assert table("Scores") == fields(ScoreRequest)
    own = {"messages", "max_completion_tokens", "logprobs", "top_logprobs"}
    assert table("Chats") == own
    ignored = {"parallel_tool_calls", "prompt_cache_options", "prompt_cache_retention"}
    assert fields(ChatRequest) - ignored == fields(CompletionRequest) - {"prompt", "echo"} | own


def test_every_error_is_described() -> None:
    section = TEXT.partition("## Errors")[2]
    described = {(int(status), code) for status, code in re.findall(r"^\| (\d+) \| `(\w+)`", section, re.MULTILINE)}
    raised = {(status, code) for _, status, code in errors._STATUSES}
    unrouted = {(status, code) for status, (code, _) in errors._ROUTING.items()}
    assert described == raised | unrouted | {(404, "model_not_found"), (500, "internal_error")}
