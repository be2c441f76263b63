"""What the scripts promise before anything is installed."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
KERNELS = Path("transduce/kernels")
RECIPE = (
    "pyproject.toml",
    "constraints.txt",
    "setup.py",
    f"{KERNELS}/build.py",
    f"{KERNELS}/src/cpu.cpp",
    f"{KERNELS}/src/cpu.h",
)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What scripts/setup needs of the repository, without a .venv."""
    for name in (*RECIPE, "scripts/setup"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def setup(clone: Path, *extra: str, compiler: str = "bash") -> subprocess.CompletedProcess[str]:
    """scripts/setup, run from elsewhere, with an interpreter that cannot work."""
    environment = os.environ | {"PYTHON": "no-such-python", "HOME": str(clone / "home"), "CXX": compiler}
    script = str(clone / "scripts" / "setup")
    return subprocess.run([script, *extra], cwd="/", env=environment, capture_output=True, text=True, check=False)


def stamp(clone: Path, extra: str) -> None:
    """Leave what a finished installation leaves."""
    (clone / ".venv").mkdir()
    recipe = "".join((clone / name).read_text() for name in RECIPE)
    (clone / ".venv" / f".installed-{extra}").write_text(f"{clone}\n{shutil.which('bash')}\n{recipe}")


def test_setup_names_the_interpreter_it_cannot_use(clone: Path) -> None:
    result = setup(clone)
    assert result.returncode == 1
    assert "no-such-python" in result.stderr
    assert "PYTHON=" in result.stderr
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize("wanted", ["dev", "checkpoints"])
def test_a_finished_dev_installation_is_left_alone(clone: Path, wanted: str) -> None:
    stamp(clone, "dev")
    result = setup(clone, wanted)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_the_demos_installation_does_not_pass_for_the_tools(clone: Path) -> None:
    stamp(clone, "checkpoints")
    assert setup(clone, "checkpoints").returncode == 0
    assert setup(clone, "dev").returncode == 1


@pytest.mark.parametrize("changed", RECIPE)
def test_a_changed_requirement_is_noticed(clone: Path, changed: str) -> None:
    stamp(clone, "dev")
    with (clone / changed).open("a") as file:
        file.write("# changed\n")
    assert setup(clone).returncode == 1


def test_another_compiler_is_noticed(clone: Path) -> None:
    stamp(clone, "dev")
    assert setup(clone).returncode == 0
    assert setup(clone, compiler="no-such-compiler").returncode == 1


def test_every_requirement_is_pinned_within_its_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    versions = {canonicalize_name(name): version for name, version in pins.items()}
    extras = [line for group in project["optional-dependencies"].values() for line in group]
    for requirement in map(Requirement, project["dependencies"] + extras):
        name = canonicalize_name(requirement.name)
        if name != project["name"]:
            assert requirement.specifier.contains(versions[name]), requirement
