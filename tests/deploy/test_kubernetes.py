"""What the manifests promise each other, the image and the server."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from transduce import cli
from transduce.server.options import ServeOptions

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
DOCKERFILE = (KUBERNETES.parent / "Dockerfile").read_text()
USER = 10001


def manifest(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((KUBERNETES / f"{name}.yaml").read_text())
    return loaded


DEPLOYMENT, SERVICE, CLAIM, KUSTOMIZATION = map(manifest, ("deployment", "service", "pvc", "kustomization"))
TEMPLATE = DEPLOYMENT["spec"]["template"]
POD = TEMPLATE["spec"]
(CONTAINER,) = POD["containers"]


def arguments() -> dict[str, str]:
    """The flags that the container gives to `transduce serve`."""
    command, model, *flags = CONTAINER["args"]
    assert command == "serve"
    assert not model.startswith("-")
    return dict(flag.split("=", 1) for flag in flags)


def test_flags_are_the_servers() -> None:
    serve = get_command(cli.app).commands["serve"]  # type: ignore[attr-defined]  # an app of several commands is a group
    known = {name for parameter in serve.params for name in parameter.opts}
    assert set(arguments()) <= known


def test_flags_have_values_that_the_server_takes() -> None:
    values = {flag.removeprefix("--").replace("-", "_"): value for flag, value in arguments().items()}
    options = ServeOptions(
        host=values.pop("host"),
        port=int(values.pop("port")),
        shutdown_timeout=float(values.pop("shutdown_timeout")),
        log_format=values.pop("log_format"),  # type: ignore[arg-type]  # that it is one of two is what is tested
        api_key_file=Path(values.pop("api_key_file")),
    )
    assert not values
    assert options.host == "0.0.0.0"
    assert options.port == CONTAINER["ports"][0]["containerPort"]


def test_the_pod_has_time_to_end_before_it_is_killed() -> None:
    pause = CONTAINER["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert POD["terminationGracePeriodSeconds"] >= pause + float(arguments()["--shutdown-timeout"]) + 5


@pytest.mark.parametrize(
    ("probe", "path"), [("startupProbe", "/health"), ("livenessProbe", "/health"), ("readinessProbe", "/ready")]
)
def test_probes_ask_the_routes_made_for_them(probe: str, path: str) -> None:
    assert CONTAINER[probe]["httpGet"] == {"path": path, "port": "http"}


def test_services_set_no_variables_that_flags_are_read_from() -> None:
    assert POD["enableServiceLinks"] is False


def test_selectors_find_the_pods() -> None:
    labels = TEMPLATE["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert SERVICE["spec"]["selector"].items() <= labels.items()
    assert SERVICE["spec"]["ports"][0]["targetPort"] == CONTAINER["ports"][0]["name"]


def test_nothing_runs_as_root_or_writes_to_the_image() -> None:
    assert POD["securityContext"]["runAsNonRoot"]
    assert POD["securityContext"]["runAsUser"] == POD["securityContext"]["fsGroup"] == USER
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert f"USER {USER}:{USER}" in DOCKERFILE


def test_volumes_are_those_mounted() -> None:
    mounted = {mount["name"]: mount for mount in CONTAINER["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    assert mounted.keys() == volumes.keys()
    assert {mount["mountPath"] for mount in mounted.values() if not mount.get("readOnly")} == {"/models", "/tmp"}
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == CLAIM["metadata"]["name"]


def test_the_keys_file_is_the_secrets() -> None:
    (secret,) = KUSTOMIZATION["secretGenerator"]
    (volume,) = [volume for volume in POD["volumes"] if "secret" in volume]
    (mount,) = [mount for mount in CONTAINER["volumeMounts"] if mount["name"] == volume["name"]]
    (file,) = secret["files"]
    assert volume["secret"]["secretName"] == secret["name"]
    assert arguments()["--api-key-file"] == f"{mount['mountPath']}/{file}"
    assert file in (KUBERNETES / ".gitignore").read_text().splitlines()


def test_the_kustomization_names_every_manifest() -> None:
    assert {f"{name}.yaml" for name in ("deployment", "service", "pvc")} == set(KUSTOMIZATION["resources"])
    assert KUSTOMIZATION["images"][0]["name"] == CONTAINER["image"].partition(":")[0]


def test_memory_and_cores_are_bounded() -> None:
    assert CONTAINER["resources"]["requests"] == CONTAINER["resources"]["limits"]
