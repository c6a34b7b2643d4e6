"""Operations without input and output, and the two drivers that perform them.

An operation is a generator, a `Flow`. It yields what it needs (send this, wait, run that), receives the result at the
same place, and yields an `Item` for everything that it produces. So every operation is written once for four clients:
`SyncDriver` and `AsyncDriver` perform the same steps with and without `await`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing, closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from petrov_client._errors import ConnectionFailed, DeadlineExceeded, PetrovError, RateLimited, Unavailable

T = TypeVar("T")
Flow = Generator[Any, Any, T]

#: Seconds for one request by default.
TIMEOUT_SECONDS = 60.0
REPEATABLE = (ConnectionFailed, Unavailable)
ATTEMPTS = 4
#: Seconds before the second attempt; doubled before each further one. Jitter of half of it keeps clients apart.
FIRST_PAUSE = 0.1

Progress = bool | Callable[[int, int], None]
Advance = Callable[[int], object]


@dataclass(frozen=True)
class Call(Generic[T]):
    """One exchange with the service: what the transport sends, and what makes a result, or an error, of its reply."""

    request: Any
    read: Callable[[Any], T]


@dataclass(frozen=True)
class Send:
    """Send a request; the result is the reply."""

    request: Any
    seconds: float


@dataclass(frozen=True)
class Receive(Send):
    """Send a request whose replies are many; the result is the stream of them."""


@dataclass(frozen=True)
class Next:
    """Wait for the next reply of a stream; the result is None at its end."""

    stream: Any


@dataclass(frozen=True)
class Pause:
    """Do nothing for some seconds."""

    seconds: float


@dataclass(frozen=True)
class Work:
    """Call a function that may take seconds; the result is its own."""

    function: Callable[[], Any]


@dataclass(frozen=True)
class Start:
    """Begin another flow beside this one; the result is for `Wait`."""

    flow: Flow[Any]


@dataclass(frozen=True)
class Wait:
    """Wait for the end of a flow that was started; the result is its own."""

    started: Any


@dataclass(frozen=True)
class Item:
    """Something that the operation produces."""

    value: Any


def once(call: Call[T], seconds: float) -> Flow[T]:
    """Send a call once, and return its result."""
    return call.read((yield Send(call.request, seconds)))


def perform(call: Call[T], timeout: float) -> Flow[T]:
    """Send a call, again where that is safe, and return its result."""
    attempts = Attempts(timeout)
    while True:
        try:
            return (yield from once(call, attempts.remaining()))
        except PetrovError as fault:
            yield Pause(attempts.pause_after(fault))


def _as_item(flow: Flow[Any]) -> Flow[None]:
    yield Item((yield from flow))


class SyncDriver:
    """Performs flows on the caller's thread, one step at a time. A subclass implements `_receive`."""

    in_flight = 1

    def _run(self, flow: Flow[T]) -> T:
        """Perform a flow, and return its result."""
        [result] = self._iterate(_as_item(flow))
        return result  # type: ignore[no-any-return]

    def _iterate(self, flow: Flow[None]) -> Generator[Any]:  # noqa: C901  a case per kind of step
        """Perform a flow, and yield what it produces."""
        resume: Callable[[Any], Any] = flow.send
        value: Any = None
        with ExitStack() as stack:
            stack.callback(flow.close)
            while True:
                try:
                    step = resume(value)
                except StopIteration:
                    return
                value, resume = None, flow.send
                try:
                    match step:
                        case Item():
                            yield step.value
                        case Receive():
                            value = stack.enter_context(closing(self._receive(step.request, step.seconds)))
                        case Send():
                            value = self._send(step.request, step.seconds)
                        case Next():
                            value = next(step.stream, None)
                        case Pause():
                            time.sleep(step.seconds)
                        case Work():
                            value = step.function()
                        case Start():
                            value = step.flow
                        case Wait():
                            value = self._run(step.started)
                except BaseException as error:  # noqa: BLE001  the flow decides, and raises what it does not handle
                    value, resume = error, flow.throw

    def _send(self, request: Any, seconds: float) -> Any:
        """Send a request, and return its only reply."""
        with closing(self._receive(request, seconds)) as replies:
            return next(replies)

    def _receive(self, request: Any, seconds: float) -> Generator[Any]:
        """Send a request and yield its replies as they arrive, each within so many seconds."""
        raise NotImplementedError


class AsyncDriver:
    """Performs flows with `await`, and those that were started as tasks. A subclass implements `_receive`."""

    #: Requests of one batch in flight at a time: enough to keep a model busy while responses travel.
    in_flight = 4

    async def _run(self, flow: Flow[T]) -> T:
        """Perform a flow, and return its result."""
        async with aclosing(self._iterate(_as_item(flow))) as items:
            [result] = [item async for item in items]
        return result  # type: ignore[no-any-return]

    async def _iterate(self, flow: Flow[None]) -> AsyncGenerator[Any]:  # noqa: C901  as above
        """Perform a flow, and yield what it produces."""
        resume: Callable[[Any], Any] = flow.send
        value: Any = None
        started: set[asyncio.Task[Any]] = set()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(_cancel, started)
            stack.callback(flow.close)
            while True:
                try:
                    step = resume(value)
                except StopIteration:
                    return
                value, resume = None, flow.send
                try:
                    match step:
                        case Item():
                            yield step.value
                        case Receive():
                            replies = self._receive(step.request, step.seconds)
                            value = await stack.enter_async_context(aclosing(replies))
                        case Send():
                            value = await self._send(step.request, step.seconds)
                        case Next():
                            value = await anext(step.stream, None)
                        case Pause():
                            await asyncio.sleep(step.seconds)
                        case Work():
                            value = await asyncio.to_thread(step.function)
                        case Start():
                            value = asyncio.create_task(self._run(step.flow))
                            started.add(value)
                        case Wait():
                            value = await step.started
                            started.discard(step.started)
                except BaseException as error:  # noqa: BLE001  as above
                    value, resume = error, flow.throw

    async def _send(self, request: Any, seconds: float) -> Any:
        """Send a request, and return its only reply."""
        async with aclosing(self._receive(request, seconds)) as replies:
            return await anext(replies)

    def _receive(self, request: Any, seconds: float) -> AsyncGenerator[Any]:
        """Send a request and yield its replies as they arrive, each within so many seconds."""
        raise NotImplementedError


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Attempts:
    """The attempts at one request, under one time limit.

    A prediction changes nothing on the server, so it may be repeated after a broken connection and after an overload
    (503). Over the rate of a key (429) it is repeated when the service says, as often as the time limit allows: the
    service has not begun to compute. It is never repeated after a fault of the request itself, nor after a deadline.

    Args:
        timeout: Seconds for all attempts and the pauses between them.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._made = 0

    def remaining(self) -> float:
        """Return the seconds left."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded(f"no response within {self._timeout:g} s")
        return left

    def pause_after(self, fault: PetrovError) -> float:
        """Return the seconds to wait before the next attempt."""
        rate_limited = isinstance(fault, RateLimited) and fault.retry_after is not None
        self._made += not rate_limited
        longest = FIRST_PAUSE * 2.0 ** (self._made - 1)
        pause = max(random.uniform(longest / 2, longest), fault.retry_after or 0.0)  # noqa: S311  spreads load
        repeatable = rate_limited or isinstance(fault, REPEATABLE)
        if not repeatable or self._made == ATTEMPTS or time.monotonic() + pause >= self._end:
            raise fault
        return pause


def checked_timeout(seconds: float) -> float:
    """Return a time limit, if it is a positive number of seconds."""
    if not seconds > 0:
        raise ValueError(f"expected a timeout of more than 0 seconds but got {seconds}")
    return seconds


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
    elif find_spec("tqdm"):
        from tqdm.auto import tqdm  # noqa: PLC0415  optional

        with tqdm(desc=title, total=total, unit="field") as bar:
            yield bar.update
    elif find_spec("rich"):
        from rich.console import Console  # noqa: PLC0415  optional
        from rich.progress import Progress as RichProgress  # noqa: PLC0415  optional

        with RichProgress(console=Console(stderr=True)) as display:
            task = display.add_task(title, total=total)
            yield lambda count: display.advance(task, count)
    else:
        raise ModuleNotFoundError("a progress bar needs tqdm or rich: pip install rich")
