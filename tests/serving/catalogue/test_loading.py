"""The gateway loads and unloads models of a real Triton that starts without any."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from serving.local_triton import environment
from serving.local_triton import server as triton_server
from serving.settings import Settings
from serving.triton import KEY_HEADER, Run, Triton
from tests.conftest import Gateway, RunService, wait_until
from tests.processes import below
from tests.refusals import refused
from tests.serving.http.test_gateway import sample
from tests.serving.triton.test_faults import add, publish, tritons

KEY = "0123456789abcdef"
#: A model that is loaded once there is a file beside it, and that says when it has begun to be.
WAITING = """\
import time
from pathlib import Path
class TritonPythonModel:
    def initialize(self, args):
        folder = Path(args["model_repository"])
        (folder / "begun").touch()
        while not (folder / "go").exists():
            time.sleep(0.05)
"""
CONFIG = """\
name: "waiting"
backend: "python"
input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }
instance_group { count: 1 kind: KIND_CPU }
"""
FIELD = {"inputs": {"coefficient": [[1.0] * 16] * 16}}


@pytest.fixture
def repository(toy_repository: Path, tmp_path: Path) -> Path:
    """Return a repository of `blur`, its TorchScript twin and `drift` with its derivatives."""
    folder = tmp_path / "repository"
    for model in ("blur", "blur_torchscript", "drift", "drift_vjp", "drift_jvp"):
        shutil.copytree(toy_repository / model, folder / model)
    return folder


def loaded(settings: Settings) -> set[str]:
    """Return the models that Triton has loaded."""
    url = f"http://127.0.0.1:{settings.triton_http_port}/v2/repository/index"
    index = httpx2.post(url, headers={KEY_HEADER: KEY}).json()
    return {each["name"] for each in index if each.get("state") == "READY"}


async def test_a_load_holds_up_no_prediction(
    toy_repository: Path, tmp_path: Path, make_settings: Callable[..., Settings], run_triton: Callable[..., Any]
) -> None:
    shutil.copytree(toy_repository / "blur", tmp_path / "blur")
    waiting = tmp_path / "waiting"
    (waiting / "1").mkdir(parents=True)
    (waiting / "1" / "model.py").write_text(WAITING)
    (waiting / "config.pbtxt").write_text(CONFIG)
    settings = make_settings(tmp_path)
    field = {"coefficient": np.ones((1, 8, 8), np.float32)}
    async with Triton(settings.triton_address, 2**20, KEY, settings.triton_grpc_address) as triton:
        with run_triton(settings, KEY, empty=True):
            assert await triton.load("blur")
            loading = asyncio.create_task(triton.load("waiting"))
            await asyncio.to_thread(wait_until, (waiting / "begun").exists)
            calls = [triton.infer("blur", 1, field, Run.within(20)) for _ in range(20)]
            assert len(await asyncio.gather(*calls)) == 20
            assert not loading.done()
            (waiting / "go").touch()
            assert await loading
            with refused("model-failed", match='could not load "none"') as caught:
                await triton.load("none")
            assert re.match("[A-Z_]+: .*none", caught.value.__notes__[0])  # Triton's own sentence
        with refused("triton-unavailable", match=f"at {settings.triton_grpc_address} does not respond"):
            await triton.load("blur")


def example(gateway: Gateway, model: str) -> dict[str, Any]:
    """Return a request for a derivative."""
    card = httpx2.get(f"{gateway.url}/v1/models/{model}").json()["card"]

    def ones(tensor: dict[str, Any]) -> Any:
        sizes = dict.fromkeys(card["grid"]["axes"], 8) | {"component": len(tensor.get("components") or ())}
        value: Any = 1.0
        for axis in reversed(tensor["axes"][1:]):
            value = [value] * sizes[axis]
        return value

    return {
        "inputs": {each["name"]: ones(each) for each in card["inputs"]} | {p["name"]: 1.0 for p in card["parameters"]},
        "cotangents": {each["name"]: ones(each) for each in card["outputs"]},
    }


def test_companions_are_loaded_at_their_first_use_by_the_gateway_alone_and_unloaded_when_they_are_idle(
    repository: Path, run_service: RunService
) -> None:
    (repository / "drift_jvp" / "1" / "model.onnx").write_bytes(b"no graph")
    with run_service(repository, KEY, empty=True, companion_idle_seconds=4.0) as gateway:
        assert loaded(gateway.settings) == {"blur", "drift"}
        assert httpx2.get(f"{gateway.url}/health/ready").json() == {"ready": True, "missing": []}
        card = httpx2.get(f"{gateway.url}/v1/models/drift").json()["card"]
        assert card["differentiable"] == ["vjp", "jvp"]
        assert_only_the_gateway_may_change_what_is_loaded(gateway.settings)
        assert_nothing_of_triton_is_open_to_other_users(gateway.settings)
        document = example(gateway, "drift")
        with ThreadPoolExecutor(4) as pool:
            post = [
                pool.submit(httpx2.post, f"{gateway.url}/v1/models/drift/vjp", json=document, timeout=60)
                for _ in range(4)
            ]
            assert {each.result().status_code for each in post} == {200}, post[0].result().text
        assert "drift_vjp" in loaded(gateway.settings)
        twin = httpx2.post(f"{gateway.url}/v1/models/blur_torchscript/predict", json=FIELD, timeout=60)
        assert twin.status_code == 200
        assert {"blur", "drift", "blur_torchscript"} <= loaded(gateway.settings)
        wait_until(lambda: loaded(gateway.settings) == {"blur", "drift"})
        again = httpx2.post(f"{gateway.url}/v1/models/drift/vjp", json=document, timeout=60)
        assert again.status_code == 200
        document = {"inputs": document["inputs"], "tangents": document["inputs"]}
        found = httpx2.post(f"{gateway.url}/v1/models/drift/jvp", json=document, timeout=60)
        assert (found.status_code, found.json()["type"]) == (503, "urn:petrov:problem:model-not-ready")
        assert int(found.headers["retry-after"]) >= 1
        assert "cannot be loaded by Triton" in found.json()["detail"]
        assert httpx2.get(f"{gateway.url}/health/ready").status_code == 200


def assert_only_the_gateway_may_change_what_is_loaded(settings: Settings) -> None:
    url = f"http://127.0.0.1:{settings.triton_http_port}/v2"
    for path in (
        "repository/models/blur/unload",
        "repository/models/blur/load",
        "repository/index",
        "systemsharedmemory/region/x/register",
        "cudasharedmemory/region/x/register",
    ):
        body = {"key": "/x", "byte_size": 1, "offset": 0}
        assert httpx2.post(f"{url}/{path}", json=body).status_code == 403, path
    for path in ("trace/setting", "logging"):
        assert httpx2.post(f"{url}/{path}", json={}).status_code == 403, path
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{settings.triton_grpc_port}") as client:
        calls: tuple[Callable[[], object], ...] = (
            lambda: client.unload_model("blur"),
            client.get_model_repository_index,
            lambda: client.register_system_shared_memory("x", "/x", 1),
            lambda: client.update_log_settings({"log_info": True}),
        )
        for call in calls:
            with pytest.raises(InferenceServerException, match="restricted"):
                call()
        assert client.is_model_ready("blur")
    assert len([stub for each in tritons(settings) for stub in below(each.pid, "stub")]) == 2


def assert_nothing_of_triton_is_open_to_other_users(settings: Settings) -> None:
    """Look for the key, for shared memory and for the log as they do, and try what is found."""
    (server,) = tritons(settings)
    (supervisor,) = [each for each in psutil.Process().children() if each.pid == server.ppid()]
    family = [supervisor, server, *below(server.pid, "stub")]
    assert not any(KEY in part for process in family for part in process.cmdline())
    (option,) = [part for part in server.cmdline() if part.startswith("--backend-config=python,shm-region-prefix")]
    regions = list(Path("/dev/shm").glob(f"{option.rpartition('=')[2]}*"))  # noqa: S108 - where they are
    log = environment.log_file(settings)
    assert regions
    for path in (*regions, log, *settings.triton_runtime.glob("backends-*")):
        assert path.stat().st_mode & 0o077 == 0, path
    assert KEY not in log.read_text()
    if os.geteuid() != 0:  # only root may become another user
        return
    files = " ".join(f"/proc/{each.pid}/{name}" for each in family for name in ("cmdline", "environ"))
    read = subprocess.run(
        ["/bin/sh", "-c", f"cat {files} {log}"],
        user=65534,
        group=65534,
        extra_groups=[],
        capture_output=True,
        check=False,
    ).stdout
    assert b"--http-port=" in read, "it reads the arguments"
    assert KEY.encode() not in read
    guesses = ["", "$PETROV_TRITON_RESTRICTION", *re.findall(rf"{KEY_HEADER}=([!-~]+)", read.decode(errors="replace"))]
    for guess in guesses:
        assert_no_code_runs(settings, guess)


def assert_no_code_runs(settings: Settings, key: str) -> None:
    config, address = '{"backend": "python", "max_batch_size": 0}', f"127.0.0.1:{settings.triton_grpc_port}"
    url = f"http://127.0.0.1:{settings.triton_http_port}/v2/repository/models/evil/load"
    load = {"parameters": {"config": config, "file:1/model.py": base64.b64encode(b"raise SystemExit").decode()}}
    assert httpx2.post(url, headers={KEY_HEADER: key}, json=load).status_code == 403
    with tritonclient.grpc.InferenceServerClient(address) as client:
        headers, files = {f"triton-grpc-protocol-{KEY_HEADER}": key}, {"file:1/model.py": b"raise SystemExit"}
        with pytest.raises(InferenceServerException, match="restricted"):
            client.load_model("evil", headers=headers, config=config, files=files)


def test_a_newest_version_that_does_not_load_leaves_the_one_before_it_even_after_a_kill(
    repository: Path,
    run_service: RunService,
    caplog: pytest.LogCaptureFixture,
) -> None:
    publish(repository, "blur", 2, hidden=repository.parent)
    graph = repository / "blur" / "2" / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:100])
    graph.with_name("certificate.json").unlink()
    with run_service(repository, KEY, empty=True) as gateway:

        def version() -> str:
            response = httpx2.post(f"{gateway.url}/v1/models/blur/predict", json=FIELD, timeout=60)
            return str(response.headers.get("petrov-version")) if response.status_code == 200 else response.text

        assert version() == "1"
        assert "blur version 2 cannot be loaded by Triton" in caplog.text
        ready = httpx2.get(f"{gateway.url}/health/ready").json()
        assert (ready["ready"], ready["reason"]) == (True, "not served: blur (version 2 cannot be loaded by Triton)")
        metrics = httpx2.get(f"{gateway.url}/metrics").text
        assert sample(metrics, "petrov_newest_version_served", model="blur") == 0
        for process in tritons(gateway.settings):
            process.send_signal(signal.SIGKILL)
        wait_until(lambda: httpx2.get(f"{gateway.url}/health/ready").status_code == 503)
        wait_until(lambda: version() == "1")
        shutil.copy(repository / "blur" / "1" / "model.onnx", graph)  # mended in place
        wait_until(lambda: version() == "2")
        assert httpx2.get(f"{gateway.url}/health/ready").json() == {"ready": True, "missing": []}


def test_a_config_that_is_just_being_written_costs_no_version_that_is_served(
    repository: Path, run_service: RunService
) -> None:
    config = repository / "blur" / "config.pbtxt"
    text = config.read_text()
    with run_service(repository, KEY, empty=True) as gateway:

        def version() -> str:
            response = httpx2.post(f"{gateway.url}/v1/models/blur/predict", json=FIELD, timeout=60)
            return str(response.headers.get("petrov-version")) if response.status_code == 200 else response.text

        def reason() -> str:
            assert version() == "1"
            return str(httpx2.get(f"{gateway.url}/health/ready").json().get("reason", ""))

        config.write_text("")  # as a copy does, before the rest arrives
        wait_until(lambda: reason().startswith("not served: blur (version 1 is not loaded: config.pbtxt has no tensor"))
        config.write_text(text)
        wait_until(lambda: not reason())
        config.write_text("")
        publish(repository, "blur", 2, hidden=repository.parent)
        begin = "not served: blur (version 2 is not loaded: config.pbtxt has no tensor "
        wait_until(lambda: reason().startswith(f'{begin}"coefficient"'))
        config.write_text(text.partition("output")[0])
        wait_until(lambda: reason().startswith(f'{begin}"solution"'))
        config.write_text(text)
        wait_until(lambda: version() == "2")
        assert httpx2.get(f"{gateway.url}/health/ready").json() == {"ready": True, "missing": []}


@pytest.mark.deep
def test_a_repository_that_is_a_link_may_lead_to_another_release(repository: Path, run_service: RunService) -> None:
    link, new, release = (repository.with_name(name) for name in ("current", "new", "release"))
    link.symlink_to(repository)
    with run_service(link, KEY, empty=True) as gateway:
        shutil.copytree(repository, release)
        publish(release, "blur", 2, hidden=release.parent)
        new.symlink_to(release)
        new.replace(link)
        shutil.rmtree(repository)
        url = f"{gateway.url}/v1/models/blur/predict"
        wait_until(lambda: httpx2.post(url, json=FIELD, timeout=60).headers.get("petrov-version") == "2")


@pytest.mark.deep
def test_the_most_used_model_is_loaded_first_after_a_kill(repository: Path, run_service: RunService) -> None:
    for name in ("a", "b", "z"):
        add(repository, name)
    with run_service(repository, KEY, empty=True) as gateway:
        for _ in range(3):
            assert httpx2.post(f"{gateway.url}/v1/models/z/predict", json=FIELD).status_code == 200
        for process in tritons(gateway.settings):
            process.send_signal(signal.SIGKILL)
        catalogue, first = gateway.service.catalogue, set[str]()
        wait_until(lambda: not catalogue.responds or not catalogue.served())  # a quick restart falls between two looks

        def some() -> bool:
            first.update(catalogue.served() if catalogue.responds else ())
            return bool(first)

        wait_until(some)
        assert "z" in first
        assert len(first) < 5
        wait_until(lambda: httpx2.get(f"{gateway.url}/health/ready").status_code == 200)


@pytest.mark.deep
@pytest.mark.parametrize("mode", ["poll", pytest.param("none", marks=pytest.mark.deep)])
def test_a_triton_that_loads_its_models_itself_is_served(
    repository: Path,
    run_service: RunService,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    command = triton_server.command

    def other(*arguments: Any, **options: Any) -> list[str]:
        explicit = command(*arguments, **options)
        given = [each.replace("control-mode=explicit", f"control-mode={mode}") for each in explicit]
        return [*given, "--repository-poll-secs=1"] if mode == "poll" else given

    monkeypatch.setattr(triton_server, "command", other)
    with run_service(repository, empty=True) as gateway:
        found = httpx2.post(f"{gateway.url}/v1/models/drift/vjp", json=example(gateway, "drift"), timeout=60)
        assert found.status_code == 200, found.text
        if mode == "poll":
            publish(repository, "blur", 2, hidden=repository.parent)
            wait_until(lambda: gateway.service.catalogue.find("blur").version == 2)
        assert json.loads(httpx2.get(f"{gateway.url}/health/ready").text)["ready"]
