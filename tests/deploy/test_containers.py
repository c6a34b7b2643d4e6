"""Check the arguments, variables, ports and paths of every deployment against the code, without a container engine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from serving import __main__ as program
from serving.app import create_app
from serving.local_triton import environment as triton_environment
from serving.local_triton import server as triton_server
from serving.settings import Settings
from serving.triton import Triton
from serving.version import VERSION
from tests.conftest import ENVIRONMENT
from tests.deploy.manifests import DEPLOY, DEPLOYMENTS, ROOT, Pair, image_environment, pair

DOCKERFILE = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Options that differ between the embedded Triton and one in a container: paths and addresses.
DIFFERENT = {"model-repository", "http-address", "grpc-address", "metrics-address"}
LEFT_OUT = ("torch", "lightning", "h5py", "onnx", "onnxruntime", "pytriton", "tqdm", "jaxtyping", "training", "export")
EMBEDDED = {"backend-directory", "backend-config", "http-port", "grpc-port", "metrics-port"} | {
    "http-restricted-api",  # in a pod, or the network of a composition, the gateway alone reaches Triton
    "grpc-restricted-protocol",
}


@pytest.fixture(scope="module", params=DEPLOYMENTS)
def deployed(request: pytest.FixtureRequest) -> Pair:
    return pair(request.param)


@pytest.fixture(scope="module")
def wheel() -> Path:
    triton_environment.build(ENVIRONMENT)
    folder = triton_environment.installation(ENVIRONMENT)
    assert folder is not None
    return folder


@pytest.fixture(scope="module")
def embedded(wheel: Path, make_settings: Callable[..., Settings]) -> dict[str, str]:
    """Return the options with which the service starts the embedded Triton."""
    command = triton_server.command(wheel, Path("backends"), make_settings(Path("models")), restricted=True)
    given = (argument[2:].partition("=") for argument in command if argument.startswith("--"))
    return {name: value for name, _, value in given}


def settings(deployed: Pair) -> Settings:
    """Return the settings that the gateway reads from its variables."""
    given = {name: value for name, value in deployed.gateway.environment.items() if name.startswith("PETROV_")}
    return Settings.model_validate({name.removeprefix("PETROV_").lower(): value for name, value in given.items()})


def test_the_gateway_is_started_by_an_existing_command(deployed: Pair) -> None:
    [command] = deployed.gateway.arguments
    assert command in typer.main.get_group(program.commands).commands  # type: ignore[attr-defined]  # a click group


def test_the_variables_of_the_gateway_are_valid_settings(deployed: Pair) -> None:
    chosen = settings(deployed)
    assert not chosen.embedded
    assert (chosen.host, chosen.port, chosen.grpc_port) == ("0.0.0.0", 8080, 8081)  # noqa: S104 - behind a Service, or published on the loopback


def test_the_gateway_finds_its_triton(deployed: Pair) -> None:
    address = settings(deployed).triton
    assert address in deployed.triton.addresses
    assert address.endswith(f":{Settings.model_fields['triton_http_port'].default}")


def test_both_containers_mount_the_repository_read_only(deployed: Pair) -> None:
    repository = deployed.triton.options["model-repository"]
    assert settings(deployed).repository == Path(repository)
    assert deployed.triton.mounts[repository]
    assert deployed.gateway.mounts[repository]


def test_a_key_file_is_mounted(deployed: Pair) -> None:
    keys = settings(deployed).keys
    assert keys is None or deployed.gateway.mounts[str(keys.parent)]


def test_triton_has_the_options_of_the_embedded_one(deployed: Pair, embedded: dict[str, str]) -> None:
    there = {name: value for name, value in deployed.triton.options.items() if name not in DIFFERENT}
    assert there == {name: value for name, value in embedded.items() if name not in DIFFERENT | EMBEDDED}


def test_triton_accepts_its_options(deployed: Pair, wheel: Path) -> None:
    done = subprocess.run(
        [wheel / "bin/tritonserver", "--help"],
        env=triton_server.variables(wheel, Settings.model_validate({}), ""),
        capture_output=True,
        text=True,
        check=False,
    )
    known = set(re.findall(r"^  --([a-z0-9-]+)", done.stdout + done.stderr, re.MULTILINE))
    assert deployed.triton.options.keys() <= known


def test_probes_use_existing_routes_and_ports(deployed: Pair, tmp_path: Path) -> None:
    routes = create_app(Settings(repository=tmp_path), Triton("127.0.0.1:8000", 1)).openapi()["paths"].keys()
    for probes, port in ((deployed.gateway.probes, 8080), (deployed.triton.probes, 8000)):
        targets = {found for probe in probes for found in re.findall(r"http://127\.0\.0\.1:(\d+)(/[a-z0-9/]+)", probe)}
        assert {int(found) for found, _ in targets} == {port}
        assert {path for _, path in targets} <= routes  # those of Triton are in /v2, which the gateway serves, too


def test_images_are_pinned_and_equal_in_all_deployments() -> None:
    images = {(each.gateway.image, each.triton.image) for each in map(pair, DEPLOYMENTS)}
    [(gateway, triton)] = images
    assert gateway == f"petrov-gateway:{VERSION}"
    assert re.fullmatch(r"nvcr\.io/nvidia/tritonserver:\d\d\.\d\d-py3", triton)
    assert f"--tag {gateway}" in DOCKERFILE


def test_the_image_copies_existing_files() -> None:
    copied = [path for line in re.findall(r"^COPY (?!--)(.*)$", DOCKERFILE, re.MULTILINE) for path in line.split()[:-1]]
    sent = [line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(copied) == sorted(sent)
    assert all((ROOT / path).exists() for path in copied)
    exposed = re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)
    assert exposed == [f"{Settings.model_fields['port'].default} {Settings.model_fields['grpc_port'].default}"]
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", DOCKERFILE, re.MULTILINE)
    [entry] = re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)
    assert json.loads(entry) == ["python", "-m", program.__spec__.parent]


def test_the_image_contains_neither_torch_nor_triton() -> None:
    groups = re.findall(r"--group (\S+)", DOCKERFILE)
    packages = {package for group in groups for package in packages_of(group)}
    assert {"fastapi", "numpy", "tritonclient[grpc]"} <= packages
    assert not [
        name for name in packages for part in ("torch", "triton", "onnx") if part in name.removeprefix("tritonclient")
    ]


def packages_of(group: str) -> set[str]:
    """Return the package names of a dependency group and of the groups it includes."""
    names = set[str]()
    for entry in PROJECT["dependency-groups"][group]:
        names |= packages_of(entry["include-group"]) if isinstance(entry, dict) else {named(entry)}
    return names


def named(requirement: str) -> str:
    """Return the package name of a requirement, without versions and markers."""
    return re.split(r"[<>=;! ]", requirement)[0]


def test_the_gateway_runs_without_the_packages_missing_in_its_image(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({LEFT_OUT}))\n"
        "from serving import __main__\n"
        "from serving.app import create_app\n"
        "from serving.settings import Settings\n"
        "from serving.triton import Triton\n"
        f"settings = Settings(repository={str(tmp_path)!r}, traces='http://127.0.0.1:4318/v1/traces')\n"
        "create_app(settings, Triton(settings.triton_address, 1)).openapi()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_image_sets_no_variables_but_settings() -> None:
    assert image_environment().keys() <= {"PATH", "PYTHONUNBUFFERED", *petrov_variables()}


def petrov_variables() -> set[Any]:
    """Return every variable that the service reads."""
    return {f"PETROV_{name.upper()}" for name in Settings.model_fields}
