"""What the operations of the clients need: a driver, with an event loop or without, attempts, and progress reports.

Every operation is written once, with `async`, for four clients. `AsyncDriver` uses the event loop. What `SyncDriver`
offers never suspends, so a single step runs a coroutine to its end, on the caller's thread.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from numbers import Real
from typing import Any, Generic, TypeVar

from petrov_client._errors import ConnectionFailed, DeadlineExceeded, PetrovError, RateLimited, Unavailable

T = TypeVar("T")

#: Seconds for one request by default.
TIMEOUT_SECONDS = 60.0
#: Seconds: sockets and gRPC overflow at larger numbers.
LONGEST_TIMEOUT = 1e9
REPEATABLE = (ConnectionFailed, Unavailable)
ATTEMPTS = 4
#: Seconds before the second attempt; doubled before each further one. Jitter of half of it keeps clients apart.
FIRST_PAUSE = 0.1
#: Of a request that waits for another server, which is repeated as long as its time limit allows.
LONGEST_PAUSE = 3.0

Progress = bool | Callable[[int, int], None]
Advance = Callable[[int], object]
#: Sends a request, and yields its replies as they arrive, the first within so many seconds; the request says for how
#: many seconds a further one is waited for.
Receive = Callable[[Any, float], AsyncGenerator[Any]]


@dataclass(frozen=True)
class Call(Generic[T]):
    """One exchange with the service: what the transport sends, and what makes a result, or an error, of its reply."""

    request: Any
    read: Callable[[Any], T]


#: Sends a call, again where that is safe, and returns its result.
Perform = Callable[[Call[Any]], Awaitable[Any]]


@dataclass(frozen=True)
class SyncDriver:
    """What an operation uses that runs on the caller's thread, one request at a time; see `run`."""

    receive: Receive
    in_flight = 1

    async def pause(self, seconds: float) -> None:
        """Do nothing for some seconds."""
        time.sleep(seconds)  # noqa: ASYNC251  there is no event loop

    async def work(self, function: Callable[[], T]) -> T:
        """Call a function that may take seconds."""
        return function()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Begin a coroutine, whose result is awaited later."""
        return coroutine

    async def cancel(self, started: Iterable[Coroutine[Any, Any, Any]]) -> None:
        """End coroutines whose results are no longer needed."""
        for coroutine in started:
            coroutine.close()


@dataclass(frozen=True)
class AsyncDriver:
    """What an operation uses that runs on the event loop; it starts others as tasks."""

    receive: Receive
    #: Requests of one batch in flight at a time: enough to keep a model busy while responses travel.
    in_flight = 4

    async def pause(self, seconds: float) -> None:
        """Do nothing for some seconds."""
        await asyncio.sleep(seconds)

    async def work(self, function: Callable[[], T]) -> T:
        """Call a function that may take seconds."""
        return await asyncio.to_thread(function)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a coroutine, whose result is awaited later."""
        return asyncio.create_task(coroutine)

    async def cancel(self, started: Iterable[asyncio.Task[Any]]) -> None:
        """End tasks whose results are no longer needed."""
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise RuntimeError("expected an operation that does not wait for an event loop")


def iterate(items: AsyncGenerator[T]) -> Generator[T]:
    """Yield the items of an asynchronous generator that never suspends."""
    try:
        while True:
            try:
                item = run(items.asend(None))
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())


class OtherServer(Unavailable):
    """This server does not have the version that a batch or a rollout has begun with; another one may."""


class Attempts:
    """The attempts at one request, under one time limit.

    A prediction changes nothing on the server, so it may be repeated after a broken connection and after an overload
    (503). Over the rate of a key (429), and while servers are updated one after another (`OtherServer`), it is repeated
    as often as the time limit allows: the service has not begun to compute. It is never repeated after a fault of the
    request itself, nor after a deadline.

    Args:
        timeout: Seconds for all attempts and the pauses between them.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._made = self._moved = 0
        self._last: PetrovError | None = None

    def remaining(self) -> float:
        """Return the seconds left; where a pause has taken them, raise the fault before it, which says why."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise self._last or DeadlineExceeded(f"no response within {self._timeout:g} s")
        return left

    def pause_after(self, fault: PetrovError) -> float:
        """Return the seconds to wait before the next attempt."""
        self._last = fault
        rate_limited = isinstance(fault, RateLimited) and fault.retry_after is not None
        moves = isinstance(fault, OtherServer)
        waits = rate_limited or moves
        self._made, self._moved = self._made + (not waits), self._moved + moves
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._made + self._moved - 1, 16))
        pause = max(random.uniform(longest / 2, longest), fault.retry_after or 0.0)  # noqa: S311  spreads load
        repeatable = rate_limited or isinstance(fault, REPEATABLE)
        if not repeatable or (self._made == ATTEMPTS and not waits) or time.monotonic() + pause >= self._end:
            raise fault
        return pause


@dataclass
class Deadline:
    """When a reply has to be complete, by the monotonic clock.

    Args:
        seconds: For the first reply, from now on.
        further: For each one behind it, from when it is waited for.
    """

    seconds: float
    further: float = 0.0
    end: float = field(init=False)

    def __post_init__(self) -> None:
        self.end = time.monotonic() + self.seconds

    def renew(self) -> None:
        """Give its seconds to a further reply, which is waited for from now on."""
        self.seconds = self.further
        self.end = time.monotonic() + self.seconds

    def check(self) -> None:
        """Check that it has not passed."""
        self.remaining()

    def remaining(self) -> float:
        """Return the seconds left."""
        if (left := self.end - time.monotonic()) <= 0:
            raise self._fault()
        return left

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """End what the block waits for when it passes."""
        try:
            async with asyncio.timeout(self.end - time.monotonic()):
                yield
        except TimeoutError:
            raise self._fault() from None

    def _fault(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"the response did not arrive within {self.seconds:g} s")


def checked_timeout(seconds: float) -> float:
    """Return a time limit, if it is a positive number of seconds; an infinite one is as long as clocks take."""
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not seconds > 0:
        raise ValueError(f"expected a timeout of more than 0 seconds but got {seconds}")
    return min(seconds, LONGEST_TIMEOUT)


@contextmanager
def reporting(progress: Progress, title: str, total: int) -> Iterator[Advance]:
    """Yield a function to call with the number of fields that were just computed."""
    if progress is False:
        yield lambda _count: None
    elif callable(progress):
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            progress(done, total)

        yield advance
    elif find_spec("rich"):
        from rich.console import Console  # noqa: PLC0415  optional
        from rich.progress import MofNCompleteColumn  # noqa: PLC0415  optional
        from rich.progress import Progress as RichProgress  # noqa: PLC0415  optional

        columns = (*RichProgress.get_default_columns(), MofNCompleteColumn())
        with RichProgress(*columns, console=Console(stderr=True)) as display:
            task = display.add_task(title, total=total)
            yield lambda count: display.advance(task, count)
    else:
        raise ModuleNotFoundError("a progress bar needs rich: pip install rich")
