"""The asynchronous client over HTTP, and what it shares with the asynchronous client over gRPC.

A few requests of one batch are in flight at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import AsyncExitStack, aclosing, contextmanager
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import httpx2

from petrov_client._requests.derivatives import Product, missing, name_of
from petrov_client._requests.example import Example, query
from petrov_client._requests.rollout import Rollouts, Trajectory
from petrov_client._values.arrays import PredictionOutput, check_input
from petrov_client._values.exceptions import InvalidResponse, PetrovError, RequestError, UnknownModel
from petrov_client._values.models import checked_name
from petrov_client._values.progress import Progress, reporting
from petrov_client._values.quality import Options, warn
from petrov_client._wire import inversion, over_http
from petrov_client._wire.interface import PLAIN
from petrov_client._wire.key import bearer, shown
from petrov_client._wire.retry import TIMEOUT_SECONDS, Attempts, checked_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Iterator, Mapping
    from types import TracebackType

    from petrov_client._requests.derivatives import Kind
    from petrov_client._requests.rollout import Rollout
    from petrov_client._values.arrays import PredictionInput
    from petrov_client._values.models import ModelInfo
    from petrov_client._values.progress import Advance
    from petrov_client._values.quality import Outside, Response
    from petrov_client._wire.interface import Call, Flow, Wire
    from petrov_client._wire.inversion import Inversion

T = TypeVar("T")

#: Requests of one batch in flight at a time: enough to keep a model busy while responses travel.
IN_FLIGHT = 4


class AsyncPredictor:
    """The base of both asynchronous clients; a subclass implements `_send` and `close`."""

    def __init__(self, wire: Wire, timeout: float) -> None:
        self._wire = wire
        self._timeout = checked_timeout(timeout)
        self._known: dict[tuple[str, int | None], ModelInfo] = {}

    async def models(self) -> list[ModelInfo]:
        """Return all models that are ready; see `Client.models`."""
        names = await self._perform(self._wire.names(), self._timeout)
        return [await self.model(name) for name in names]

    async def model(self, name: str) -> ModelInfo:
        """Return one model; see `Client.model`."""
        return await self._describe(name, None, self._timeout)

    async def predict(
        self,
        model: str,
        array: Any = None,
        version: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  it holds for each request, repetitions included
        progress: Progress = False,
        *,
        quality: bool = False,
        tolerance: float | None = None,
        outside: Outside = "answer",
        **inputs: Any,
    ) -> Any:
        """Predict the outputs for single fields or for a batch of any size; see `Client.predict`.

        At most four pieces of the batch are in flight at a time. If one fails, the others are cancelled.
        """
        limit, options = (
            checked_timeout(self._timeout if timeout is None else timeout),
            Options(quality, tolerance, outside),
        )
        with self._forget_on_refusal():
            checked = await self._checked_input(model, array, inputs, version, limit)
            output = await self._predict(checked, version, limit, progress, options)
        if output.outside and options.warns:
            warn(model)
        return (output.array(), output.quality()) if quality else output.array()

    async def stream(
        self,
        model: str,
        array: Any = None,
        version: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  as above
        progress: Progress = False,
        *,
        tolerance: float | None = None,
        outside: Outside = "answer",
        **inputs: Any,
    ) -> AsyncIterator[Any]:
        """Predict as `predict` does, and yield the outputs as they arrive, in order; see `Client.stream`.

        At most four pieces are in flight or waiting to be consumed. Use `async with contextlib.aclosing(…)` where the
        loop over them may end early: it cancels them at once.
        """
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        options = Options(tolerance=tolerance, outside=outside)
        with self._forget_on_refusal():
            checked = await self._checked_input(model, array, inputs, version, limit)
            output = PredictionOutput(checked)
            with reporting(progress, model, len(checked)) as advance:
                async with aclosing(self._in_order(checked, version, limit, options)) as parts:
                    async for piece, response in parts:
                        yield output.checked(piece, response, warned=options.warns)
                        advance(piece.stop - piece.start)

    async def rollout(
        self,
        model: str,
        array: Any = None,
        frames: int | None = None,
        version: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  as above
        progress: Progress = False,
        *,
        quality: bool = False,
        partial: bool = False,
        **inputs: Any,
    ) -> Any:
        """Predict the trajectories that follow from single states or a batch of them; see `Client.rollout`."""
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        rollouts = Rollouts(await self._checked_input(model, array, inputs, version, limit), frames, quality, partial)
        whole = Trajectory(rollouts)
        async with aclosing(self._frames(rollouts, version, limit, progress)) as found:
            async for frame in found:
                whole.add(frame)
        rollouts.warn()
        if whole.outside and not quality:
            warn(model)
        return (whole.array(), whole.quality()) if quality else whole.array()

    async def rollout_stream(
        self,
        model: str,
        array: Any = None,
        frames: int | None = None,
        version: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  as above
        progress: Progress = False,
        *,
        quality: bool = False,
        partial: bool = False,
        earlier: Iterable[Any] = (),
        **inputs: Any,
    ) -> AsyncIterator[Any]:
        """Roll out as `rollout` does, and yield every frame as it arrives; see `Client.rollout_stream`.

        Use `async with contextlib.aclosing(…)` where the loop over it may end early: the service stops at once.
        """
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        checked = await self._checked_input(model, array, inputs, version, limit)
        rollouts = Rollouts(checked, frames, quality, partial, earlier)
        async with aclosing(self._frames(rollouts, version, limit, progress)) as found:
            async for frame in found:
                yield rollouts.shown(frame)
        rollouts.warn()

    async def _frames(
        self, rollouts: Rollouts, version: int | None, limit: float, progress: Progress
    ) -> AsyncGenerator[Response]:
        """Yield every frame of the whole batch."""
        name, total = rollouts.checked.info.name, rollouts.total
        with self._forget_on_refusal(), reporting(progress, name, total) as advance:
            async with AsyncExitStack() as stack:
                streams = [
                    await stack.enter_async_context(aclosing(self._followed(piece, version, limit)))
                    for piece in rollouts.pieces
                ]
                try:
                    if rollouts.done:
                        advance(rollouts.done)
                    for _ in range(total - rollouts.done):
                        yield rollouts.together([await anext(stream) for stream in streams])
                        advance(1)
                except PetrovError as fault:
                    rollouts.end(fault)

    async def _followed(self, rollout: Rollout, version: int | None, limit: float) -> AsyncGenerator[Response | None]:
        """Yield the frames of some samples, in further requests where one breaks off or may not ask for all.

        Those that are missing because the model has failed on all of the samples are None.
        """
        attempts = Attempts(limit)
        while rollout.left:
            call = self._wire.rollout(rollout.info, version, rollout.inputs, rollout.options())
            end = rollout.done + (rollout.options().frames or 0)
            try:
                async with aclosing(self._receive(call.request, attempts.remaining())) as replies:
                    async for reply in replies:
                        response = rollout.follow(call.read(reply))
                        attempts = Attempts(limit)
                        yield response
                if rollout.done != end:
                    raise InvalidResponse(f"expected {end} frames but got {rollout.done}")
            except PetrovError as fault:
                if rollout.given_up(fault):
                    break
                await asyncio.sleep(attempts.pause_after(fault))
        while rollout.left:
            yield None
            rollout.done += 1

    async def vjp(
        self,
        model: str,
        array: Any,
        cotangents: Any,
        version: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  as above
        progress: Progress = False,
    ) -> tuple[Any, Any]:
        """Return outputs and gradients; see `Client.vjp`."""
        return await self._differentiate("vjp", model, (array, cotangents), version, timeout, progress)

    async def jvp(
        self,
        model: str,
        array: Any,
        tangents: Any,
        version: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  as above
        progress: Progress = False,
        frames: int | None = None,
    ) -> tuple[Any, Any]:
        """Return outputs and tangents; see `Client.jvp`."""
        options = Options(frames=frames)
        return await self._differentiate("jvp", model, (array, tangents), version, timeout, progress, options)

    async def close(self) -> None:
        """Close the connections."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _differentiate(
        self,
        kind: Kind,
        model: str,
        arrays: tuple[Any, Any],
        version: int | None,
        timeout: float | None,  # noqa: ASYNC109  as above
        progress: Progress,
        options: Options = PLAIN,
    ) -> tuple[Any, Any]:
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        with self._forget_on_refusal():
            known = self._known.get((model, version)) or await self._describe(model, version, limit)
            product, info = Product(kind, known, *arrays), await self._product(model, kind, version, limit)
            checked = await asyncio.to_thread(check_input, info, product.arguments())
            output = await self._predict(checked, version, limit, progress, options)
        return product.results(output.array(), info, single=checked.single)

    async def _product(
        self,
        model: str,
        kind: Kind,
        version: int | None,
        timeout: float,  # noqa: ASYNC109  as above
    ) -> ModelInfo:
        name = name_of(model, kind)
        try:
            return self._known.get((name, version)) or await self._describe(name, version, timeout)
        except UnknownModel:
            raise missing(model, kind) from None

    async def _predict(
        self,
        checked: PredictionInput,
        version: int | None,
        timeout: float,  # noqa: ASYNC109  as above
        progress: Progress,
        options: Options,
    ) -> PredictionOutput:
        output = PredictionOutput(checked)

        async def work(pieces: Iterator[slice], advance: Advance) -> None:
            for piece in pieces:
                call = self._wire.prediction(checked.info, version, checked.arrays(piece), options)
                response = await self._perform(call, timeout)
                advance(output.put(piece, response))

        with reporting(progress, checked.info.name, len(checked)) as advance:
            pieces = iter(checked.pieces())
            await _together(work(pieces, advance) for _ in range(IN_FLIGHT))
        return output

    async def _checked_input(
        self,
        model: str,
        array: Any,
        named: Mapping[str, Any],
        version: int | None,
        timeout: float,  # noqa: ASYNC109  as above
    ) -> PredictionInput:
        info = self._known.get((model, version)) or await self._describe(model, version, timeout)
        return await asyncio.to_thread(check_input, info, array, named)  # takes seconds for a batch of gigabytes

    async def _in_order(
        self,
        checked: PredictionInput,
        version: int | None,
        timeout: float,  # noqa: ASYNC109  as above
        options: Options,
    ) -> AsyncGenerator[tuple[slice, Response], None]:
        """Yield each piece of the input with its response, while the next few are in flight."""
        waiting: deque[tuple[slice, asyncio.Task[Response]]] = deque()
        try:
            for piece in checked.pieces():
                call = self._wire.prediction(checked.info, version, checked.arrays(piece), options)
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
    def _forget_on_refusal(self) -> Iterator[None]:
        """Forget the descriptions of models after a refusal: they may be out of date."""
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
        """Perform the calls of a flow, and return its result."""
        try:
            call = next(flow)
            while True:
                call = flow.send(await self._perform(call, timeout))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _perform(self, call: Call[T], timeout: float) -> T:  # noqa: ASYNC109  as above
        """Send one call, again where that is safe, and return its result."""
        attempts = Attempts(timeout)
        while True:
            try:
                return await self._once(call, attempts.remaining())
            except PetrovError as fault:
                await asyncio.sleep(attempts.pause_after(fault))

    async def _once(self, call: Call[T], remaining: float) -> T:
        """Send one call once, and return its result."""
        return call.read(await self._send(call.request, remaining))

    async def _send(self, request: Any, remaining: float) -> Any:
        raise NotImplementedError

    def _receive(self, request: Any, seconds: float) -> AsyncGenerator[Any]:
        """Send a request and yield its replies as they arrive, each within so many seconds."""
        raise NotImplementedError


class AsyncClient(AsyncPredictor):
    """An asynchronous client of the gateway over HTTP; arguments as `Client`."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._gateway = over_http.HttpWire()
        super().__init__(self._gateway, timeout)
        self._url = over_http.checked_url(url)
        self._key = bearer(api_key)
        self._http = httpx2.AsyncClient(transport=transport, **over_http.settings(self._url, self._key))

    def __repr__(self) -> str:
        return shown("AsyncClient", over_http.address(self._url), self._key)

    async def example(
        self,
        model: str,
        index: int | None = None,
        *,
        seed: int | None = None,
        grid: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  it holds for the request, repetitions included
    ) -> Example:
        """Return a sample that `predict` takes; see `Client.example`."""
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        return await self._perform(self._gateway.example(checked_name(model), query(index, seed, grid)), limit)

    async def invert(
        self,
        model: str,
        sensors: Any,
        values: Any,
        noise: Any,
        *,
        prior: Mapping[str, Any] | None = None,
        forward: Literal["network", "solver"] | None = None,
        grid: tuple[int, int] | None = None,
        modes: int | None = None,
        model_error: float | None = None,
        iterations: int | None = None,
        samples: int | None = None,
        seed: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  it holds for each request, repetitions included
        progress: Progress = False,
    ) -> Inversion:
        """Infer an input of a model from its output at sensors; see `Client.invert`. A cancelled task ends the job."""
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        options = {"prior": prior, "forward": forward, "grid": grid, "modes": modes, "model_error": model_error}
        options |= {"iterations": iterations, "samples": samples, "seed": seed}
        name, body = checked_name(model), inversion.request(sensors, values, noise, options)
        job = await self._perform(self._gateway.inversion(name, body), limit)
        wait = min(inversion.SHORT_WAIT if progress else inversion.WAIT, limit / 2)
        try:
            with reporting(progress, model, iterations or inversion.STEPS) as advance:
                return await self._follow(inversion.watch(self._gateway, name, job, advance, wait), limit)
        finally:
            with inversion.quietly:
                await self._perform(self._gateway.inversion_end(name, job), limit)

    async def reference(
        self,
        model: str,
        array: Any = None,
        timeout: float | None = None,  # noqa: ASYNC109  as above
        progress: Progress = False,
        **inputs: Any,
    ) -> Any:
        """Return the classical solutions for the same inputs, field by field; see `Client.reference`."""
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        checked = await self._checked_input(model, array, inputs, None, limit)
        output = PredictionOutput(checked)
        with reporting(progress, model, len(checked)) as advance:
            for piece in checked.singly():
                call = self._gateway.reference(checked.info, checked.arrays(piece))
                outputs = await self._perform(call, limit)
                advance(output.put(piece, outputs))
        return output.array()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _send(self, request: over_http.HttpRequest, remaining: float) -> over_http.HttpReply:
        body = over_http.Body(time.monotonic() + remaining)
        try:
            async with self._http.stream(**over_http.arguments(request, remaining)) as response:
                async for chunk in response.aiter_raw():
                    body.add(chunk)
                return body.reply(response)
        except httpx2.HTTPError as error:
            raise over_http.connection_fault(error, self._url) from error

    async def _receive(self, request: over_http.HttpRequest, seconds: float) -> AsyncGenerator[over_http.HttpReply]:
        try:
            async with self._http.stream(**over_http.arguments(request, seconds)) as response:
                frames = over_http.FrameReplies(response, seconds)
                async for chunk in response.aiter_raw():
                    for reply in frames.add(chunk):
                        yield reply
                for reply in frames.end():
                    yield reply
        except httpx2.HTTPError as error:
            raise over_http.connection_fault(error, self._url) from error


async def _together(workers: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run workers concurrently; the first fault cancels the others and is raised itself, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(worker)
    except BaseExceptionGroup as faults:
        raise faults.exceptions[0] from None
