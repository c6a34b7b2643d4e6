"""What the operating system offers: the version and allocator of its C library, free ports. Needs no package at all.

`deploy/requirements.py` uses this before any package is installed, the service at its start.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from contextlib import suppress

GLIBC = (2, 35)  # of Debian 12 and Ubuntu 22.04, which Triton's wheel needs
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, in glibc's malloc.h
_MMAP_BYTES, _TRIM_BYTES = 32 * 2**20, 64 * 2**20


def glibc_fault() -> str | None:
    """Return which version of the C library is missing, or None if Triton's wheel runs with this one."""
    found = _glibc()
    return None if found >= GLIBC else f"glibc {_dotted(GLIBC)} or newer is needed but this is {_dotted(found)}"


def keep_freed_memory() -> None:
    """Keep the memory of freed fields, up to 64 MiB per thread, for the next ones; without glibc nothing happens.

    Else each array of a field is new memory from the kernel, which maps and clears its pages one by one
    (`python -m benchmarks service` at 421 x 421). The thresholds are those that glibc has after one array of 32 MiB.
    """
    with suppress(AttributeError, OSError, TypeError):
        tune = ctypes.CDLL(None).mallopt
        tune(_MMAP_THRESHOLD, _MMAP_BYTES)
        tune(_TRIM_THRESHOLD, _TRIM_BYTES)


def port_fault(host: str, port: int, variable: str) -> str | None:
    """Return why no server can listen at an address, in one sentence, or None if one can.

    Args:
        host: An address or a name.
        port: The port.
        variable: The setting that chooses the port.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As servers do: connections that were closed a moment ago do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        return _sentence(host, port, variable, error)
    return None


def _sentence(host: str, port: int, variable: str, error: OSError | UnicodeError) -> str:
    number = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
    if number == errno.EADDRINUSE:
        return f"port {port} is in use: set {variable} to a free one"
    if number == errno.EACCES:
        return f"port {port} needs more rights than this user has: set {variable} to one above 1023"
    if number is None or number == errno.EADDRNOTAVAIL:
        return f'"{host}" is no address of this machine: set PETROV_HOST to one, such as 127.0.0.1 or 0.0.0.0'
    return f"no server can listen on {host}:{port}: {os.strerror(number)}"


def _glibc() -> tuple[int, ...]:
    """Return the version of the C library; (0,) if it is not GNU's."""
    with suppress(ValueError, OSError):
        return tuple(int(part) for part in (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[-1].split("."))
    return (0,)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
