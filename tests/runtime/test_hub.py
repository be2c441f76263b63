"""What MODEL may be: a folder, or a hub id, and what is told where it is neither."""

from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import httpx2
import huggingface_hub
import pytest
from huggingface_hub import errors

from transduce.errors import CheckpointError
from transduce.runtime.hub import locate

pytestmark = pytest.mark.usefixtures("no_network")

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def refused(model: str) -> str:
    with pytest.raises(CheckpointError) as caught:
        locate(model)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("path", ["./bart", "/nowhere/bart", "~/no-such-bart", "~nobody-here/x", "a/b/c", r"C:\bart"])
def test_a_mistyped_path_asks_nobody(path: str) -> None:
    message = refused(path)
    assert message.startswith(f"there is no folder {path!r}: check the path (from '{Path.cwd()}')")
    assert "hub id such as 'facebook/bart-base'" in message


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "bart").mkdir()
    assert locate("~/bart") == tmp_path / "bart"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    file = str(tmp_path / "model.safetensors")
    Path(file).touch()
    assert refused(file) == f"{file!r} is a file: give the folder that holds it, {str(tmp_path)!r}"


def test_a_name_too_long_for_the_file_system() -> None:
    message = refused("x" * 5000)
    assert message.startswith("'xxx")
    assert message.endswith("xxx': File name too long; give a folder that can be read, or a hub id")
    assert len(message) < 400


def test_a_local_folder_has_no_revision(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"revision='v2': .* is a local folder, .* leave revision unset"):
        locate(str(tmp_path), "v2")


def response(status: int) -> httpx2.Response:
    return httpx2.Response(status, request=httpx2.Request("GET", "https://huggingface.co"))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            errors.GatedRepoError("403", response=response(403)),
            r"gated: accept its terms at \S+/org/bart, .*auth login",
        ),
        (
            errors.RepositoryNotFoundError("404", response=response(404)),
            r"nor a model of that name .*check the spelling",
        ),
        (errors.RevisionNotFoundError("404", response=response(404)), r"no revision 'v2': see \S+/org/bart/tree/main"),
        (errors.HFValidationError("bad"), r"no hub id either: those read 'organisation/name'"),
        (
            httpx2.ProxyError("407 from the proxy\nmore"),
            r"hub \(ProxyError: 407 from the proxy\): check the path, or connect",
        ),
    ],
)
def test_a_hub_that_refuses(monkeypatch: pytest.MonkeyPatch, error: Exception, message: str) -> None:
    def download(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(CheckpointError, match=message) as caught:
        locate("org/bart", "v2")
    assert str(caught.value).startswith("there is no folder 'org/bart' here, ")
    assert "\n" not in str(caught.value)


def test_no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "(HF_HUB_OFFLINE is set and it is not in the cache): check the path" in refused("org/bart")


def test_a_cached_snapshot_needs_no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    repository = tmp_path / "models--org--bart"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    assert locate("org/bart") == snapshot


def matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def repository(monkeypatch: pytest.MonkeyPatch, folder: Path, names: list[str]) -> Callable[[], list[str]]:
    """A hub that holds `names`; the answer lists what was downloaded."""

    def download(model: str, *, allow_patterns: list[str], ignore_patterns: list[str], **_: object) -> str:
        assert model == "org/bart"
        for name in names:
            if matches(name, allow_patterns) and not matches(name, ignore_patterns):
                (folder / name).write_text("{}")
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return lambda: sorted(path.name for path in folder.iterdir())


TEXT = ["chat_template.jinja", "config.json", "merges.txt", "source.spm", "spiece.model"]
OTHERS = ["tf_model.h5", "onnx/config.json", "model.fp16.safetensors", "tokenize.py", "training_args.bin", "README.md"]
BOTH = ["model.safetensors", "pytorch_model.bin"]


@pytest.mark.parametrize(
    ("weights", "there", "downloaded"),
    [
        (BOTH, BOTH, BOTH[:1]),
        (BOTH, BOTH[1:], BOTH[1:]),
        (BOTH[1:], BOTH, BOTH[1:]),
        (BOTH, ["model-1-of-1.safetensors", *BOTH[1:]], ["model-1-of-1.safetensors"]),
        ([], BOTH, []),
    ],
)
def test_only_what_is_needed_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, weights: list[str], there: list[str], downloaded: list[str]
) -> None:
    got = repository(monkeypatch, tmp_path, TEXT + OTHERS + there)
    locate("org/bart", None, weights)
    assert got() == sorted(TEXT + downloaded)


def test_code_is_downloaded_when_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    got = repository(monkeypatch, tmp_path, TEXT + OTHERS)
    locate("org/bart", code=True)
    assert got() == sorted([*TEXT, "tokenize.py"])
