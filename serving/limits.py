"""What one service, and one caller, may use: requests in flight, the memory that they take, and work per second.

A service that queues without bound ends by serving no client; one that refuses early lets its clients retry. A request
is counted in two steps: its bytes from the first of its body to the last of its response, and itself from the end of
its body on, so that clients that send nothing keep no place from others. Its bytes are those of its body while that
arrives, then those of all that it becomes: arrays, outputs, and the response in its format (`Predictor.inputs`). One
key may use half of each, and rollouts, which last as long as their clients read, half of the requests.

A caller's rate is a token bucket that may go into debt. It holds up to `burst` samples and gains `rate` of them per
second. A request of n samples is admitted when min(n, burst) are in the bucket, and takes all n: over any time t at
most burst + rate t samples are begun, and one request's excess over the burst, which the time after it pays. What would
have to wait longer than a minute, or would make the next one wait so long, is refused as too large.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from serving import system
from serving.errors import Problem

_ROLLOUTS = "rollouts of all keys"  # no key has such a name
LEAST_FREED = 32 * 2**20  # bytes that are worth returning
MOST_SECONDS = 60  # of `Retry-After`, and of the debt of a rate


class Admission:
    """Counts the requests in flight, and the bytes that they hold, each up to a limit."""

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self.max_requests, self.max_bytes = max_requests, max_bytes
        self.requests = self.bytes = 0
        self._resident = system.resident_bytes()  # when memory was returned
        self.groups: Counter[str] = Counter()  # requests of each key, and rollouts
        self.key_bytes: Counter[str] = Counter()

    async def look(self) -> float:
        """Return freed memory to the system while nothing is in flight; the seconds until the next look."""
        if not self.bytes and system.resident_bytes() > self._resident + LEAST_FREED:
            await asyncio.to_thread(system.return_freed_memory)
            self._resident = system.resident_bytes()
        return 1.0

    def count(self, count: int, key: str) -> None:
        """Count bytes that a request holds from now on or, if negative, no longer."""
        self.bytes += count
        if key:
            self.key_bytes[key] += count

    @contextmanager
    def admit(self, key: str = "") -> Iterator[Ticket]:
        """Count one request, whose body has arrived, as long as the context lasts."""
        ticket = Ticket(self, key)
        try:
            ticket.enter()
            yield ticket
        finally:
            ticket.end()


class Ticket:
    """What one request uses: `held` bytes, counted for all requests and for the caller's key, if it has one.

    So many bytes of its body were `received`, whether they are held or not.
    """

    def __init__(self, admission: Admission, key: str = "") -> None:
        self._admission = admission
        self.key = key
        self.held = self.received = 0
        self._entered: tuple[str, ...] | None = None

    def check(self) -> None:
        """Refuse a request early (`overloaded`), before its body is read, if there is no place for it now."""
        admission, half = self._admission, math.ceil(self._admission.max_requests / 2)
        if admission.requests >= admission.max_requests:
            raise Problem("overloaded", f"{admission.requests} requests are in flight, which is the limit")
        if self.key and admission.groups[self.key] >= half:
            raise Problem("overloaded", f'{half} requests of the key "{self.key}" are in flight, which is the limit')

    def enter(self, *, rollout: bool = False) -> None:
        """Count the request, one that is counted already as a rollout from now on, or refuse it (`overloaded`)."""
        entered, groups, half = self._entered, self._admission.groups, math.ceil(self._admission.max_requests / 2)
        if entered is None:
            self.check()
        if rollout and groups[_ROLLOUTS] >= half:
            raise Problem("overloaded", f"{half} rollouts are in flight, which is the limit")
        joined = [*filter(None, [self.key] if entered is None else []), *([_ROLLOUTS] if rollout else [])]
        self._admission.requests += entered is None
        self._entered = (*(entered or ()), *joined)
        groups.update(joined)

    def hold(self, count: int) -> None:
        """Count bytes that are kept, or refuse them (`overloaded`)."""
        admission = self._admission
        self._check(self.held + count)
        if admission.bytes + count > admission.max_bytes:
            detail = f"{admission.bytes} bytes of requests are in flight, of at most {admission.max_bytes}"
            raise Problem("overloaded", detail)
        of_key = admission.key_bytes[self.key] if self.key else 0
        if of_key > self.held and of_key + count > admission.max_bytes // 2:
            raise Problem("overloaded", f'requests of the key "{self.key}" hold {of_key} bytes, half of the limit')
        self.add(count)

    def settle(self, count: int) -> None:
        """Hold so many bytes from now on, more or fewer than before; more than all may take are `body-too-large`."""
        self._check(count)
        if count > self.held:
            self.hold(count - self.held)
        else:
            self.add(count - self.held)

    def _check(self, count: int) -> None:
        """Refuse what would be too much if there were no other request (`body-too-large`): to try again is no help."""
        if count > self._admission.max_bytes:
            detail = f"the request takes {count} bytes of memory, of at most {self._admission.max_bytes} for all"
            raise Problem("body-too-large", f"{detail}: send fewer samples, or accept a binary format")

    def add(self, count: int) -> None:
        """Count bytes that are kept in any case, of a response that has been computed; fewer, if negative."""
        self.held += count
        self._admission.count(count, self.key)

    def end(self) -> None:
        """Forget the request, and the bytes that it held."""
        self.add(-self.held)
        if self._entered is not None:
            self._admission.requests -= 1
            self._admission.groups.subtract(self._entered)
            self._entered = None


class Caller:
    """The holder of a key, and what is left of the key's rate: a `limit` of samples per second, and at once, or none.

    The name is empty where no key is required; `count` is called with the samples of every request.
    """

    def __init__(
        self,
        name: str = "",
        limit: tuple[float, int] | None = None,
        count: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self._count, self._clock = name, count, clock
        self._rate, self._burst = limit or (0.0, 0)
        self._level, self._at = float(self._burst), clock()

    def check(self) -> None:
        """Refuse a request (`rate-limited`) before its body is read, if the rate admits no sample now."""
        if self._rate:
            self._allow(self._wait(1))

    def spend(self, samples: int, each: int = 1) -> None:
        """Take the samples of a request from the rate, before they are computed, `each` at the cost of so many."""
        if self._rate:
            cost, most = samples * each, math.floor(self._burst + MOST_SECONDS * self._rate)  # a debt of a minute
            seconds = math.inf if cost > most else self._wait(cost)
            if seconds > MOST_SECONDS and cost > 1:
                least = most if cost > most else "fewer"
                owner = f'the rate of the key "{self.name}", which admits {least} in a minute'
                raise Problem("body-too-large", f"the request costs {cost} samples of {owner}")
            self._allow(seconds)
            self._level -= cost
        self._count(samples)

    def owe(self, cost: int) -> None:
        """Take from the rate what a request turned out to cost beyond what it has spent; a minute's debt at most."""
        least = self._burst - MOST_SECONDS * self._rate
        self._level = min(self._level, max(self._level - cost, least))

    def _wait(self, count: int) -> float:
        """Return the seconds until so many samples are admitted; 0 if they are now."""
        now = self._clock()
        self._level = min(self._burst, self._level + self._rate * max(0.0, now - self._at))
        self._at = now
        return max(0.0, min(count, self._burst) - self._level) / self._rate

    def _allow(self, seconds: float) -> None:
        if seconds:
            wait = min(math.ceil(seconds), MOST_SECONDS)
            detail = f'the key "{self.name}" is over its rate; retry in {wait} s'
            raise Problem("rate-limited", detail, retry_after=wait)


ANYONE = Caller()
