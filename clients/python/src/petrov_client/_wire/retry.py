"""The rules by which a request is sent again, within its time limit.

A prediction changes nothing on the server, so it may be repeated after a broken connection and after an overload (503).
Over the rate of a key (429) it is repeated when the service says, as often as the time limit allows: the service has
not begun to compute. It is never repeated after a fault of the request itself, nor after a deadline.
"""

from __future__ import annotations

import random
import time

from petrov_client._values.exceptions import ConnectionFailed, DeadlineExceeded, PetrovError, RateLimited, Unavailable

#: Seconds for one request by default.
TIMEOUT_SECONDS = 60.0
REPEATABLE = (ConnectionFailed, Unavailable)
ATTEMPTS = 4
#: Seconds before the second attempt; doubled before each further one. Jitter of half of it keeps clients apart.
FIRST_PAUSE = 0.1


class Attempts:
    """The attempts at one request, under one time limit.

    Args:
        timeout: Seconds for all attempts and the pauses between them.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._made = 0

    def remaining(self) -> float:
        """Return the seconds left.

        Raises:
            DeadlineExceeded: None are left.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded(f"no response within {self._timeout:g} s")
        return left

    def pause_after(self, fault: PetrovError) -> float:
        """Return the seconds to wait before the next attempt.

        Raises:
            PetrovError: The fault itself, if it is final: not one to repeat, the last attempt, or no time left.
        """
        rate_limited = isinstance(fault, RateLimited) and fault.retry_after is not None
        self._made += not rate_limited
        pause = max(self._backoff(), fault.retry_after or 0.0)
        repeatable = rate_limited or isinstance(fault, REPEATABLE)
        if not repeatable or self._made == ATTEMPTS or time.monotonic() + pause >= self._end:
            raise fault
        return pause

    def _backoff(self) -> float:
        longest = FIRST_PAUSE * 2.0 ** (self._made - 1)
        return random.uniform(longest / 2, longest)  # noqa: S311  spreads load; nothing is kept secret by it


def checked_timeout(seconds: float) -> float:
    """Return a time limit, if it is a positive number of seconds.

    Raises:
        ValueError: It is not.
    """
    if not seconds > 0:
        raise ValueError(f"expected a timeout of more than 0 seconds but got {seconds}")
    return seconds
