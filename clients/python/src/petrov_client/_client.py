"""The synchronous client over HTTP, and what it shares with the synchronous client over gRPC.

Synchronous and asynchronous clients share everything but the statements that send, receive and wait: `_values.arrays`
checks and cuts, `_wire.over_http` and `_wire.over_grpc` encode and decode, `_wire.retry` decides what is sent again.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing, contextmanager
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
    from collections.abc import Generator, Iterable, Iterator, Mapping
    from types import TracebackType

    from petrov_client._requests.derivatives import Kind
    from petrov_client._requests.rollout import Rollout
    from petrov_client._values.arrays import PredictionInput
    from petrov_client._values.models import ModelInfo
    from petrov_client._values.quality import Outside, Response
    from petrov_client._wire.interface import Call, Flow, Wire
    from petrov_client._wire.inversion import Inversion

T = TypeVar("T")


class SyncPredictor:
    """The base of both synchronous clients; a subclass implements `_send` and `close`."""

    def __init__(self, wire: Wire, timeout: float) -> None:
        self._wire = wire
        self._timeout = checked_timeout(timeout)
        self._known: dict[tuple[str, int | None], ModelInfo] = {}

    def models(self) -> list[ModelInfo]:
        """Return all models that are ready.

        Raises:
            PetrovError: Any but `InvalidInput`.
        """
        names = self._perform(self._wire.names(), self._timeout)
        return [self.model(name) for name in names]

    def model(self, name: str) -> ModelInfo:
        """Return one model: its versions, inputs, outputs and, over HTTP, its card.

        Raises:
            UnknownModel: No such model.
            PetrovError: Any other but `InvalidInput`.
        """
        return self._describe(name, None, self._timeout)

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
            PetrovError: Any other of the tree in `petrov_client._values.exceptions`.
        """
        limit, options = (
            checked_timeout(self._timeout if timeout is None else timeout),
            Options(quality, tolerance, outside),
        )
        checked = self._checked_input(model, array, inputs, version, limit)
        output = PredictionOutput(checked)
        for piece, response in self._predictions(checked, version, limit, progress, options):
            output.put(piece, response)
        if output.outside and options.warns:
            warn(model)
        return (output.array(), output.quality()) if quality else output.array()

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
            PetrovError: Any other of the tree in `petrov_client._values.exceptions`, here or from the iterator.
        """
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        options = Options(tolerance=tolerance, outside=outside)
        checked = self._checked_input(model, array, inputs, version, limit)
        output = PredictionOutput(checked)
        parts = self._predictions(checked, version, limit, progress, options)
        return (output.checked(piece, response, warned=options.warns) for piece, response in parts)

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
            PetrovError: Any other of the tree in `petrov_client._values.exceptions`.
        """
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        rollouts = Rollouts(self._checked_input(model, array, inputs, version, limit), frames, quality, partial)
        whole = Trajectory(rollouts)
        for frame in self._frames(rollouts, version, limit, progress):
            whole.add(frame)
        rollouts.warn()
        if whole.outside and not quality:
            warn(model)
        return (whole.array(), whole.quality()) if quality else whole.array()

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
            PetrovError: Any other of the tree in `petrov_client._values.exceptions`, here or from the iterator.
        """
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        checked = self._checked_input(model, array, inputs, version, limit)
        rollouts = Rollouts(checked, frames, quality, partial, earlier)
        return self._shown(rollouts, self._frames(rollouts, version, limit, progress))

    @staticmethod
    def _shown(rollouts: Rollouts, frames: Generator[Response]) -> Iterator[Any]:
        with closing(frames):
            for frame in frames:
                yield rollouts.shown(frame)
        rollouts.warn()

    def _frames(
        self, rollouts: Rollouts, version: int | None, timeout: float, progress: Progress
    ) -> Generator[Response]:
        """Yield every frame of the whole batch."""
        name, total = rollouts.checked.info.name, rollouts.total
        with self._forget_on_refusal(), reporting(progress, name, total) as advance, ExitStack() as stack:
            streams = [
                stack.enter_context(closing(self._followed(piece, version, timeout))) for piece in rollouts.pieces
            ]
            try:
                if rollouts.done:
                    advance(rollouts.done)
                for responses in zip(*streams, strict=True):
                    yield rollouts.together(responses)
                    advance(1)
            except PetrovError as fault:
                rollouts.end(fault)

    def _followed(self, rollout: Rollout, version: int | None, timeout: float) -> Generator[Response | None]:
        """Yield the frames of some samples, in further requests where one breaks off or may not ask for all.

        Those that are missing because the model has failed on all of the samples are None.
        """
        attempts = Attempts(timeout)
        while rollout.left:
            call = self._wire.rollout(rollout.info, version, rollout.inputs, rollout.options())
            end = rollout.done + (rollout.options().frames or 0)
            try:
                with closing(self._receive(call.request, attempts.remaining())) as replies:
                    for reply in replies:
                        response = rollout.follow(call.read(reply))
                        attempts = Attempts(timeout)
                        yield response
                if rollout.done != end:
                    raise InvalidResponse(f"expected {end} frames but got {rollout.done}")
            except PetrovError as fault:
                if rollout.given_up(fault):
                    break
                time.sleep(attempts.pause_after(fault))
        while rollout.left:
            yield None
            rollout.done += 1

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
        return self._differentiate("vjp", model, (array, cotangents), version, timeout, progress)

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
        options = Options(frames=frames)
        return self._differentiate("jvp", model, (array, tangents), version, timeout, progress, options)

    def close(self) -> None:
        """Close the connections."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _checked_input(
        self, model: str, array: Any, named: Mapping[str, Any], version: int | None, timeout: float
    ) -> PredictionInput:
        with self._forget_on_refusal():
            info = self._known.get((model, version)) or self._describe(model, version, timeout)
            return check_input(info, array, named)

    def _differentiate(
        self,
        kind: Kind,
        model: str,
        arrays: tuple[Any, Any],
        version: int | None,
        timeout: float | None,
        progress: Progress,
        options: Options = PLAIN,
    ) -> tuple[Any, Any]:
        """Return the results of a product; see `vjp` and `jvp`.

        Args:
            kind: Which product.
            model: The model's name.
            arrays: Inputs and vectors as the caller passed them.
            version: As for `predict`.
            timeout: As for `predict`.
            progress: As for `predict`.
            options: What else a request asks for.
        """
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        with self._forget_on_refusal():
            product = Product(kind, self._known.get((model, version)) or self._describe(model, version, limit), *arrays)
            info = self._product(model, kind, version, limit)
        checked = check_input(info, product.arguments())
        output = PredictionOutput(checked)
        for piece, response in self._predictions(checked, version, limit, progress, options):
            output.put(piece, response)
        return product.results(output.array(), info, single=checked.single)

    def _product(self, model: str, kind: Kind, version: int | None, timeout: float) -> ModelInfo:
        name = name_of(model, kind)
        try:
            return self._known.get((name, version)) or self._describe(name, version, timeout)
        except UnknownModel:
            raise missing(model, kind) from None

    def _predictions(
        self, checked: PredictionInput, version: int | None, timeout: float, progress: Progress, options: Options
    ) -> Iterator[tuple[slice, Response]]:
        """Yield each piece of the input with its response, in order."""
        with self._forget_on_refusal(), reporting(progress, checked.info.name, len(checked)) as advance:
            for piece in checked.pieces():
                call = self._wire.prediction(checked.info, version, checked.arrays(piece), options)
                yield piece, self._perform(call, timeout)
                advance(piece.stop - piece.start)

    @contextmanager
    def _forget_on_refusal(self) -> Iterator[None]:
        """Forget the descriptions of models after a refusal: they may be out of date."""
        try:
            yield
        except RequestError:
            self._known.clear()
            raise

    def _describe(self, name: str, version: int | None, timeout: float) -> ModelInfo:
        info = self._follow(self._wire.model(checked_name(name), version), timeout)
        self._known[name, version] = info
        return info

    def _follow(self, flow: Flow[T], timeout: float) -> T:
        """Perform the calls of a flow, and return its result."""
        try:
            call = next(flow)
            while True:
                call = flow.send(self._perform(call, timeout))
        except StopIteration as end:
            result: T = end.value
            return result

    def _perform(self, call: Call[T], timeout: float) -> T:
        """Send one call, again where that is safe, and return its result."""
        attempts = Attempts(timeout)
        while True:
            try:
                return call.read(self._send(call.request, attempts.remaining()))
            except PetrovError as fault:
                time.sleep(attempts.pause_after(fault))

    def _send(self, request: Any, remaining: float) -> Any:
        raise NotImplementedError

    def _receive(self, request: Any, seconds: float) -> Generator[Any]:
        """Send a request and yield its replies as they arrive, each within so many seconds."""
        raise NotImplementedError


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
        self._gateway = over_http.HttpWire()
        super().__init__(self._gateway, timeout)
        self._url = over_http.checked_url(url)
        self._key = bearer(api_key)
        self._http = httpx2.Client(transport=transport, **over_http.settings(self._url, self._key))

    def __repr__(self) -> str:
        return shown("Client", over_http.address(self._url), self._key)

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
            PetrovError: Any other of the tree in `petrov_client._values.exceptions`.
        """
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        return self._perform(self._gateway.example(checked_name(model), query(index, seed, grid)), limit)

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
            PetrovError: Any other of the tree in `petrov_client._values.exceptions`.
        """
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        options = {"prior": prior, "forward": forward, "grid": grid, "modes": modes, "model_error": model_error}
        options |= {"iterations": iterations, "samples": samples, "seed": seed}
        name, body = checked_name(model), inversion.request(sensors, values, noise, options)
        job = self._perform(self._gateway.inversion(name, body), limit)
        wait = min(inversion.SHORT_WAIT if progress else inversion.WAIT, limit / 2)
        try:
            with reporting(progress, model, iterations or inversion.STEPS) as advance:
                return self._follow(inversion.watch(self._gateway, name, job, advance, wait), limit)
        finally:
            with inversion.quietly:
                self._perform(self._gateway.inversion_end(name, job), limit)

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
            PetrovError: Any other of the tree in `petrov_client._values.exceptions`.
        """
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        checked = self._checked_input(model, array, inputs, None, limit)
        output = PredictionOutput(checked)
        with reporting(progress, model, len(checked)) as advance:
            for piece in checked.singly():
                call = self._gateway.reference(checked.info, checked.arrays(piece))
                outputs = self._perform(call, limit)
                advance(output.put(piece, outputs))
        return output.array()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _send(self, request: over_http.HttpRequest, remaining: float) -> over_http.HttpReply:
        body = over_http.Body(time.monotonic() + remaining)
        try:
            with self._http.stream(**over_http.arguments(request, remaining)) as response:
                for chunk in response.iter_raw():
                    body.add(chunk)
                return body.reply(response)
        except httpx2.HTTPError as error:
            raise over_http.connection_fault(error, self._url) from error

    def _receive(self, request: over_http.HttpRequest, seconds: float) -> Generator[over_http.HttpReply]:
        try:
            with self._http.stream(**over_http.arguments(request, seconds)) as response:
                frames = over_http.FrameReplies(response, seconds)
                for chunk in response.iter_raw():
                    yield from frames.add(chunk)
                yield from frames.end()
        except httpx2.HTTPError as error:
            raise over_http.connection_fault(error, self._url) from error
