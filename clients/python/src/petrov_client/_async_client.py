"""The asynchronous client over HTTP, and what it shares with the asynchronous client over gRPC: the public methods."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, Self

import httpx2

from petrov_client import _http as http
from petrov_client import _inversion as inversion
from petrov_client._client import Predictor
from petrov_client._flow import TIMEOUT_SECONDS, AsyncDriver
from petrov_client._quality import Options
from petrov_client._rollout import Rollouts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
    from types import TracebackType

    from petrov_client._flow import Flow, Progress
    from petrov_client._inversion import Inversion
    from petrov_client._models import Example, ModelInfo
    from petrov_client._operations import Job
    from petrov_client._quality import Outside


class AsyncPredictor(Predictor, AsyncDriver):
    """The base of both asynchronous clients; a subclass implements `_send`, `_receive` and `close`."""

    async def models(self) -> list[ModelInfo]:
        """Return all models that are ready; see `Client.models`."""
        return await self._run(self._operations.models(self._timeout))

    async def model(self, name: str) -> ModelInfo:
        """Return one model; see `Client.model`."""
        return await self._run(self._operations.model(name, None, self._timeout))

    async def predict(
        self,
        model: str,
        array: Any = None,
        version: int | None = None,
        timeout: float | None = None,
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
        job = self._job(model, array, inputs, version, timeout, progress, Options(quality, tolerance, outside))
        return await self._run(self._operations.predict(job))

    def stream(
        self,
        model: str,
        array: Any = None,
        version: int | None = None,
        timeout: float | None = None,
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
        options = Options(tolerance=tolerance, outside=outside)
        return self._iterate(self._streamed(self._job(model, array, inputs, version, timeout, progress, options)))

    def _streamed(self, job: Job) -> Flow[None]:
        yield from self._operations.stream((yield from self._operations.checked(job)), job)

    async def rollout(
        self,
        model: str,
        array: Any = None,
        frames: int | None = None,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        *,
        quality: bool = False,
        partial: bool = False,
        **inputs: Any,
    ) -> Any:
        """Predict the trajectories that follow from single states or a batch of them; see `Client.rollout`."""
        options = Options(quality=quality, partial=partial)
        job = self._job(model, array, inputs, version, timeout, progress, options)
        return await self._run(self._operations.rollout(job, frames))

    def rollout_stream(
        self,
        model: str,
        array: Any = None,
        frames: int | None = None,
        version: int | None = None,
        timeout: float | None = None,
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
        options = Options(quality=quality, partial=partial)
        job = self._job(model, array, inputs, version, timeout, progress, options)
        return self._iterate(self._rolled(job, frames, earlier))

    def _rolled(self, job: Job, frames: int | None, earlier: Iterable[Any]) -> Flow[None]:
        rollouts = Rollouts((yield from self._operations.checked(job)), job.options, frames, earlier)
        yield from self._operations.rollout_stream(rollouts, job)

    async def vjp(
        self,
        model: str,
        array: Any,
        cotangents: Any,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
    ) -> tuple[Any, Any]:
        """Return outputs and gradients; see `Client.vjp`."""
        job = self._job(model, array, {}, version, timeout, progress, Options())
        return await self._run(self._operations.derivative("vjp", job, cotangents))

    async def jvp(
        self,
        model: str,
        array: Any,
        tangents: Any,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        frames: int | None = None,
    ) -> tuple[Any, Any]:
        """Return outputs and tangents; see `Client.jvp`."""
        job = self._job(model, array, {}, version, timeout, progress, Options(frames=frames))
        return await self._run(self._operations.derivative("jvp", job, tangents))

    async def close(self) -> None:
        """Close the connections."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncClient(AsyncPredictor):
    """An asynchronous client of the gateway over HTTP; arguments as `Client`."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._url = http.checked_url(url)
        super().__init__(http.HttpWire(), http.address(self._url), api_key, timeout)
        self._http = httpx2.AsyncClient(transport=transport, **http.settings(self._url, self._key))

    async def example(
        self,
        model: str,
        index: int | None = None,
        *,
        seed: int | None = None,
        grid: int | None = None,
        timeout: float | None = None,
    ) -> Example:
        """Return a sample that `predict` takes; see `Client.example`."""
        return await self._run(self._operations.example(model, index, seed, grid, self._limit(timeout)))

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
        timeout: float | None = None,
        progress: Progress = False,
    ) -> Inversion:
        """Infer an input of a model from its output at sensors; see `Client.invert`. A cancelled task ends the job."""
        options = {"prior": prior, "forward": forward, "grid": grid, "modes": modes, "model_error": model_error}
        options |= {"iterations": iterations, "samples": samples, "seed": seed}
        body = inversion.request(sensors, values, noise, options)
        return await self._run(self._operations.invert(model, body, self._limit(timeout), progress))

    async def reference(
        self,
        model: str,
        array: Any = None,
        timeout: float | None = None,
        progress: Progress = False,
        **inputs: Any,
    ) -> Any:
        """Return the classical solutions for the same inputs, field by field; see `Client.reference`."""
        job = self._job(model, array, inputs, None, timeout, progress, Options())
        return await self._run(self._operations.reference(job))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _send(self, request: http.HttpRequest, remaining: float) -> http.HttpReply:
        body = http.Body(time.monotonic() + remaining)
        try:
            async with self._http.stream(**http.arguments(request, remaining)) as response:
                async for chunk in response.aiter_raw():
                    body.add(chunk)
                return body.reply(response)
        except httpx2.HTTPError as error:
            raise http.connection_fault(error, self._url) from error

    async def _receive(self, request: http.HttpRequest, seconds: float) -> AsyncGenerator[http.HttpReply]:
        try:
            async with self._http.stream(**http.arguments(request, seconds)) as response:
                frames = http.FrameReplies(response, seconds)
                async for chunk in response.aiter_raw():
                    for reply in frames.add(chunk):
                        yield reply
                for reply in frames.end():
                    yield reply
        except httpx2.HTTPError as error:
            raise http.connection_fault(error, self._url) from error
