"""What the Dockerfile does, without a container: its script installs, and what it installs serves from where it may not
write.

The packages that the image would download are those of this environment, and the kernels are those it has compiled.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.main import get_command

import transduce
from tests.folders import text_folder
from transduce import cli

ROOT = Path(__file__).parents[2]
LIBRARIES = ROOT / "transduce" / "kernels" / "lib"
GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 16}
COMPILER = f"""
import shutil, sys
from pathlib import Path
out = Path(sys.argv[-1])
shutil.copy(Path({str(LIBRARIES)!r}) / out.name, out) if "-shared" in sys.argv else out.touch()
"""


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's, of both stages."""
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    whole = re.sub(r"\\\n", " ", "\n".join(line for line in lines if not line.startswith("#")))
    return [(name, rest.strip()) for name, rest in (line.split(maxsplit=1) for line in whole.splitlines() if line)]


def named(name: str) -> list[str]:
    return [rest for each, rest in instructions() if each == name]


def environment() -> dict[str, str]:
    """The image's."""
    (settings,) = named("ENV")
    return dict(setting.split("=", 1) for setting in settings.split())


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the first stage copies."""
    folder = tmp_path_factory.mktemp("context")
    for copy in [rest for rest in named("COPY") if not rest.startswith("--from")]:
        *sources, target = copy.split()
        for source in sources:
            place = folder / target / Path(source).name if target.endswith("/") else folder / target
            place.parent.mkdir(exist_ok=True)
            (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, place)
    shutil.rmtree(folder / "transduce" / "kernels" / "lib")
    return folder


@pytest.fixture(scope="module")
def prefix(context: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the script makes of an environment that sees this one's packages."""
    folder = tmp_path_factory.mktemp("image")
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "outside.pth").write_text(sysconfig.get_path("purelib"))
    shutil.copy(Path(__file__).parent / "read_only.py", site / "read_only.py")
    (site / "read_only.pth").write_text("import read_only")
    compiler = folder / "compiler.py"
    compiler.write_text(COMPILER)
    settings = {"PIP_NO_INDEX": "1", "CXX": f"{sys.executable} {compiler}"}
    command = [str(context / "deploy" / "install.sh"), str(folder), "otel"]
    done = subprocess.run(command, cwd="/", env=os.environ | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == transduce.__version__
    return folder


def test_its_environment_sets_flags_that_are() -> None:
    serve = get_command(cli.app).commands["serve"]  # type: ignore[attr-defined]  # an app of several commands is a group
    known = {f"TRANSDUCE_SERVE_{parameter.name}".upper() for parameter in serve.params}
    assert {name for name in environment() if name.startswith("TRANSDUCE_")} <= known
    assert environment()["TRANSDUCE_SERVE_HOST"] == "0.0.0.0"


def test_what_is_installed_is_complete(prefix: Path) -> None:
    (package,) = prefix.glob("lib/python*/site-packages/transduce")
    installed = {str(file.relative_to(package)) for file in package.rglob("*") if file.suffix != ".pyc"}
    for file in (ROOT / "transduce").rglob("*"):
        if file.suffix in {".py", ".html", ".js", ".css", ".so"}:
            assert str(file.relative_to(ROOT / "transduce")) in installed


def test_this_environment_is_left_as_it_was(prefix: Path) -> None:
    code = "import transduce; print(transduce.__file__)"
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd="/", capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).parent == ROOT / "transduce"


def test_a_write_to_the_image_is_noticed(prefix: Path) -> None:
    code = "open('written', 'w')"
    command = [str(prefix / "bin" / "python"), "-c", code]
    done = subprocess.run(command, cwd=prefix, env={"WRITABLE": "/dev"}, capture_output=True, text=True, check=False)
    assert "Read-only file system: 'written'" in done.stderr
    assert not (prefix / "written").exists()


class Container:
    """`transduce serve`, run as the image would."""

    def __init__(self, prefix: Path, model: Path, writable: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        models, temporary = writable / "models", writable / "tmp"
        models.mkdir()
        temporary.mkdir()
        image = {name: value.replace("/models", str(models)) for name, value in environment().items()}
        own = {
            "PATH": f"{prefix}/bin:{os.defpath}",
            "TMPDIR": str(temporary),
            "WRITABLE": f"{writable}:/dev:/proc",
            "TRANSDUCE_SERVE_HOST": "127.0.0.1",
            "TRANSDUCE_SERVE_PORT": str(self.port),
            "TRANSDUCE_CPU_KVCACHE_SPACE": "0.001",
            "OMP_NUM_THREADS": "1",
        }
        self.environment = image | own
        command = [*json.loads(named("ENTRYPOINT")[0]), "serve", model, "--log-format=json", "--served-model-name=tiny"]
        self.process = subprocess.Popen(
            command, env=self.environment, executable=prefix / "bin" / "transduce", stderr=subprocess.PIPE, text=True
        )

    def wait(self) -> None:
        """Until its log says that it is ready."""
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if "ready at" in line:
                return
        raise AssertionError("".join(said))

    def healthy(self) -> bool:
        """What the image's HEALTHCHECK finds."""
        (check,) = named("HEALTHCHECK")
        command = json.loads(check.partition("CMD")[2].replace(":8000", f":{self.port}"))
        python = shutil.which(command[0], path=self.environment["PATH"])
        assert python is not None
        return (
            subprocess.run(
                [python, *command[1:]], env=self.environment, check=False, stderr=subprocess.DEVNULL
            ).returncode
            == 0
        )


@pytest.fixture
def container(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    model = text_folder(tmp_path_factory.mktemp("model"), GENERATION)
    found = Container(prefix, model, tmp_path_factory.mktemp("writable"))
    yield found
    found.process.kill()
    found.process.communicate()


def test_it_serves_and_writes_nowhere_but_to_its_volumes(container: Container) -> None:
    container.wait()
    assert container.healthy()
    address = f"http://127.0.0.1:{container.port}"
    answer = httpx.post(f"{address}/v1/completions", json={"model": "tiny", "prompt": "hello"}, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["text"]
    container.process.send_signal(signal.SIGTERM)
    _, rest = container.process.communicate(timeout=60)
    assert container.process.returncode == 0, rest
    assert not container.healthy()
