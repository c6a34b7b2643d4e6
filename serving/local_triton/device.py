"""The device that the local Triton computes on: the one that PETROV_DEVICE asks for, or an error with its remedy.

`auto` takes a GPU where the driver has one, is new enough for ONNX Runtime, and a first product there has float32's
digits; else the processor. It says in one line what it took, and why. Packages of ONNX Runtime for a GPU and CUDA's
libraries are installed into Triton's environment where they are missing, in versions that the driver can run; the
application's own packages stay as they are.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from serving.device import Device
from serving.local_triton import environment
from serving.system import StartupError

logger = logging.getLogger(__name__)
PROGRAM = Path(__file__).with_name("backends") / "device.py"
CUDA, DRIVER = 13, "580"  # the CUDA that ONNX Runtime is built for, and the first driver for it
SECONDS = 120.0  # that the driver may take to start; the first context of a busy card takes some
INSTALLED = "cuBLAS, cuDNN and the other libraries of CUDA"
PROCESSOR_INSTEAD = "or set PETROV_DEVICE=cpu"


class UnusableError(RuntimeError):
    """No GPU can be used; the message says why, and what would help."""

    def __init__(self, fault: str, remedy: str, *, absent: bool = False) -> None:
        super().__init__(f"{fault}: {remedy}")
        self.fault, self.absent = fault, absent  # whether there is no card at all


class Machine:
    """This machine, with Triton's environment in a folder."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "bin" / "python"

    def driver(self) -> dict[str, Any]:
        """Return what the driver offers, as `driver` of the program `backends/device.py`."""
        return self._ask(Path(sys.executable), "driver", "the NVIDIA driver")

    def session(self) -> dict[str, Any]:
        """Return whether ONNX Runtime computes on the GPU, as `session` of that program."""
        return self._ask(self.python, "session", "ONNX Runtime on the GPU")

    def install(self, packages: list[str]) -> str | None:
        """Install packages into Triton's environment; return why that failed, or None."""
        return environment.pip_install(self.python, packages)

    def _ask(self, python: Path, question: str, whom: str) -> dict[str, Any]:
        command = [str(python), "-I", str(PROGRAM), question]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)  # noqa: S603 - our own program
            found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired:
            return {"fault": f"{whom} does not respond in {SECONDS:g} s"}
        except OSError as error:
            return {"fault": f"{python} does not start ({error.strerror or error})"}
        except (ValueError, IndexError):
            last = done.stderr.strip().splitlines()[-1:]
            return {"fault": f"{whom} crashed (status {done.returncode}: {' '.join(last)})"}
        return found


def choose(wanted: Literal["auto", "gpu", "cpu"], machine: Machine) -> Device:
    """Return the device to compute on, and log it.

    Raises:
        StartupError: A GPU is wanted and cannot be used; the message has the reason and a remedy.
    """
    if wanted == "cpu":
        device = Device(kind="cpu", reason="PETROV_DEVICE=cpu")
    else:
        try:
            device = _gpu(machine)
        except UnusableError as error:
            if wanted == "gpu":
                raise StartupError(f"PETROV_DEVICE=gpu, but {error}, {PROCESSOR_INSTEAD}") from error
            # A machine without a card needs no remedy.
            device = Device(kind="cpu", reason=error.fault if error.absent else str(error))
            if not error.absent:  # there is a card, and it is not used
                logger.warning("Triton computes on %s: %s", device, device.reason)
                return device
    logger.info("Triton computes on %s: %s", device, device.reason)
    return device


def _gpu(machine: Machine) -> Device:
    """Return the GPU once ONNX Runtime computes on it, with packages that are installed where they are missing.

    Raises:
        UnusableError: It cannot be used.
    """
    driver = machine.driver()
    if fault := driver.get("fault"):
        raise UnusableError(fault, "see that nvidia-smi lists a card", absent="absent" in driver)
    if not (cards := driver["cards"]):
        raise UnusableError("the NVIDIA driver has no card", "see that nvidia-smi lists one", absent=True)
    major, minor = driver["cuda"]
    if major < CUDA:
        supports = f"the driver of the {cards[0]['name']} supports CUDA {major}.{minor}"
        raise UnusableError(f"{supports}, and ONNX Runtime needs CUDA {CUDA}", f"update it to {DRIVER}")
    found = machine.session()
    if found["fault"] or found.get("version") != runtime_version():
        logger.info("Installing ONNX Runtime for the %s, with %s …", cards[0]["name"], INSTALLED)
        if fault := machine.install(packages(major, minor)):
            raise UnusableError(f"{INSTALLED} cannot be installed ({fault})", "see that pip reaches its index")
        if fault := machine.session()["fault"]:
            remedy = "see that no other program has the card for itself, and that its driver is whole"
            raise UnusableError(f"the {cards[0]['name']} does not compute ({fault})", remedy)
    reason = f"its driver supports CUDA {major}.{minor}, and float32 is float32 there"
    return Device(kind="gpu", **cards[0], count=len(cards), reason=reason)


def runtime_version() -> str:
    """Return the version of ONNX Runtime that the application has."""
    try:
        return version("onnxruntime")
    except PackageNotFoundError:  # an environment that has the package for GPUs alone
        return version("onnxruntime-gpu")


def packages(major: int, minor: int) -> list[str]:
    """Return what to install for a driver that supports a version of CUDA.

    The provider needs cuBLAS, which is not among the extras of its package. Code that a newer CUDA compiles at run time
    does not load in an older driver.
    """
    compiled = [f"nvidia-{each}<{major}.{minor + 1}" for each in ("cuda-nvrtc", "cuda-runtime", "nvjitlink")]
    return [f"onnxruntime-gpu[cuda,cudnn]=={runtime_version()}", "nvidia-cublas", *compiled]
