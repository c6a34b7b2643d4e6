"""Requests in, at most so many of them and so many of their bytes at one time; whatever is beyond is refused at once.

A service that queues without bound answers nobody in the end; one that refuses early lets its callers retry.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from serving.problem_details import Overloaded

if TYPE_CHECKING:
    from collections.abc import Iterator


class Admission:
    """Counts what is in flight.

    Args:
        max_requests: Requests that may be answered at one time.
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
        """Let one request in, and out again with all its bytes.

        Raises:
            Overloaded: As many requests as may be are in flight.
        """
        if self._requests >= self._max_requests:
            raise Overloaded(f"{self._requests} requests are in flight, as many as may be")
        self._requests += 1
        ticket = Ticket(self)
        try:
            yield ticket
        finally:
            self._requests -= 1
            self.bytes -= ticket.held

    def hold(self, count: int) -> None:
        """Count further bytes.

        Raises:
            Overloaded: As many bytes as may be are in flight.
        """
        if self.bytes + count > self._max_bytes:
            raise Overloaded(f"{self.bytes} bytes of requests are in flight, of at most {self._max_bytes}")
        self.bytes += count


class Ticket:
    """What one admitted request holds."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.held = 0

    def hold(self, count: int) -> None:
        """Count bytes that have arrived.

        Raises:
            Overloaded: As many bytes as may be are in flight.
        """
        self._admission.hold(count)
        self.held += count
