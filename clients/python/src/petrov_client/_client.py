"""The synchronous client over HTTP, and what it shares with the synchronous client over gRPC: the public methods."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, Self

import httpx2

from petrov_client import _http as http
from petrov_client import _inversion as inversion
from petrov_client._flow import TIMEOUT_SECONDS, SyncDriver, checked_timeout
from petrov_client._operations import Job, Operations
from petrov_client._quality import Options
from petrov_client._rollout import Rollouts

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping
    from types import TracebackType

    from petrov_client._flow import Progress
    from petrov_client._grpc_client import GrpcWire
    from petrov_client._inversion import Inversion
    from petrov_client._models import Example, ModelInfo
    from petrov_client._quality import Outside


class Predictor:
    """What all four clients hold: the wire format's operations, the time limit, and how they are shown."""

    in_flight: int

    def __init__(self, wire: http.HttpWire | GrpcWire, address: str, api_key: str | None, timeout: float) -> None:
        self._operations = Operations(wire, self.in_flight)
        self._timeout = checked_timeout(timeout)
        self._address, self._key = address, http.bearer(api_key)

    def __repr__(self) -> str:
        key = ", api_key='***'" if self._key else ""
        return f"{type(self).__name__}({self._address!r}{key})"

    def _limit(self, timeout: float | None) -> float:
        return checked_timeout(self._timeout if timeout is None else timeout)

    def _job(
        self,
        model: str,
        array: Any,
        inputs: Mapping[str, Any],
        version: int | None,
        timeout: float | None,
        progress: Progress,
        options: Options,
    ) -> Job:
        return Job(model, array, inputs, version, self._limit(timeout), progress, options)


class SyncPredictor(Predictor, SyncDriver):
    """The base of both synchronous clients; a subclass implements `_send`, `_receive` and `close`."""

    def models(self) -> list[ModelInfo]:
        """Return all models that are ready.

        Raises:
            PetrovError: Any but `InvalidInput`.
        """
        return self._run(self._operations.models(self._timeout))

    def model(self, name: str) -> ModelInfo:
        """Return one model: its versions, inputs, outputs and, over HTTP, its card.

        Raises:
            UnknownModel: No such model.
            PetrovError: Any other but `InvalidInput`.
        """
        return self._run(self._operations.model(name, None, self._timeout))

    def predict(
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
        """Predict the outputs for single fields or for a batch of any size.

        The inputs are checked as a whole before anything is sent, then sent in pieces, one after another.

            pressure = petrov.predict("darcy", permeability)
            temperature = petrov.predict("heat", conductivity=k, source=f, wind=0.3)
            temperature = petrov.predict("heat", {"conductivity": k, "source": f, "wind": 0.3})
            pressure, known = petrov.predict("darcy", permeability, quality=True)

        Args:
            model: The model's name.
            array: Real numbers in physical units, one field `[…]` or a batch `[batch, …]`; anything that NumPy reads.
                Memory maps and HDF5 datasets are read a piece at a time. It is the model's only required input, else
                its first; or a mapping of inputs and parameters by name, for names that are arguments here, too.
            version: A version of the model; the newest if None.
            timeout: Seconds for each request, its repetitions included; the client's if None.
            progress: True for a progress bar, or a function of (fields done, fields in all).
            quality: Whether to return what is known about the errors, too.
            tolerance: The largest error bound. A field with a larger one is solved by the classical solver, or refused
                where there is none; None accepts any.
            outside: What happens to a field that is unlike the training data: "answer" predicts it like any other,
                "solve" lets the classical solver solve it, "refuse" raises `InvalidInput`.
            inputs: Inputs and parameters by name; what has a default may be left out. A vector field has its components
                before the grid's axes. A parameter is one number, or one per field of the batch.

        Returns:
            float32 in physical units, with the batch axis if the inputs have one; of a model with several outputs, a
            dictionary by name. With `quality`, these and a `Quality`.

        Raises:
            InvalidInput: The inputs do not fit the model or the choices; `.where` names the location.
            ValueError: The tolerance is no positive number, or `outside` none of its values.
            PetrovError: Any other of the tree in `petrov_client._errors`.
        """
        options = Options(quality, tolerance, outside)
        return self._run(self._operations.predict(self._job(model, array, inputs, version, timeout, progress, options)))

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
    ) -> Iterator[Any]:
        """Predict as `predict` does, and yield the outputs as they arrive, so that memory holds one piece of the batch.

        The inputs are checked as a whole before this returns; a piece is sent when the iterator is advanced.

        Args:
            model: The model's name.
            array: As for `predict`; a memory map or an HDF5 dataset stays on disk.
            version: A version of the model; the newest if None.
            timeout: Seconds for each request, its repetitions included; the client's if None.
            progress: True for a progress bar, or a function of (fields done, fields in all).
            tolerance: As for `predict`.
            outside: As for `predict`.
            inputs: As for `predict`.

        Returns:
            Batches `[fields, …]` of consecutive outputs, in order; together they are what `predict` returns.

        Raises:
            InvalidInput: The inputs do not fit the model; `.where` names the location.
            PetrovError: Any other of the tree in `petrov_client._errors`, here or from the iterator.
        """
        options = Options(tolerance=tolerance, outside=outside)
        job = self._job(model, array, inputs, version, timeout, progress, options)
        return self._iterate(self._operations.stream(self._run(self._operations.checked(job)), job))

    def rollout(
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
        """Predict the trajectories that follow from single states or a batch of them.

            trajectory = petrov.rollout("flow", vorticity, frames=200, viscosity=1e-3, progress=True)
            trajectory, known = petrov.rollout("flow", vorticity, frames=200, quality=True)

        Args:
            model: A model of trajectories.
            array: Its first input, the states to start from; see `predict`.
            frames: How many frames follow; as many as a training trajectory has if None.
            version: A version of the model; the newest if None.
            timeout: Seconds for each frame, repetitions included; the client's if None.
            progress: True for a progress bar, or a function of (frames done, frames in all).
            quality: Whether to return what is known about the error of every frame, too.
            partial: Whether to keep what is right where the model or the service fails: samples that the model fails on
                are NaN from there on, and a rollout that ends with an error after some frames is shorter, with an
                `IncompleteRolloutWarning`. Else the error is raised.
            inputs: Inputs and parameters by name.

        Returns:
            float32 `[(batch), frame, (component), *grid]`; of several outputs, a dictionary by name. With `quality`,
            these and a `Quality` of numbers `[(batch), frame]`.

        Raises:
            InvalidInput: The inputs do not fit the model, or it computes no trajectories.
            PetrovError: Any other of the tree in `petrov_client._errors`.
        """
        options = Options(quality=quality, partial=partial)
        job = self._job(model, array, inputs, version, timeout, progress, options)
        return self._run(self._operations.rollout(job, frames))

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
    ) -> Iterator[Any]:
        """Roll out as `rollout` does, and yield every frame as it arrives.

            for vorticity in petrov.rollout_stream("flow", vorticity, frames=10_000): …

        The service computes a few frames ahead. It stops when the iterator is closed, or the loop over it ends early.

        Args:
            model: See `rollout`.
            array: See there.
            frames: See there.
            version: See there.
            timeout: See there.
            progress: See there.
            quality: See there.
            partial: See there; the iterator ends early, with the warning.
            earlier: The first of the frames, as this iterator has yielded them to an earlier call without `quality`. It
                goes on behind them, and computes none of them again.
            inputs: See there.

        Returns:
            Frames `[(batch), (component), *grid]`, in order; with `quality`, pairs of a frame and a `Quality`.

        Raises:
            InvalidInput: The inputs do not fit the model, or it computes no trajectories.
            PetrovError: Any other of the tree in `petrov_client._errors`, here or from the iterator.
        """
        options = Options(quality=quality, partial=partial)
        job = self._job(model, array, inputs, version, timeout, progress, options)
        rollouts = Rollouts(self._run(self._operations.checked(job)), options, frames, earlier)
        return self._iterate(self._operations.rollout_stream(rollouts, job))

    def vjp(
        self,
        model: str,
        array: Any,
        cotangents: Any,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
    ) -> tuple[Any, Any]:
        """Return the outputs, and the gradients of their inner product with cotangents.

            pressure, gradient = petrov.vjp("darcy", permeability, pressure - measured)
            temperature, gradients = petrov.vjp("heat", {"conductivity": k, "wind": 0.3}, 2 * residual)

        Args:
            model: The model's name.
            array: As for `predict`: an array, or a mapping of inputs and parameters by name.
            cotangents: By output, in its shape: the gradient of a loss by the outputs. An array, or a mapping by name
                where there are several outputs; one that is left out is 0.
            version: A version of the model; the newest if None.
            timeout: Seconds for each request, its repetitions included; the client's if None.
            progress: True for a progress bar, or a function of (fields done, fields in all).

        Returns:
            The outputs as `predict` returns them, and the gradients: an array for inputs without names, else by the
            names of what was passed. The gradient by a parameter is one number per field.

        Raises:
            RequestError: The model has no derivatives.
            PetrovError: As `predict`.
        """
        job = self._job(model, array, {}, version, timeout, progress, Options())
        return self._run(self._operations.derivative("vjp", job, cotangents))

    def jvp(
        self,
        model: str,
        array: Any,
        tangents: Any,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        frames: int | None = None,
    ) -> tuple[Any, Any]:
        """Return the outputs, and their derivatives along tangents.

            pressure, tangent = petrov.jvp("darcy", permeability, direction)

        Args:
            model: The model's name.
            array: As for `predict`: an array, or a mapping of inputs and parameters by name.
            tangents: By input, in its shape: an array, or a mapping of inputs and parameters by name. One that is left
                out is 0.
            version: A version of the model; the newest if None.
            timeout: Seconds for each request, its repetitions included; the client's if None.
            progress: True for a progress bar, or a function of (fields done, fields in all).
            frames: Frames of a trajectory, at most 16; those of a training trajectory if None, or 16.

        Returns:
            The outputs, and their tangents, each as `predict` returns outputs.

        Raises:
            RequestError: The model has no derivatives.
            PetrovError: As `predict`.
        """
        job = self._job(model, array, {}, version, timeout, progress, Options(frames=frames))
        return self._run(self._operations.derivative("jvp", job, tangents))

    def close(self) -> None:
        """Close the connections."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Client(SyncPredictor):
    """A client of the gateway over HTTP.

    Args:
        url: The gateway's address.
        api_key: Sent as a bearer token, never shown.
        timeout: Seconds for each request, its repetitions included.
        transport: What carries the requests instead of sockets, for proxies, certificates and tests.

    Raises:
        ValueError: `url` is no HTTP address, or no header can carry the key.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._url = http.checked_url(url)
        super().__init__(http.HttpWire(), http.address(self._url), api_key, timeout)
        self._http = httpx2.Client(transport=transport, **http.settings(self._url, self._key))

    def example(
        self,
        model: str,
        index: int | None = None,
        *,
        seed: int | None = None,
        grid: int | None = None,
        timeout: float | None = None,
    ) -> Example:
        """Return a sample that `predict` takes: a stored test sample with its truth, or a new one.

        Without `index`, `seed` and `grid` it is a new sample if the problem has a sampler, else the first stored one.

            sample = petrov.example("heat", 0)
            error = petrov.predict("heat", sample.inputs) - sample.outputs["temperature"]

        Args:
            model: The model's name.
            index: The number of a stored test sample, from 0.
            seed: A new sample of the training distribution; the same seed is the same field on every grid.
            grid: Points per axis of a new sample; the first declared size if None.
            timeout: Seconds for the request, its repetitions included; the client's if None.

        Raises:
            ValueError: A stored sample and a new one are requested at once.
            RequestError: The model has neither stored samples nor a sampler.
            PetrovError: Any other of the tree in `petrov_client._errors`.
        """
        return self._run(self._operations.example(model, index, seed, grid, self._limit(timeout)))

    def invert(
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
        """Infer an input of a model from its output at sensors, with its uncertainty.

            found = petrov.invert("darcy", sensors, pressures, noise=1e-4, prior={"kind": "log-normal"}, progress=True)
            permeability, deviation = found.mean, found.deviation

        The service computes in the background. If the wait for it is interrupted, the job is cancelled.

        Args:
            model: A model whose problem has a prior for an input.
            sensors: Positions (row, column) `[sensors, 2]` in sides of the domain, from 0 to 1.
            values: The measured output `[sensors]`, in its units.
            noise: Standard deviation of the errors: a number, or `[sensors]`.
            prior: `{"kind": "log-normal", "median": …, "deviation": …}` or `{"kind": "two-materials", "low": …,
                "high": …, "width": …}`; the service's default if None.
            forward: What predicts the measurements: the network, or the problem's classical solver.
            grid: Points of the model's grid.
            modes: Karhunen-Loève modes that are estimated.
            model_error: Relative error of the forward model, added to the noise.
            iterations: Most steps.
            samples: Draws of the posterior.
            seed: Of the draws.
            timeout: Seconds for each request, its repetitions included; the client's if None. A job may take longer.
            progress: True for a progress bar, or a function of (steps done, most steps).

        Raises:
            InvalidInput: The measurements or an option are wrong.
            RequestError: Nothing can be inferred by this model, or the job was cancelled.
            PetrovError: Any other of the tree in `petrov_client._errors`.
        """
        options = {"prior": prior, "forward": forward, "grid": grid, "modes": modes, "model_error": model_error}
        options |= {"iterations": iterations, "samples": samples, "seed": seed}
        body = inversion.request(sensors, values, noise, options)
        return self._run(self._operations.invert(model, body, self._limit(timeout), progress))

    def reference(
        self,
        model: str,
        array: Any = None,
        timeout: float | None = None,
        progress: Progress = False,
        **inputs: Any,
    ) -> Any:
        """Return the classical solutions for the same inputs, field by field.

        Args:
            model: The model's name.
            array: As for `predict`.
            timeout: Seconds for each field, its repetitions included; the client's if None.
            progress: True for a progress bar, or a function of (fields done, fields in all).
            inputs: As for `predict`.

        Returns:
            As `predict`.

        Raises:
            RequestError: The model has no classical solver.
            PetrovError: Any other of the tree in `petrov_client._errors`.
        """
        job = self._job(model, array, inputs, None, timeout, progress, Options())
        return self._run(self._operations.reference(job))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _send(self, request: http.HttpRequest, remaining: float) -> http.HttpReply:
        body = http.Body(time.monotonic() + remaining)
        try:
            with self._http.stream(**http.arguments(request, remaining)) as response:
                for chunk in response.iter_raw():
                    body.add(chunk)
                return body.reply(response)
        except httpx2.HTTPError as error:
            raise http.connection_fault(error, self._url) from error

    def _receive(self, request: http.HttpRequest, seconds: float) -> Generator[http.HttpReply]:
        try:
            with self._http.stream(**http.arguments(request, seconds)) as response:
                frames = http.FrameReplies(response, seconds)
                for chunk in response.iter_raw():
                    yield from frames.add(chunk)
                yield from frames.end()
        except httpx2.HTTPError as error:
            raise http.connection_fault(error, self._url) from error
