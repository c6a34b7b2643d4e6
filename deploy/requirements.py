"""Check, before anything is downloaded, whether this machine can run `make serve`. Needs the standard library alone.

The service checks its settings again when it starts; this saves a user the download that would end there.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
GLIBC = (2, 35)
DISK_BYTES = 2**30  # of the packages of the service and of Triton
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
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        yield f"Triton's wheel is for Linux on x86-64, but this is {sys.platform} on {platform.machine()}"
    elif (found := glibc()) < GLIBC:
        yield f"glibc 2.35 or newer is needed (Debian 12, Ubuntu 22.04) but this is {'.'.join(map(str, found))}"
    free = shutil.disk_usage(ROOT).free
    if not INSTALLED.exists() and free < DISK_BYTES:
        yield f"{ROOT} has {free / 2**20:.0f} MB free, but {DISK_BYTES / 2**20:.0f} MB are needed"
    for setting, default in PORTS.items():
        port = os.environ.get(setting, str(default))
        if port.isdecimal() and in_use(int(port)):
            yield f"port {port} is in use: end the program that listens there, or set {setting} to another"


def glibc() -> tuple[int, ...]:
    """Return the version of the C library; (0,) if it is not GNU's."""
    with suppress(ValueError, OSError):
        return tuple(int(part) for part in (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[-1].split("."))
    return (0,)


def in_use(port: int) -> bool:
    """Return whether a program listens on a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OverflowError):  # no port at all, which the service's settings refuse
            try:
                probe.bind(("127.0.0.1", port))
            except PermissionError:
                return False
            except OSError:
                return True
    return False


if __name__ == "__main__":
    faults = list(missing())
    sys.exit("\n".join(faults) or None)
