"""The two asynchronous clients: as the synchronous ones, with a few requests of one batch in flight at a time."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

import httpx2
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from petrov_client import _grpc, _http
from petrov_client._arrays import Answer, ask
from petrov_client._exceptions import PetrovError, RequestError
from petrov_client._key import bearer, shown
from petrov_client._models import checked_name
from petrov_client._progress import Progress, reporting
from petrov_client._retry import TIMEOUT_SECONDS, Attempts, checked_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Iterator
    from types import TracebackType

    from petrov_client._arrays import Fields, Question
    from petrov_client._models import ModelInfo
    from petrov_client._progress import Advance
    from petrov_client._wire import Call, Flow, Wire

T = TypeVar("T")

#: Requests of one batch under way at a time: enough to keep a model busy while answers travel.
IN_FLIGHT = 4


class AsyncPredictor:
    """What both asynchronous clients do; a subclass adds the one line that sends."""

    def __init__(self, wire: Wire, timeout: float) -> None:
        self._wire = wire
        self._timeout = checked_timeout(timeout)
        self._known: dict[tuple[str, int | None], ModelInfo] = {}

    async def models(self) -> list[ModelInfo]:
        """All models that answer now; see `Client.models`."""
        names = await self._perform(self._wire.names(), self._timeout)
        return [await self.model(name) for name in names]

    async def model(self, name: str) -> ModelInfo:
        """One model; see `Client.model`."""
        return await self._describe(name, None, self._timeout)

    async def predict(
        self,
        model: str,
        array: Any,
        version: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  it holds for each request, repetitions included
        progress: Progress = False,
    ) -> Fields:
        """Ask a model for the solutions of one field or of a batch of any size; see `Client.predict`.

        At most four pieces of the batch are under way at a time. If one fails, the others are cancelled.
        """
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        with self._doubting():
            return await self._predict(model, array, version, limit, progress)

    async def stream(
        self,
        model: str,
        array: Any,
        version: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  as above
        progress: Progress = False,
    ) -> AsyncIterator[Fields]:
        """Ask as `predict` does, and give the solutions as they come, in order; see `Client.stream`.

        At most four pieces are under way or waiting to be taken. `async with contextlib.aclosing(…)` ends them at
        once where the loop over them may be left early.
        """
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        with self._doubting():
            question = await self._question(model, array, version, limit)
            answer = Answer(question)
            with reporting(progress, model, len(question)) as advance:
                async with aclosing(self._in_order(question, version, limit)) as parts:
                    async for piece, fields in parts:
                        yield answer.checked(piece, fields)
                        advance(piece.stop - piece.start)

    async def close(self) -> None:
        """Close the connections."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _predict(self, model: str, array: Any, version: int | None, timeout: float, progress: Progress) -> Fields:  # noqa: ASYNC109  as above
        question = await self._question(model, array, version, timeout)
        answer = Answer(question)

        async def work(pieces: Iterator[slice], advance: Advance) -> None:
            for piece in pieces:
                call = self._wire.prediction(question.info, version, question.fields(piece))
                advance(answer.put(piece, await self._perform(call, timeout)))

        with reporting(progress, model, len(question)) as advance:
            pieces = iter(question.pieces())
            await _together(work(pieces, advance) for _ in range(IN_FLIGHT))
        return answer.array()

    async def _question(self, model: str, array: Any, version: int | None, timeout: float) -> Question:  # noqa: ASYNC109  as above
        info = self._known.get((model, version)) or await self._describe(model, version, timeout)
        return await asyncio.to_thread(ask, info, array)  # seconds, for a batch of gigabytes

    async def _in_order(
        self,
        question: Question,
        version: int | None,
        timeout: float,  # noqa: ASYNC109  as above
    ) -> AsyncGenerator[tuple[slice, Fields], None]:
        """Each piece of the question with its answer, the next few asked for meanwhile."""
        waiting: deque[tuple[slice, asyncio.Task[Fields]]] = deque()
        try:
            for piece in question.pieces():
                call = self._wire.prediction(question.info, version, question.fields(piece))
                waiting.append((piece, asyncio.create_task(self._perform(call, timeout))))
                if len(waiting) == IN_FLIGHT:
                    yield waiting[0][0], await waiting[0][1]
                    waiting.popleft()
            for piece, task in waiting:
                yield piece, await task
        finally:
            for _, task in waiting:
                task.cancel()
            await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        """After a refusal, what was known of the model may be out of date."""
        try:
            yield
        except RequestError:
            self._known.clear()
            raise

    async def _describe(self, name: str, version: int | None, timeout: float) -> ModelInfo:  # noqa: ASYNC109  as above
        info = await self._follow(self._wire.model(checked_name(name), version), timeout)
        self._known[name, version] = info
        return info

    async def _follow(self, flow: Flow[T], timeout: float) -> T:  # noqa: ASYNC109  as above
        """Drive a flow of calls to its result."""
        try:
            call = next(flow)
            while True:
                call = flow.send(await self._perform(call, timeout))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _perform(self, call: Call[T], timeout: float) -> T:  # noqa: ASYNC109  as above
        """Send one call, again where that is safe, and read its reply."""
        attempts = Attempts(timeout)
        while True:
            try:
                return await self._once(call, attempts.remaining())
            except PetrovError as fault:
                await asyncio.sleep(attempts.pause_after(fault))

    async def _once(self, call: Call[T], remaining: float) -> T:
        """Send one call and read its reply."""
        return call.read(await self._send(call.request, remaining))

    async def _send(self, request: Any, remaining: float) -> Any:
        raise NotImplementedError


class AsyncClient(AsyncPredictor):
    """A client of the gateway over HTTP; arguments as `Client`."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(_http.HttpWire(), timeout)
        self._url = _http.checked_url(url)
        self._key = bearer(api_key)
        self._http = httpx2.AsyncClient(transport=transport, **_http.settings(self._url, self._key))

    def __repr__(self) -> str:
        return shown("AsyncClient", _http.address(self._url), self._key)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _send(self, request: _http.HttpRequest, remaining: float) -> _http.HttpReply:
        body = _http.Body(time.monotonic() + remaining)
        try:
            async with self._http.stream(**_http.arguments(request, remaining)) as response:
                async for chunk in response.aiter_raw():
                    body.add(chunk)
                return body.reply(response)
        except httpx2.HTTPError as error:
            raise _http.connection_fault(error, self._url) from error


class AsyncGrpcClient(AsyncPredictor):
    """A client of a Triton, or of its like (Open Inference Protocol) over gRPC; arguments as `GrpcClient`."""

    def __init__(
        self,
        address: str = "127.0.0.1:8001",
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        tls: bool = False,
    ) -> None:
        super().__init__(_grpc.GrpcWire(), timeout)
        self._address = _grpc.checked_address(address)
        self._key = bearer(api_key)
        self._stub = InferenceServerClient(self._address, ssl=tls, channel_args=_grpc.CHANNEL)

    def __repr__(self) -> str:
        return shown("AsyncGrpcClient", self._address, self._key)

    async def close(self) -> None:
        """Close the connection."""
        await self._stub.close()

    async def _send(self, request: _grpc.GrpcRequest, remaining: float) -> Any:
        try:
            return await getattr(self._stub, request.method)(**_grpc.arguments(request, self._key, remaining))
        except InferenceServerException as error:
            raise _grpc.fault(error, self._address) from error


async def _together(workers: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run workers side by side; the first fault cancels the rest and is raised as itself, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(worker)
    except BaseExceptionGroup as faults:
        raise faults.exceptions[0] from None
