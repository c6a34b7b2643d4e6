"""The processor time of a request by what took it, which the header `Server-Timing` of its response states.

It is measured as the documentation's tables are: seconds of the processor and not of the clock, so that neither other
work on the machine nor the way of a request is part of it. The solver is timed in its thread. The processes of a local
Triton's backends send the time of every call as a datagram, before its response: Triton's responses have no member for
it.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Literal

from serving.settings import Settings

What = Literal["network", "solver"]
Spent = dict[What, float]

logger = logging.getLogger(__name__)
VARIABLE = "TRITON_TIMES"  # of the backends: the path of the socket
_KEPT = 1024  # times of calls that were given up
_DATAGRAM = 512  # bytes: an id and a number
#: Seconds of the present request, which tasks that work for it share; None where nothing is measured.
_spent: ContextVar[Spent | None] = ContextVar("spent", default=None)


def start() -> Spent:
    """Measure the present request from now on, and return what it spends."""
    spent: Spent = {}
    _spent.set(spent)
    return spent


def spend(what: What, seconds: float) -> None:
    """Add processor seconds to the present request."""
    if (spent := _spent.get()) is not None:
        spent[what] = spent.get(what, 0.0) + seconds


def headers(spent: Spent) -> dict[str, str]:
    """Return the header `Server-Timing` (W3C), in milliseconds; none where nothing was measured."""
    entries = (f'{what};dur={1000 * seconds:.3f};desc="processor time"' for what, seconds in spent.items())
    return {"Server-Timing": ", ".join(entries)} if spent else {}


def path(settings: Settings) -> Path:
    """Return the path of the socket for the times of this gateway's local Triton."""
    return settings.triton_runtime.resolve() / f"times-{settings.port}"


class TritonTimes:
    """Processor seconds of calls of the local Triton, by the ids of their requests; none of a Triton elsewhere."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._found: dict[str, float] = {}
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Listen for times from now on."""
        if not self._settings.embedded:
            return
        file = path(self._settings)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with _address(file) as address:
                if _listens(address):  # a gateway whose port this one cannot have
                    made.close()
                    return
                file.unlink(missing_ok=True)  # of a gateway that was killed
                made.bind(address)
            file.chmod(0o600)
        except OSError as error:
            made.close()
            logger.info("responses have no processor time of the network: %s: %s", file, error)
            return
        self._socket = made

    def close(self) -> None:
        if self._socket is not None:
            path(self._settings).unlink(missing_ok=True)
            self._socket.close()

    def spend(self, request_id: str) -> None:
        """Add what has been measured for calls with an id to the present request."""
        if self._socket is None:
            return
        with suppress(BlockingIOError):
            while True:
                seconds, _, sender = self._socket.recv(_DATAGRAM).decode("utf-8", "replace").partition(" ")
                with suppress(ValueError):
                    self._found[sender] = self._found.get(sender, 0.0) + float(seconds)
        if (found := self._found.pop(request_id, None)) is not None:
            spend("network", found)
        elif not path(self._settings).exists():  # removed by a cleaner of old files, for example
            self._socket.close()
            self._socket = None
            self.open()
        while len(self._found) > _KEPT:
            del self._found[next(iter(self._found))]


@contextmanager
def _address(file: Path) -> Iterator[str]:
    """Name a socket by the descriptor of its folder: an address has at most 107 bytes, and a path may have more."""
    folder = os.open(file.parent, os.O_PATH)
    try:
        yield f"/proc/self/fd/{folder}/{file.name}"
    finally:
        os.close(folder)


def _listens(address: str) -> bool:
    """Return whether a process receives what is sent to an address."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(address)
        return True
    return False
