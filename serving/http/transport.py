"""The transport of a connection, between uvicorn and the event loop's own.

It adds two things. Operations on a closed transport do nothing: uvloop raises a RuntimeError when the client has left a
moment ago. And a connection that is closed in the middle of a request lingers, as nginx's do: the response is sent, and
what the client still sends is read and dropped for a while. Closed at once, the connection would be reset, and a client
that reads its response only after it has sent the whole body would never see it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LINGER_BYTES = 256 * 2**20  # four times the largest body by default
LINGER_SECONDS, IDLE_SECONDS = 30.0, 5.0  # in all, and without a byte


class LingeringTransport(asyncio.Transport):
    """A transport that can be used after its end, and that lingers.

    Args:
        transport: The event loop's transport.
        sending: Whether the client may be in the middle of a request.
    """

    def __init__(self, transport: asyncio.Transport, sending: Callable[[], bool]) -> None:
        super().__init__()
        self._transport = transport
        self._sending = sending
        self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def lingers(self) -> bool:
        """Whether what arrives is dropped."""
        return self._timer is not None

    def drop(self, count: int) -> None:
        """Count bytes that arrived while it lingers; end it after too many."""
        self._dropped += count
        if self._dropped > LINGER_BYTES:
            self._transport.abort()

    def close(self) -> None:
        if self.is_closing():
            return
        if not self._sending():
            self.finish()
            return
        self._wait(LINGER_SECONDS)
        self._transport.resume_reading()
        self._transport.write_eof()

    def finish(self) -> None:
        """Close it once everything is written, without lingering."""
        self._transport.close()

    def _wait(self, left: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            IDLE_SECONDS, self._look, left - IDLE_SECONDS, self._dropped
        )

    def _look(self, left: float, before: int) -> None:
        """Linger on if bytes have arrived and time is left."""
        if left > 0 and self._dropped > before:
            self._wait(left)
        else:
            self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()

    def lost(self) -> None:
        """Forget the time limit: the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def is_closing(self) -> bool:
        return self.lingers or self._transport.is_closing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_closing():
            self._transport.write(data)

    def pause_reading(self) -> None:
        if not self.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.is_closing():
            self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
