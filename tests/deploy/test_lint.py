"""The Dockerfile, its script and the manifests, each by the tool that is made for it."""

import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
TOOLS = Path(sys.executable).parent
MANIFESTS = ("deployment", "service", "pvc")

BAD_DOCKERFILE = "FROM python\nRUN cd /tmp && apt-get install g++\n"
BAD_SCRIPT = "#!/bin/sh\nrm -rf $1\n"
BAD_MANIFEST = "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {ports: [{prot: 80}]}\n"


def lint(tool: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOOLS / tool, *arguments], capture_output=True, text=True, check=False)


def test_dockerfile() -> None:
    result = lint("hadolint", DEPLOY / "Dockerfile")
    assert result.returncode == 0, result.stdout


def test_install_script() -> None:
    result = lint("shellcheck", DEPLOY / "install.sh")
    assert result.returncode == 0, result.stdout


def test_manifests() -> None:
    result = lint("kubernetes-validate", "--strict", *[DEPLOY / "kubernetes" / f"{name}.yaml" for name in MANIFESTS])
    assert result.returncode == 0, result.stderr


def test_no_manifest_is_left_out() -> None:
    found = {file.stem for file in (DEPLOY / "kubernetes").glob("*.yaml")}
    assert found == {*MANIFESTS, "kustomization"}


@pytest.mark.parametrize(
    ("tool", "arguments", "content"),
    [
        ("hadolint", (), BAD_DOCKERFILE),
        ("shellcheck", (), BAD_SCRIPT),
        ("kubernetes-validate", ("--strict",), BAD_MANIFEST),
    ],
    ids=["hadolint", "shellcheck", "kubernetes-validate"],
)
def test_the_tools_see_what_is_wrong(tool: str, arguments: tuple[str, ...], content: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(content)
    assert lint(tool, *arguments, file).returncode == 1
