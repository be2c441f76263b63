"""transduce serve: where its flags come from, and which win."""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

from transduce import EngineConfig, cli
from transduce.server import serve as serving
from transduce.server.options import ServeOptions

Serve = Callable[..., tuple[EngineConfig, ServeOptions]]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """What a command line would serve, and how."""

    def serve(*arguments: str) -> tuple[EngineConfig, ServeOptions]:
        found: list[tuple[EngineConfig, ServeOptions]] = []
        monkeypatch.setattr(serving, "serve", lambda *given: found.append(given))
        cli.main(["serve", *arguments])
        return found[0]

    return serve


PARAMS = get_command(cli.app).commands["serve"].params  # type: ignore[attr-defined]  # a group
PAGE = (Path(__file__).parent.parent.parent / "docs/operations.md").read_text(encoding="utf-8")


def test_every_field_has_a_flag() -> None:
    own = {field.name for record in (EngineConfig, ServeOptions) for field in fields(record)}
    assert {param.name for param in PARAMS} == own | {"config"}


def test_every_flag_is_described() -> None:
    described = PAGE.partition("## Flags")[2].partition("## Who")[0]
    flags = {name for param in PARAMS for name in [*param.opts, *param.secondary_opts] if name.startswith("--")}
    assert flags == set(re.findall(r"(?<=`)--[\w-]+(?=`)", described))


def test_stated_defaults_are_the_defaults() -> None:
    stated = dict(re.findall(r"^\| `--([\w-]+)` \| `(.*?)` \|", PAGE, re.MULTILINE))
    defaults = {
        field.name.replace("_", "-"): f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
        for field in fields(ServeOptions)
    }
    assert len(stated) >= 10
    assert stated == {name: defaults[name] for name in stated}


def test_defaults_are_the_records(serve: Serve) -> None:
    assert serve("a-model") == (EngineConfig(model="a-model"), ServeOptions())


def test_flags_arrive(serve: Serve, tmp_path: Path) -> None:
    config, options = serve(
        "a-model",
        *("--dtype", "half", "--max-num-seqs", "8", "--keep", "lm_head", "--keep", "*.fc2", "--enforce-eager"),
        *("--generation-config", "none", "--kv-cache-bytes", "1000", "--gpu-memory-utilization", "0.5"),
        *("--host", "::1", "--port", "0", "--served-model-name", "a", "--served-model-name", "b"),
        *("--api-key", "k", "--api-key", "l", "--api-key-file", str(tmp_path / "keys"), "--root-path", "/x"),
        *("--allowed-origins", "https://a.example", "--max-waiting", "3", "--priority", "--request-timeout", "1.5"),
        *("--shutdown-timeout", "2", "--max-body-mb", "0.5", "--max-file-mb", "7", "--max-audio-seconds", "9"),
        *("--log-format", "json", "--log-level", "debug", "--otlp-traces-endpoint", "http://x", "--disable-playground"),
    )
    assert (config.dtype, config.max_num_seqs, config.quantization_keep) == ("float16", 8, ("lm_head", "*.fc2"))
    assert (config.enforce_eager, config.generation_config, config.kv_cache_bytes) == (True, "none", 1000)
    assert options == ServeOptions(
        host="::1",
        port=0,
        served_model_name=("a", "b"),
        api_key=("k", "l"),
        api_key_file=tmp_path / "keys",
        root_path="/x",
        allowed_origins=("https://a.example",),
        max_waiting=3,
        priority=True,
        request_timeout=1.5,
        shutdown_timeout=2.0,
        max_body_mb=0.5,
        max_file_mb=7.0,
        max_audio_seconds=9.0,
        log_format="json",
        log_level="debug",
        otlp_traces_endpoint="http://x",
        disable_playground=True,
    )
    assert (options.max_body_bytes, options.max_file_bytes) == (500_000, 7_000_000)


def test_a_file_gives_flags(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(
        "model: a-model\nport: 8001\nserved-model-name: [a, b]\napi_key: k\nmax-num-seqs: 4\n"
        "keep: '*.fc2'\ndisable-playground: true\nrequest-timeout: 3\nrevision: 1.10\n"
    )
    config, options = serve("--config", str(file))
    assert (config.model, config.max_num_seqs, config.quantization_keep) == ("a-model", 4, ("*.fc2",))
    assert (options.port, options.served_model_name, options.api_key) == (8001, ("a", "b"), ("k",))
    assert (options.disable_playground, options.request_timeout, config.revision) == (True, 3.0, "1.10")


def test_the_environment_gives_flags(serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("port: 8001\n")
    given = {"MODEL": "a-model", "MAX_WAITING": "9", "API_KEY": "k l", "ENFORCE_EAGER": "1", "CONFIG": str(file)}
    for name, value in given.items():
        monkeypatch.setenv(f"TRANSDUCE_SERVE_{name}", value)
    config, options = serve()
    assert (config.model, config.enforce_eager) == ("a-model", True)
    assert (options.max_waiting, options.api_key, options.port) == (9, ("k", "l"), 8001)


def test_flags_win_over_the_environment_and_that_over_the_file(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("port: 1\nmax-waiting: 1\nmax-num-seqs: 1\n")
    monkeypatch.setenv("TRANSDUCE_SERVE_PORT", "2")
    monkeypatch.setenv("TRANSDUCE_SERVE_MAX_WAITING", "2")
    config, options = serve("a-model", "--config", str(file), "--port", "3")
    assert (options.port, options.max_waiting, config.max_num_seqs) == (3, 2, 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("prot: 8001\n", "there is no flag --prot; did you mean port or priority?"),
        ("xyzzy: 8001\n", "there is no flag --xyzzy; transduce serve --help lists them"),
        ("config: x.yaml\n", "there is no flag --config"),
        ("- port\n", "holds no flags"),
        ("port: {\n", "cannot read"),
        ("port: many\n", "'--port' ('many' from 'serve.yaml'): Input should be a valid integer"),
        ("max-waiting: 2.7\n", "'--max-waiting' ('2.7' from 'serve.yaml')"),
        ("port: true\n", "'--port' ('true' from 'serve.yaml')"),
        ("max-waiting: -1\n", "max_waiting=-1: give a whole number >= 0 (from 'serve.yaml')"),
        ("dtype: int4\n", "bfloat16 (from 'serve.yaml')"),
        ("api-key:\n", "'serve.yaml': api-key has no value"),
        ("api-key: []\n", "'serve.yaml': api-key has no value"),
        ("port: [1]\n", "'serve.yaml': port: give one value"),
        ("api-key: [{a: b}]\n", "'serve.yaml': api-key: give a value, or a list of them"),
        (None, "cannot read"),
    ],
)
def test_a_file_that_cannot_be_used(
    content: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("serve.yaml").write_text(content)
    assert cli.main(["serve", "a-model", "--config", "serve.yaml"]) == cli.WRONG
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "name", "value", "said"),
    [
        (
            "serve",
            "SERVE_PROT",
            "1",
            "no flag's variable; did you mean TRANSDUCE_SERVE_PORT or TRANSDUCE_SERVE_PRIORITY?",
        ),
        ("serve", "SERVE_KEEP", "1", "did you mean TRANSDUCE_SERVE_QUANTIZATION_KEEP?"),
        ("serve", "SERVE_XYZZY", "1", "TRANSDUCE_SERVE_XYZZY is no flag's variable; transduce serve --help lists them"),
        ("generate", "GENERATE_SEDE", "1", "did you mean TRANSDUCE_GENERATE_SEED?"),
        ("serve", "SERVE_API_KEY", " ", "TRANSDUCE_SERVE_API_KEY is empty"),
        ("serve", "SERVE_PORT", "many", "('many' from TRANSDUCE_SERVE_PORT): Input should be a valid integer"),
        ("serve", "SERVE_PORT", "tcp://10.0.0.1:80", "Kubernetes sets for a service of that name; give the flag"),
        ("serve", "SERVE_MAX_WAITING", "-1", "give a whole number >= 0 (from TRANSDUCE_SERVE_MAX_WAITING)"),
        ("serve", "SERVE_DTYPE", "int4", "bfloat16 (from TRANSDUCE_SERVE_DTYPE)"),
        ("serve", "SERVE_ENFORCE_EAGER", "maybe", "('maybe' from TRANSDUCE_SERVE_ENFORCE_EAGER)"),
    ],
)
def test_a_variable_that_cannot_be_used(
    command: str,
    name: str,
    value: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(f"TRANSDUCE_{name}", value)
    assert cli.main([command, "a-model"]) == cli.WRONG
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert cli.main([command, "--help"]) == 0


def test_variables_that_kubernetes_sets_for_its_services_are_none_of_ours(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    for service in ("TRANSDUCE_SERVE", "TRANSDUCE_SERVE_WHISPER"):
        linked = {
            "SERVICE_HOST": "10.0.0.1",
            "SERVICE_PORT": "80",
            "SERVICE_PORT_HTTP": "80",
            "PORT": "tcp://10.0.0.1:80",
            "PORT_80_TCP": "tcp://10.0.0.1:80",
            "PORT_80_TCP_PROTO": "tcp",
            "PORT_80_TCP_PORT": "80",
            "PORT_80_TCP_ADDR": "10.0.0.1",
        }
        for name, value in linked.items():
            monkeypatch.setenv(f"{service}_{name}", value)
    assert serve("a-model", "--port", "8001")[1].port == 8001


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--max-waiting", "-1"), "max_waiting=-1: give a whole number >= 0"),
        (("--dtype", "int4"), "dtype='int4'"),
        (("--tensor-parallel-size", "2"), "tensor_parallel_size=2"),
    ],
)
def test_a_value_that_cannot_work(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "a-model", *arguments]) == cli.WRONG
    assert said in capsys.readouterr().err
