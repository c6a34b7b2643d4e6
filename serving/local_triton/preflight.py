"""Check, before the start, that the machine and the settings have all that a local Triton needs."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from platform import machine
from typing import TYPE_CHECKING

from serving import system
from serving.startup_error import StartupError
from serving.triton import environment as triton_environment
from serving.triton import runtime as triton_runtime
from serving.triton.environment import PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from serving.settings import Settings

ELSEWHERE = "or use a Triton that runs elsewhere: python -m serving gateway --triton HOST:PORT"


def check(settings: Settings) -> Path:
    """Make sure that a local Triton can start.

    Returns:
        The wheel's `tritonserver` folder.

    Raises:
        StartupError: Something is missing; the message lists all of it.
    """
    wheel, missing = install(settings.triton_environment)
    missing = [*missing, *platform(wheel), *choices(settings)]
    if missing or wheel is None:
        raise StartupError("\n".join(missing))
    return wheel


def choices(settings: Settings) -> Iterator[str]:
    """Yield what is wrong with the settings; this takes no time."""
    yield from repository(settings.repository)
    yield from runtime(settings)
    yield from ports(settings)


def install(environment: Path) -> tuple[Path | None, list[str]]:
    """Build Triton's environment if it is missing.

    Returns:
        The wheel's `tritonserver` folder or None, and what is missing.
    """
    if (sys.platform, machine()) != ("linux", "x86_64"):
        return None, [f"nvidia-pytriton, which carries Triton, is for Linux on x86_64 only; {ELSEWHERE}"]
    try:
        triton_environment.build(environment)
    except triton_environment.EnvironmentBuildError as error:
        return None, [f"{error}; {ELSEWHERE}"]
    except OSError as error:
        fault = f"{environment} cannot be made ({error.strerror or error})"
        return None, [f"{fault}: set PETROV_TRITON_ENVIRONMENT to another folder, {ELSEWHERE}"]
    return triton_runtime.installation(environment), []


def platform(wheel: Path | None) -> Iterator[str]:
    """Yield what the machine lacks to run the wheel's binary."""
    if wheel is None:
        return
    if not triton_runtime.stub(wheel).exists():
        yield f"nvidia-pytriton has no stub for Python {PYTHON}: use Python 3.11 or 3.12; {ELSEWHERE}"
    if fault := system.glibc_fault():
        yield f"{fault}; {ELSEWHERE}"
    if not libpython(wheel):
        name = f"libpython{PYTHON}"
        yield f"{name}.so.1.0 is missing: apt-get install {name} (or a Python built with --enable-shared); {ELSEWHERE}"


def libpython(wheel: Path) -> bool:
    """Return whether the loader finds the library that the stub links to."""
    name = f"libpython{PYTHON}.so.1.0"
    if any((folder / name).exists() for folder in triton_runtime.library_folders(wheel)):
        return True
    with suppress(OSError):
        return bool(ctypes.CDLL(name))
    return False


def repository(folder: Path) -> Iterator[str]:
    """Yield which models cannot be served."""
    if not any(folder.glob("*/config.pbtxt")):
        yield f'the model repository "{folder}" holds no model: make export'
        return
    for model in sorted(config.parent for config in folder.glob("*/config.pbtxt")):
        if not any(version.name.isdecimal() for version in model.iterdir()):
            yield f'the model "{model.name}" has no version in "{folder}": make export'


def runtime(settings: Settings) -> Iterator[str]:
    """Yield why Triton's log cannot be written, if it cannot."""
    log = triton_runtime.log_file(settings)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab"):
            pass
    except OSError as error:
        yield f"{log} cannot be written ({error.strerror}): set PETROV_TRITON_RUNTIME to another folder"


def ports(settings: Settings) -> Iterator[str]:
    """Yield which of Triton's ports are in use."""
    for field in ("triton_http_port", "triton_grpc_port", "triton_metrics_port"):
        if fault := system.port_fault("127.0.0.1", getattr(settings, field), f"PETROV_{field.upper()}"):
            yield fault
