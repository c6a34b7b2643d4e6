"""What the operating system offers: its C library, free ports, how many files may be open. Needs no package at all.

`deploy/requirements.py` uses this before any package is installed, the service at its start.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import logging
import math
import os
import resource
import socket
import stat
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from ipaddress import ip_address
from pathlib import Path

logger = logging.getLogger(__name__)
GLIBC = (2, 35)  # of Debian 12 and Ubuntu 22.04, which Triton's wheel needs
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of mallopt, in glibc's malloc.h
_MMAP_BYTES, _TRIM_BYTES = 4 * 2**20, 64 * 2**20
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - POSIX shared memory on Linux; nothing is created here
WANTED_FILES = 65_536
LISTENING = "0A"  # the state of a socket, in the kernel's tables
#: What a process listens on that is connected to as 127.0.0.1, and as this machine by any address; by the tables.
_LOOPBACK = {"tcp": {"0100007F"}, "tcp6": {"0000000000000000FFFF00000100007F"}}
_ANY = {
    "tcp": {*_LOOPBACK["tcp"], "0" * 8},
    "tcp6": {*_LOOPBACK["tcp6"], "00000000000000000000000001000000", "0" * 32},
}
OWN_FILES = 128  # of the gateway, with its connections to Triton, besides those of its clients


class StartupError(RuntimeError):
    """The service cannot start; the message lists every reason, one sentence a line, each with its remedy."""


def raise_open_files(requests: int) -> None:
    """Raise the limit of open files as far as the system allows, up to `WANTED_FILES`; Triton inherits it.

    Each connection needs one, and the limit of a shell is often low: a StartupError, if so many requests need more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # not every system allows what it names
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, WANTED_FILES)), hard))
    limit, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[0], requests + OWN_FILES
    if limit < needed:
        raise StartupError(
            f"at most {limit} files may be open; PETROV_MAX_REQUESTS_IN_FLIGHT={requests} needs {needed}: raise the "
            "limit (ulimit -n, LimitNOFILE)"
        )


def files_of_clients() -> float:
    """Return how many of the files that may be open clients and what is open already may have together."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return math.inf if limit == resource.RLIM_INFINITY else limit - OWN_FILES // 2


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """Open a file that others may replace by anything, to be read.

    A ValueError: it is a pipe, a device or a folder; an OSError: it cannot be read.
    """
    # Without O_NONBLOCK, opening a pipe would wait for its writer, for ever.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("expected a regular file")
        yield file


def read_file(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file as it is `opened`; a ValueError: it is larger than the limit."""
    with opened(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"expected at most {max_bytes} bytes but found more")
    return content


def glibc_fault() -> str | None:
    """Return which version of the C library is missing, or None if Triton's wheel runs with this one."""
    found: tuple[int, ...] = (0,)
    with suppress(ValueError, OSError, IndexError):  # it is not GNU's
        found = tuple(int(part) for part in (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[-1].split("."))
    needed, present = (".".join(map(str, version)) for version in (GLIBC, found))
    return None if found >= GLIBC else f"glibc {needed} or newer is needed but this is {present}"


def libpython_fault(version: str) -> str | None:
    """Return the remedy where Python's shared library is missing, which Triton's stub needs; None where it is there.

    Debian has it in a package of its own, without which its interpreter runs.
    """
    name = f"libpython{version}"
    if (Path(sysconfig.get_config_var("LIBDIR") or "") / f"{name}.so.1.0").exists():
        return None
    try:
        ctypes.CDLL(f"{name}.so.1.0")
    except OSError:
        return f"{name}.so.1.0 is missing: apt-get install {name} (or a Python built with --enable-shared)"
    return None


def keep_freed_memory() -> None:
    """Keep the memory of freed fields, up to 64 MiB, for the next ones; without glibc nothing happens.

    Else each array of a field is new memory from the kernel, which maps and clears its pages one by one
    (`python -m benchmarks service` at 421 x 421). Arrays above 4 MiB go back to the system at once: between bodies that
    grow and end side by side, what they leave would stay, a fifth more than all that is in use. Two arenas, since each
    thread would keep memory in one of its own.
    """
    with suppress(AttributeError, OSError, TypeError):
        tune = ctypes.CDLL(None).mallopt
        tune(_MMAP_THRESHOLD, _MMAP_BYTES)
        tune(_TRIM_THRESHOLD, _TRIM_BYTES)
        tune(_ARENA_MAX, 2)


def collect_garbage_seldom() -> None:
    """Have the garbage collector leave out what has been imported, and wait for more new objects.

    By default it runs after 700 of them, which takes most of the time of parsing lists: a piece of JSON has up to
    20,000 (`serving.codecs.json_text`), and they go once they are an array.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def switch_threads_often() -> None:
    """Have threads that decode bodies give way to the event loop within a millisecond, of which the default is five.

    The loop waits so long, or twice as long, at each of the three or four turns of a short request. Beside two threads
    that parse JSON, a byte came back from an event loop after 24 ms (median) and 167 to 277 ms (worst of 2 s) with the
    default, and after 4 and 42 to 101 ms with this, on a busy machine.
    """
    sys.setswitchinterval(0.001)


def resident_bytes() -> int:
    """Return the memory of this process; 0 where no file says it."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()
    return 0


def shared_memory() -> tuple[int, int] | None:
    """Return the bytes of POSIX shared memory, and how many are free; None where they have no limit of their own."""
    try:
        found = os.statvfs(SHARED_MEMORY)
    except OSError:
        return 0, 0
    return (found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail) if found.f_blocks else None


def return_freed_memory() -> None:
    """Return memory to the system that is free, or held by cycles alone; without glibc it is freed only."""
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def require_own(address: str) -> None:
    """Refuse a port of the loopback on which no process of this user listens; a ConnectionRefusedError.

    Another user may listen there until ours does, and again whenever ours has ended: what is sent then is theirs to
    read, and to answer.
    """
    port = int(address.rpartition(":")[2])
    users = _listening(port, _LOOPBACK)
    if users is not None and os.geteuid() not in users:
        raise ConnectionRefusedError(errno.ECONNREFUSED, f"no process of this user listens on port {port}")


class SameUser:
    """Refuses ports of this machine on which others listen than those users that did at first.

    For a server that may be of any user, as one in a container is: nothing is sent to a user who takes its port while
    it restarts. Called with an address before each connection; a ConnectionRefusedError. Root and this user may always.
    """

    def __init__(self) -> None:
        self._known: set[int] | None = None
        self._named = set[int]()  # in the log

    def __call__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        users = _listening(int(port), _ANY) if is_loopback(host) else None
        if not users:  # the connection will say so, or the system does not say who listens
            return
        others = users - {0, os.geteuid()}
        self._known = others if self._known is None else self._known
        if strange := others - self._known:
            fault = f"another user than before listens on port {port}"
            if strange - self._named:
                logger.warning("%s (%s): restart this gateway if that is Triton", fault, min(strange - self._named))
            self._named |= strange
            raise ConnectionRefusedError(errno.ECONNREFUSED, fault)


def is_loopback(host: str) -> bool:
    """Return whether a host of an address, perhaps in brackets, is this machine as its own users see it."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _listening(port: int, places: Mapping[str, Collection[str]]) -> set[int] | None:
    """Return the users that listen on a port of some addresses, as the kernel writes them; None if it does not say."""
    users, known = set[int](), False
    for table, addresses in places.items():
        with suppress(OSError), Path(f"/proc/self/net/{table}").open("r", encoding="ascii") as sockets:
            known = True
            next(sockets, None)
            for line in sockets:
                _, local, _, state, _, _, _, user, *_ = line.split()
                if state != LISTENING:  # those that listen come first
                    break
                address, _, number = local.partition(":")
                if address in addresses and int(number, 16) == port:
                    users.add(int(user))
    return users if known else None


def port_fault(host: str, port: int, variable: str) -> str | None:
    """Return why no server can listen at an address, in one sentence that names its setting, or None if one can."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As servers do: connections that were closed a moment ago do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        number = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
        if number == errno.EADDRINUSE:
            return f"port {port} is in use: set {variable} to a free one"
        if number == errno.EACCES:
            return f"port {port} needs more rights than this user has: set {variable} to one above 1023"
        if number is None or number == errno.EADDRNOTAVAIL:
            return f'"{host}" is no address of this machine: set PETROV_HOST to one, such as 127.0.0.1 or 0.0.0.0'
        return f"no server can listen on {host}:{port}: {os.strerror(number)}"
    return None
