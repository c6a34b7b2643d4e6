"""Bounds on what is in flight: requests, and the bytes of their bodies. What exceeds them is refused at once.

A service that queues without bound ends by serving no client; one that refuses early lets its clients retry.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator


class Admission:
    """Counts what is in flight.

    Args:
        max_requests: Requests that may be in flight at one time.
        max_bytes: Body bytes that may be held at one time over all requests.

    Attributes:
        bytes: Body bytes that are held now.
    """

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._requests = 0
        self.bytes = 0

    @contextmanager
    def admit(self) -> Iterator[Ticket]:
        """Count one request as long as the context lasts, and all of its bytes.

        Raises:
            Problem: overloaded: The limit of requests is reached.
        """
        self.begin()
        ticket = Ticket(self)
        try:
            yield ticket
        finally:
            self.end(ticket.held)

    def begin(self) -> None:
        """Count one request.

        Raises:
            Problem: overloaded: The limit of requests is reached.
        """
        if self._requests >= self._max_requests:
            raise Problem("overloaded", f"{self._requests} requests are in flight, which is the limit")
        self._requests += 1

    def end(self, held: int) -> None:
        """Forget one request, and the bytes that it held."""
        self._requests -= 1
        self.bytes -= held

    def hold(self, count: int) -> None:
        """Count further bytes.

        Raises:
            Problem: overloaded: The limit of bytes is reached.
        """
        if self.bytes + count > self._max_bytes:
            raise Problem("overloaded", f"{self.bytes} bytes of requests are in flight, of at most {self._max_bytes}")
        self.bytes += count


class Ticket:
    """The bytes that one admitted request holds."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.held = 0

    def hold(self, count: int) -> None:
        """Count bytes that have arrived.

        Raises:
            Problem: overloaded: The limit of bytes is reached.
        """
        self._admission.hold(count)
        self.held += count
