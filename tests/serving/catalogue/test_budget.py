"""A budget for memory: a real Triton on a processor loads and unloads plain models as requests come.

What the models take is a stand-in's, so that one or two of them fit; that the processes themselves are measured rightly
is a test of its own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
import pytest

from serving.catalogue.budget import Limit
from serving.catalogue.entry import Entry
from serving.codecs import binary
from serving.device import Device
from serving.local_triton import memory
from serving.local_triton.server import TritonServer
from serving.settings import Settings
from serving.triton import KEY_HEADER, Triton
from tests import toy_rollouts
from tests.conftest import Gateway, RunService, wait_until
from tests.processes import below
from tests.serving.catalogue.test_loading import FIELD, KEY, loaded
from tests.serving.triton.test_faults import add, tritons

NAMES = ("blur", "other", "third")
MEBIBYTE = 2**20
EACH = 200 * MEBIBYTE  # as much as is estimated before it is measured
POINTS = 50_000  # of a frame that takes 200 kB, more than a socket holds of several


@pytest.fixture(scope="module")
def gateway(
    toy_repository: Path, tmp_path_factory: pytest.TempPathFactory, run_service: RunService
) -> Iterator[Gateway]:
    """Yield a gateway of four models, of which two fit."""
    folder = tmp_path_factory.mktemp("budget") / "repository"
    for name in ("blur", toy_rollouts.NAME):
        shutil.copytree(toy_repository / name, folder / name)
    for name in NAMES[1:]:
        add(folder, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TritonServer, "memory", lambda _: dict.fromkeys((*NAMES, toy_rollouts.NAME), EACH))
        with run_service(folder, KEY, empty=True, model_memory=5 * EACH // 2, shadow_share=0.0) as running:
            yield running


def predict(gateway: Gateway, model: str) -> httpx2.Response:
    return httpx2.post(f"{gateway.url}/v1/models/{model}/predict", json=FIELD, timeout=60)


def states(gateway: Gateway) -> dict[str, str]:
    return {each["name"]: each["state"] for each in httpx2.get(f"{gateway.url}/v1/models").json()["models"]}


def metric(gateway: Gateway, name: str) -> float:
    """Return the sum of a metric over its labels."""
    lines = httpx2.get(f"{gateway.url}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def test_what_fits_is_loaded_and_the_rest_is_ready_on_demand(gateway: Gateway) -> None:
    wait_until(lambda: sorted(states(gateway).values()) == ["loaded", "loaded", "on demand", "on demand"])
    assert len(loaded(gateway.settings)) == 2
    assert httpx2.get(f"{gateway.url}/health/ready").json() == {"ready": True, "missing": []}
    found = states(gateway)
    waiting = next(name for name, state in found.items() if state == "on demand")
    assert httpx2.get(f"{gateway.url}/v2/models/{waiting}/ready").status_code == 200
    assert httpx2.get(f"{gateway.url}/v1/models/{waiting}").json()["card"]["model"] == waiting
    wait_until(lambda: metric(gateway, "petrov_models_memory_bytes") == 2 * EACH)
    assert metric(gateway, "petrov_models_memory_limit_bytes") == 5 * EACH // 2
    assert metric(gateway, "petrov_newest_version_served") == 4


def test_the_model_that_is_used_stays_and_the_one_that_is_not_leaves(gateway: Gateway) -> None:
    assert predict(gateway, "blur").status_code == 200
    assert predict(gateway, "other").status_code == 200
    assert loaded(gateway.settings) == {"blur", "other"}
    before = metric(gateway, "petrov_model_loads_total")
    assert predict(gateway, "blur").status_code == 200
    assert predict(gateway, "third").status_code == 200
    assert loaded(gateway.settings) == {"blur", "third"}
    assert metric(gateway, "petrov_model_loads_total") == before + 1
    assert metric(gateway, "petrov_model_unloads_total") > 0


def test_users_of_more_models_than_fit_are_all_answered_in_turns(gateway: Gateway) -> None:
    """Each has always a request in flight, so that no model is ever idle: none is passed over, and turns are long."""
    before, answers = metric(gateway, "petrov_model_loads_total"), dict.fromkeys(NAMES, 0)

    def use(name: str) -> set[int]:
        found = set()
        while min(answers.values()) < 10:
            found.add(predict(gateway, name).status_code)
            answers[name] += 1
        return found

    with ThreadPoolExecutor(2 * len(NAMES)) as pool:
        assert {status for each in pool.map(use, NAMES * 2) for status in each} == {200}
    loads = metric(gateway, "petrov_model_loads_total") - before
    assert 1 <= loads <= 8
    assert len(loaded(gateway.settings)) <= 2


def test_a_model_with_an_open_stream_stays_and_who_waits_in_vain_is_told_when_to_come_back(gateway: Gateway) -> None:
    body, npy = binary.write_npy(np.ones(POINTS, np.float32)), {"Content-Type": binary.NPY}
    url = f"{gateway.url}/v1/models/{toy_rollouts.NAME}/rollout?frames=100"
    small = {"inputs": [{"name": "coefficient", "shape": [1, 4, 4], "datatype": "FP32", "data": [1.0] * 16}]}
    with httpx2.stream("POST", url, content=body, headers=npy, timeout=60) as stream:
        assert stream.status_code == 200
        chunks = stream.iter_raw()
        assert next(chunks)
        gateway.service.catalogue.budget.limit = Limit(EACH, "cpu")  # one of them fits
        try:
            late = small | {"parameters": {"timeout": 2_000_000}}
            refused = [
                httpx2.post(f"{gateway.url}/v2/models/{name}/infer", json=late, timeout=60) for name in NAMES[:2]
            ]
            idle = [each.status_code for each in refused].count(200)
            assert idle <= 1, [each.text for each in refused]  # what was loaded beside the stream
            assert toy_rollouts.NAME in loaded(gateway.settings)
        finally:
            gateway.service.catalogue.budget.limit = Limit(5 * EACH // 2, "cpu")
        refusal = next(each for each in refused if each.status_code == 503)
        assert int(refusal.headers["retry-after"]) >= 1
        assert "waits for memory" in refusal.text
        assert sum(map(len, chunks)) > 99 * 4 * POINTS


@pytest.mark.deep
def test_what_was_used_is_loaded_again_after_a_kill_and_the_rest_stays_on_demand(gateway: Gateway) -> None:
    assert predict(gateway, "third").status_code == 200
    (server,) = tritons(gateway.settings)
    server.send_signal(signal.SIGKILL)
    psutil.wait_procs([server])
    wait_until(lambda: bool(tritons(gateway.settings)))
    wait_until(lambda: httpx2.get(f"{gateway.url}/health/ready").status_code == 200)

    def back() -> bool:
        try:
            return "third" in loaded(gateway.settings)
        except httpx2.TransportError:  # no look has noticed yet
            return False

    wait_until(back)
    for name in NAMES:
        assert predict(gateway, name).status_code == 200
    assert len(loaded(gateway.settings)) == 2


@pytest.mark.parametrize("noticed", [True, False])
def test_a_failed_load_makes_a_gateway_unready_until_it_succeeds_without_a_request(
    gateway: Gateway, *, noticed: bool
) -> None:
    """The files change, or time alone mends it: they look as they did at the failure."""
    catalogue, entry = gateway.service.catalogue, gateway.service.catalogue._entries["third"]
    graph = gateway.settings.repository / "third" / "1" / "model.onnx"
    whole = graph.read_bytes()
    catalogue._settings = gateway.settings.model_copy(update={"companion_idle_seconds": 0.5})
    try:
        wait_until(lambda: not loaded(gateway.settings) and not entry.is_loading)
        graph.write_bytes(b"x" * len(whole))
        assert predict(gateway, "third").status_code == 503
        assert httpx2.get(f"{gateway.url}/health/ready").json()["missing"] == ["third"]
        wait_until(lambda: entry.used is None and not entry.is_loading)
        before = graph.stat()
        graph.write_bytes(whole)
        if not noticed:
            os.utime(graph, ns=(before.st_atime_ns, before.st_mtime_ns))
        wait_until(lambda: httpx2.get(f"{gateway.url}/health/ready").status_code == 200)
    finally:
        graph.write_bytes(whole)
        catalogue._settings = gateway.settings
    assert predict(gateway, "third").status_code == 200


def test_a_load_that_lacks_memory_leaves_a_model_on_demand(gateway: Gateway) -> None:
    entry = gateway.service.catalogue._entries["third"]
    entry.report(1, "cannot be loaded by Triton", "std::bad_alloc")
    assert 1 in entry.fit
    entry.report(1, "cannot be loaded by Triton", "no graph")
    assert 1 not in entry.fit
    del entry.faults[1]


def test_an_instance_is_measured_by_its_process(gateway: Gateway) -> None:
    (server,) = tritons(gateway.settings)
    found = memory.by_model(server.pid, "cpu")
    assert found.keys() == loaded(gateway.settings)
    resident = sum(each.memory_info().rss for each in below(server.pid, "stub"))
    assert all(10 * MEBIBYTE < each < resident for each in found.values())
    assert memory.by_model(server.pid, "gpu") == {}


def test_an_idle_model_leaves(gateway: Gateway) -> None:
    catalogue = gateway.service.catalogue
    catalogue._settings = gateway.settings.model_copy(update={"companion_idle_seconds": 1.0})
    wait_until(lambda: not loaded(gateway.settings))
    catalogue._settings = gateway.settings
    assert set(states(gateway).values()) == {"on demand"}
    assert predict(gateway, "blur").status_code == 200


def test_a_request_while_an_idle_model_leaves_waits_until_it_is_loaded_again(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    unload, begun, done = Triton.unload, threading.Event(), threading.Event()

    async def late(self: Triton, model: str, seconds: float = 0.0) -> bool:
        begun.set()
        await asyncio.sleep(0.5)
        try:
            return await unload(self, model, seconds)
        finally:
            done.set()

    assert predict(gateway, "blur").status_code == 200
    catalogue = gateway.service.catalogue
    monkeypatch.setattr(Triton, "unload", late)
    monkeypatch.setattr(catalogue, "_settings", gateway.settings.model_copy(update={"companion_idle_seconds": 0.5}))
    assert begun.wait(30)
    monkeypatch.setattr(catalogue, "_settings", gateway.settings)
    found = httpx2.post(f"{gateway.url}/v1/models/blur/versions/1/predict", json=FIELD, timeout=60)
    assert found.status_code == 200, found.text
    assert done.wait(30)
    assert "blur" in loaded(gateway.settings)


def unload(settings: Settings, model: str) -> None:
    """Unload a model as another gateway does."""
    url = f"http://127.0.0.1:{settings.triton_http_port}/v2/repository/models/{model}/unload"
    assert httpx2.post(url, headers={KEY_HEADER: KEY}, json={}).status_code == 200
    wait_until(lambda: model not in loaded(settings))


def test_a_stream_goes_on_where_another_gateway_unloads_its_model(gateway: Gateway) -> None:
    body, npy = binary.write_npy(np.ones(POINTS, np.float32)), {"Content-Type": binary.NPY}
    url = f"{gateway.url}/v1/models/{toy_rollouts.NAME}/rollout?frames=100"
    with httpx2.stream("POST", url, content=body, headers=npy, timeout=60) as stream:
        assert stream.status_code == 200
        chunks = stream.iter_raw()
        assert next(chunks)
        unload(gateway.settings, toy_rollouts.NAME)
        assert sum(map(len, chunks)) > 99 * 4 * POINTS
    assert toy_rollouts.NAME in loaded(gateway.settings)


def test_a_model_that_another_gateway_unloads_is_not_loaded_again_without_a_request(gateway: Gateway) -> None:
    assert predict(gateway, "blur").status_code == 200
    assert predict(gateway, "other").status_code == 200
    entry, before = gateway.service.catalogue._entries["blur"], metric(gateway, "petrov_model_loads_total")
    unload(gateway.settings, "blur")
    wait_until(lambda: not entry.loaded and entry.used is None)
    assert metric(gateway, "petrov_model_loads_total") == before


def test_a_model_that_was_never_loaded_counts_with_its_files(gateway: Gateway) -> None:
    budget, entry = gateway.service.catalogue.budget, Entry("new", files=frozenset({("model.onnx", 0, 3 * EACH)}))
    assert budget.share(entry) == 4 * EACH


def test_a_model_counts_as_what_it_takes_of_the_card_on_which_that_is_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has an instance on each, and the budget is that of one card."""
    graph, stub, server = tmp_path / "blur" / "1" / "model.onnx", tmp_path / memory.STUB, str(os.getpid())
    graph.parent.mkdir(parents=True)
    graph.write_text("read line\n")  # a program for a shell, which waits for its input
    stub.symlink_to("/bin/sh")
    instances = [
        subprocess.Popen([stub, graph, "a", "b", "c", each], stdin=subprocess.PIPE) for each in (server, server, "1")
    ]
    first, second, other = (each.pid for each in instances)
    lines = [f"GPU-1, {first}, 700", f"GPU-2, {second}, 650", f"GPU-2, {other}, 900"]
    driver = tmp_path / "nvidia-smi"
    driver.write_text("\n".join(["#!/bin/sh", *(f"echo '{line}'" for line in lines)]))
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    try:
        wait_until(lambda: len([*memory.instances(int(server))]) == 2)  # they have begun
        assert memory.by_model(int(server), "gpu") == {"blur": 700 * MEBIBYTE}
    finally:
        for each in instances:
            each.communicate()


def test_the_driver_s_program_says_what_a_process_takes_of_each_card(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU-1, 12, 700'\necho 'GPU-2, 12, 650'\necho 'GPU-1, 13, [N/A]'\n")
    program.chmod(0o755)
    assert memory.on_cards((str(program),)) == {12: {"GPU-1": 700 * MEBIBYTE, "GPU-2": 650 * MEBIBYTE}}
    program.write_text("#!/bin/sh\nexit 9\n")
    assert memory.on_cards((str(program),)) == {}
    assert memory.on_cards((str(tmp_path / "missing"),)) == {}


CARD = Device(kind="gpu", name="NVIDIA L4", count=1, memory_bytes=8 * 2**30)
PROCESSOR = Device(kind="cpu")


@pytest.mark.parametrize(
    ("wanted", "device", "expected"),
    [
        ({}, CARD, Limit(7 * 2**30, "gpu")),
        ({"gpu_memory": "6GiB"}, CARD, Limit(6 * 2**30, "gpu")),
        ({"gpu_memory": "0"}, CARD, None),
        ({"gpu_memory": "6GB"}, PROCESSOR, None),
        ({"model_memory": "2GB"}, PROCESSOR, Limit(2 * 10**9, "cpu")),
        ({}, PROCESSOR, None),
        ({"gpu_memory": ""}, None, None),
        ({"gpu_memory": "8GB"}, None, Limit(8 * 10**9, "gpu")),
    ],
)
def test_the_budget_is_what_is_asked_for_or_what_a_card_has(
    wanted: dict[str, Any], device: Device | None, expected: Limit | None
) -> None:
    assert Limit.of(Settings.model_validate(wanted), device) == expected
