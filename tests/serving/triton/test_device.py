"""The device that was asked for: every branch, with stand-ins for a driver, for ONNX Runtime's providers and for pip.

This machine's own driver, ONNX Runtime and environment are asked, too, whatever they are.
"""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import EPFail

from serving.local_triton.backends import device as program
from serving.local_triton.device import Machine, choose, packages, runtime_version
from serving.local_triton.server import DEVICE, TritonServer, variables
from serving.system import StartupError
from tests.conftest import ENVIRONMENT, Gateway

CARD = {"name": "NVIDIA L4", "memory_bytes": 24 * 2**30}
DRIVER = {"cuda": [13, 2], "cards": [CARD]}
ABSENT = {"fault": "this machine has no NVIDIA driver (libcuda.so.1)", "absent": True}


class StandIn(Machine):
    """A `Machine` with a driver, what ONNX Runtime says of the GPU each time, and what pip says."""

    def __init__(self, driver: dict[str, Any], *sessions: str | None, pip: str | None = None) -> None:
        self._driver, self._sessions, self._pip = driver, list(sessions), pip
        self.installed: list[str] = []

    def driver(self) -> dict[str, Any]:
        return self._driver

    def session(self) -> dict[str, Any]:
        return {"version": runtime_version(), "fault": self._sessions.pop(0)}

    def install(self, packages: list[str]) -> str | None:
        self.installed += packages
        return self._pip


class Driver:
    """A stand-in for libcuda with two cards."""

    def __init__(self, status: int = 0) -> None:
        self.status = status

    def cuInit(self, _: int) -> int:
        return self.status

    def cuDriverGetVersion(self, found: Any) -> None:
        found._obj.value = 13020

    def cuDeviceGetCount(self, found: Any) -> None:
        found._obj.value = 2

    def cuDeviceGet(self, found: Any, index: int) -> None:
        found._obj.value = index

    def cuDeviceGetName(self, found: Any, size: int, card: ctypes.c_int) -> None:
        found.value = f"NVIDIA L{card.value + 4}".encode()[:size]

    def cuDeviceTotalMem_v2(self, found: Any, card: ctypes.c_int) -> None:
        found._obj.value = (card.value + 1) * 2**33


def test_a_driver_says_its_cuda_and_its_cards() -> None:
    found = program.driver(lambda _: Driver())
    cards = [{"name": "NVIDIA L4", "memory_bytes": 2**33}, {"name": "NVIDIA L5", "memory_bytes": 2**34}]
    assert found == {"cuda": (13, 2), "cards": cards}


@pytest.mark.parametrize(("status", "absent"), [(100, True), (803, False)])
def test_a_driver_that_does_not_start_says_why(status: int, absent: bool) -> None:
    found = program.driver(lambda _: Driver(status))
    assert ("absent" in found) == absent
    assert ("finds no GPU" if absent else "CUDA error 803") in found["fault"]


def test_this_machine_is_asked_in_a_process_of_its_own() -> None:
    machine = Machine(ENVIRONMENT)
    found = machine.driver()
    if "fault" in found:
        assert isinstance(found.pop("fault"), str)
        assert found in ({}, {"absent": True})
    else:
        assert found.keys() == {"cuda", "cards"}
        assert [type(each) for each in found["cuda"]] == [int, int]
        kinds = {"name": str, "memory_bytes": int}
        assert [{key: type(value) for key, value in card.items()} for card in found["cards"]] == [kinds] * len(
            found["cards"]
        )
    session = machine.session()
    assert session.keys() == {"version", "fault"}
    assert session["version"] == runtime_version()
    assert isinstance(session["fault"], str | None)


def test_a_question_that_crashes_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\necho no such library >&2\nexit 3\n")
    (tmp_path / "bin" / "python").chmod(0o755)
    assert Machine(tmp_path).session() == {"fault": "ONNX Runtime on the GPU crashed (status 3: no such library)"}


def test_a_program_that_does_not_start_is_a_fault(tmp_path: Path) -> None:
    missing = f"{tmp_path}/bin/python does not start (No such file or directory)"
    assert Machine(tmp_path).session() == {"fault": missing}


def test_a_gpu_that_computes_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    machine = StandIn(DRIVER, None)
    device = choose("auto", machine)
    assert (device.kind, device.name, device.count, device.memory_bytes) == ("gpu", "NVIDIA L4", 1, 24 * 2**30)
    assert not machine.installed
    [line] = caplog.messages
    assert line.startswith("Triton computes on NVIDIA L4, 24.0 GiB: its driver supports CUDA 13.2")


def test_what_is_missing_is_installed_in_versions_that_fit_the_driver() -> None:
    machine = StandIn(DRIVER, "libcublas.so.13 is missing", None)
    assert choose("gpu", machine).kind == "gpu"
    assert machine.installed == packages(13, 2)
    assert f"onnxruntime-gpu[cuda,cudnn]=={runtime_version()}" in machine.installed
    assert {"nvidia-cublas", "nvidia-cuda-nvrtc<13.3"} <= set(machine.installed)


@pytest.mark.parametrize(
    ("machine", "reason", "level"),
    [
        (StandIn(ABSENT), "this machine has no NVIDIA driver", logging.INFO),
        (StandIn({"cuda": [13, 0], "cards": []}), "the NVIDIA driver has no card", logging.INFO),
        (
            StandIn({"fault": "the NVIDIA driver does not start"}),
            "does not start: see that nvidia-smi",
            logging.WARNING,
        ),
        (
            StandIn({"cuda": [12, 4], "cards": [CARD]}),
            "the driver of the NVIDIA L4 supports CUDA 12.4, and ONNX Runtime needs CUDA 13: update it to 580",
            logging.WARNING,
        ),
        (StandIn(DRIVER, "none", pip="no index"), r"cannot be installed \(no index\): see that pip", logging.WARNING),
        (StandIn(DRIVER, "none", "out of memory"), r"does not compute \(out of memory\): see", logging.WARNING),
        (
            StandIn(DRIVER, "less than float32", "less than float32"),
            r"does not compute \(less than float32\)",
            logging.WARNING,
        ),
    ],
)
def test_a_gpu_that_cannot_be_used_is_an_error_or_named(
    machine: StandIn, reason: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sessions = list(machine._sessions)
    device = choose("auto", machine)
    assert device.kind == "cpu"
    last = caplog.records[-1]
    assert (last.levelno, last.message.startswith("Triton computes on the processor: ")) == (level, True)
    machine._sessions[:] = sessions
    with pytest.raises(StartupError, match=f"PETROV_DEVICE=gpu, but .*{reason}.*, or set PETROV_DEVICE=cpu"):
        choose("gpu", machine)


def test_the_processor_is_taken_where_it_is_asked_for() -> None:
    device = choose("cpu", StandIn(DRIVER))
    assert (device.kind, device.reason) == ("cpu", "PETROV_DEVICE=cpu")


@pytest.mark.parametrize(
    ("found", "gpu", "fault"),
    [
        (["CUDAExecutionProvider", "CPUExecutionProvider"], 1, None),
        (["CPUExecutionProvider"], None, None),
        (["CPUExecutionProvider"], 1, "belongs on GPU 1, but ONNX Runtime opened it with CPUExecutionProvider: start"),
        (["CUDAExecutionProvider", "CPUExecutionProvider"], None, "belongs on the processor, but"),
    ],
)
def test_a_session_on_another_device_is_an_error(found: list[str], gpu: int | None, fault: str | None) -> None:
    if fault is None:
        program.check_providers(found, gpu)
        return
    with pytest.raises(program.DeviceError, match=f"{fault}.*PETROV_DEVICE=cpu"):
        program.check_providers(found, gpu)


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="needs ONNX Runtime without CUDA"
)
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_onnx_runtime_itself_falls_back_without_an_error_and_we_do_not() -> None:
    with pytest.raises(program.DeviceError, match="opened it with CPUExecutionProvider"):
        program.open_session(onnxruntime, program.PRODUCT, onnxruntime.SessionOptions(), {}, 0)


def test_a_run_that_fails_on_its_device_is_not_repeated_on_the_processor() -> None:
    session = program.open_session(onnxruntime, program.PRODUCT, onnxruntime.SessionOptions(), {}, None)
    whole = session._sess

    class Lost:
        """What is left of a session whose card is lost."""

        def __getattr__(self, name: str) -> Any:
            return getattr(whole, name)

        def run(self, *_: Any) -> None:
            raise EPFail("CUDA failure 700")

    session._sess = Lost()
    with pytest.raises(EPFail, match="CUDA failure 700"):
        session.run(None, dict.fromkeys("ab", np.eye(4, dtype=np.float32)))


def test_a_large_run_gives_back_memory_on_a_gpu_and_its_option_is_an_error_on_a_processor() -> None:
    """ONNX Runtime knows the option, and finds no arena of a card in a session on the processor."""
    session = program.open_session(onnxruntime, program.PRODUCT, onnxruntime.SessionOptions(), {}, None)
    feeds = dict.fromkeys("ab", np.eye(4, dtype=np.float32))
    options = program.shrinking(onnxruntime, 1)
    assert options.get_run_config_entry(program.SHRINKAGE) == "gpu:1"
    with pytest.raises(Exception, match=r"arena.*gpu:1"):
        session.run(None, feeds, options)
    options.add_run_config_entry(program.SHRINKAGE, "cpu:0")
    np.testing.assert_array_equal(session.run(None, feeds, options)[0], np.eye(4))


@pytest.mark.parametrize(
    ("kind", "device", "text", "fault"),
    [
        ("GPU", "gpu", "", None),
        ("CPU", "cpu", "", None),
        ("CPU", "", "", None),
        ("GPU", "", "", None),
        ("CPU", "gpu", "instance_group { kind: KIND_CPU }", None),
        ("CPU", "gpu", "", "Triton sees no GPU"),
        ("GPU", "cpu", "", "Triton places the model on a GPU"),
    ],
)
def test_an_instance_on_another_device_is_an_error(
    kind: str, device: str, text: str, fault: str | None, tmp_path: Path
) -> None:
    config = tmp_path / "config.pbtxt"
    config.write_text(text)
    if fault is None:
        program.check_kind(kind, config, device)
        return
    with pytest.raises(program.DeviceError, match=f"{fault}.*PETROV_DEVICE=cpu"):
        program.check_kind(kind, config, device)


def test_triton_and_its_backends_know_the_device(triton: TritonServer, gateway: Gateway) -> None:
    """The shared Triton has chosen for itself; on the processor it sees no card."""
    device = triton.device
    assert device is not None
    wheel = ENVIRONMENT / "lib/python3/site-packages/pytriton/tritonserver"
    environment = variables(wheel, triton.settings, "", device)
    assert environment[DEVICE] == device.kind
    assert device.kind == "gpu" or environment["CUDA_VISIBLE_DEVICES"] == ""
    gateway.service.computes_on(device)
    assert httpx2.get(f"{gateway.url}/v1/models").json()["device"] == device.model_dump()
    line = f'petrov_device{{kind="{device.kind}",name="{device.name}"}} 1.0'
    assert line in httpx2.get(f"{gateway.url}/metrics").text
