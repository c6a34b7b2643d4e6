"""Check, before anything is downloaded, whether this machine can run `make serve`. Needs the standard library alone.

The service checks its settings again when it starts; this saves a user the download that would end there.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # a script has its own folder there
from serving import running, system  # noqa: E402

DISK_BYTES = 2**30  # of the packages of the service and of Triton
VERSIONS = ("3.11", "3.12")  # of Python, for which Triton's wheel has a stub
INSTALLED = ROOT / ".runtime" / "triton-env" / "complete"
PORTS = {  # by the setting that changes them
    "PETROV_PORT": 8080,
    "PETROV_GRPC_PORT": 8081,
    "PETROV_TRITON_HTTP_PORT": 8000,
    "PETROV_TRITON_GRPC_PORT": 8001,
    "PETROV_TRITON_METRICS_PORT": 8002,
}


def missing() -> Iterator[str]:
    """Yield what this machine lacks, one sentence each, with the remedy."""
    elsewhere = bool(os.environ.get("PETROV_TRITON"))  # Triton runs, and here the gateway alone
    if not elsewhere:
        yield from missing_for_triton()
    free = shutil.disk_usage(ROOT).free
    if not INSTALLED.exists() and free < DISK_BYTES:
        yield f"{ROOT} has {free / 2**20:.0f} MB free, but {DISK_BYTES / 2**20:.0f} MB are needed"
    runtime = Path(os.environ.get("PETROV_TRITON_RUNTIME", ".runtime/triton"))
    if running.address(runtime, Path(os.environ.get("PETROV_REPOSITORY", "model_repository"))):
        return  # its ports are in use; the start says where it listens
    for setting, default in PORTS.items():
        port = os.environ.get(setting, str(default))
        possible = port.isdecimal() and 0 < int(port) < 2**16  # else the service's settings refuse it
        if possible and not (elsewhere and "TRITON" in setting):
            yield from filter(None, [system.port_fault("127.0.0.1", int(port), setting)])


def missing_for_triton() -> Iterator[str]:
    """Yield what the wheel of the local Triton needs, and this machine lacks."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        yield f"Triton's wheel is for Linux on x86-64, but this is {sys.platform} on {platform.machine()}"
    elif fault := system.glibc_fault():
        yield f"{fault}; Debian 12 and Ubuntu 22.04 have it"
    version = ".".join(map(str, sys.version_info[:2]))
    if not INSTALLED.exists() and version in VERSIONS and (fault := system.libpython_fault(version)):
        yield fault  # the Makefile says which other versions are none


if __name__ == "__main__":
    faults = list(missing())
    sys.exit("\n".join(faults) or None)
