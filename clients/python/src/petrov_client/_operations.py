"""Every operation of the clients, written once and without I/O: its arguments, its calls, what becomes of the replies.

A method of `Operations` is a flow (`_flow`). The clients perform it, with and without `await`, and show its parameters
and documentation as their own. The wire formats (`_http`, `_grpc_client`) make the calls.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from petrov_client import _inversion as inversion
from petrov_client._arrays import PredictionOutput, check_input
from petrov_client._errors import InvalidInput, InvalidResponse, PetrovError, RequestError, UnknownModel, Where
from petrov_client._flow import (
    Attempts,
    Item,
    Next,
    Pause,
    Receive,
    Start,
    Wait,
    Work,
    checked_timeout,
    perform,
    reporting,
)
from petrov_client._models import checked_name
from petrov_client._quality import PLAIN, Options, warn
from petrov_client._rollout import Rollouts, Trajectory, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from petrov_client._arrays import Arrays, PredictionInput
    from petrov_client._flow import Call, Flow, Progress
    from petrov_client._grpc_client import GrpcWire
    from petrov_client._http import HttpWire
    from petrov_client._inversion import Inversion
    from petrov_client._models import Example, ModelInfo
    from petrov_client._quality import Outside, Response
    from petrov_client._rollout import Rollout

#: How the names of the arguments and results of a derivative begin.
GRADIENTS, COTANGENTS, TANGENTS = "gradients.", "cotangents.", "tangents."
PER_FIELD = ("batch", "value")


@dataclass(frozen=True)
class Job:
    """How the requests of one call are sent.

    Attributes:
        version: A version of the model; the newest if None.
        timeout: Seconds for each request, its repetitions included.
        progress: True for a progress bar, or a function of (fields done, fields in all).
        options: What is wanted besides the outputs.
    """

    version: int | None
    timeout: float
    progress: Progress
    options: Options = PLAIN


@dataclass
class Operations:
    """The operations of all clients.

    Attributes:
        wire: Makes the calls.
        in_flight: Requests of one batch in flight at a time.
        timeout: Seconds for each request by default.
        known: Models that have been described, by name and version.
    """

    wire: HttpWire | GrpcWire
    in_flight: int
    timeout: float
    known: dict[tuple[str, int | None], ModelInfo] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_timeout(self.timeout)

    def models(self) -> Flow[list[ModelInfo]]:
        """Return all models that are ready.

        Raises:
            PetrovError: Any but `InvalidInput`.
        """
        found = []
        for name in (yield from perform(self.wire.names(), self.timeout)):
            found.append((yield from self.model(name)))  # noqa: PERF401  it yields
        return found

    def model(self, name: str) -> Flow[ModelInfo]:
        """Return one model: its versions, inputs, outputs and, over HTTP, its card.

        Raises:
            UnknownModel: No such model.
            PetrovError: Any other but `InvalidInput`.
        """
        return (yield from self._described(name, None, self.timeout))

    def predict(
        self,
        /,
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
    ) -> Flow[Any]:
        """Predict the outputs for single fields or for a batch of any size.

        The inputs are checked as a whole before anything is sent, then sent in pieces: one after another, or four at a
        time by an asynchronous client.

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
            tolerance: The largest error bound. A field with a larger one is computed again without corrections, then by
                the classical solver, and refused where neither meets it; None accepts any.
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
        job = self._job(version, timeout, progress, Options(quality, tolerance, outside))
        checked = yield from self._checked(job, model, array, inputs)
        output = PredictionOutput(checked)
        yield from self._pieces(checked, job, output.put)
        if output.outside and job.options.warns:
            warn(model)
        return (output.array(), output.quality()) if quality else output.array()

    def stream(
        self,
        /,
        model: str,
        array: Any = None,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        *,
        tolerance: float | None = None,
        outside: Outside = "answer",
        **inputs: Any,
    ) -> Flow[Flow[None]]:
        """Predict as `predict` does, and yield the outputs as they arrive, so that memory holds one piece of the batch.

        The inputs are checked as a whole before this returns; a piece is sent when the iterator is advanced. An
        asynchronous client does both then, and has at most four pieces in flight or waiting to be consumed: use
        `async with contextlib.aclosing(…)` where the loop may end early.

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
        job = self._job(version, timeout, progress, Options(tolerance=tolerance, outside=outside))
        checked = yield from self._checked(job, model, array, inputs)
        output = PredictionOutput(checked)
        return self._pieces(
            checked, job, lambda piece, response: Item(output.checked(piece, response, warned=job.options.warns))
        )

    def rollout(
        self,
        /,
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
    ) -> Flow[Any]:
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
        job = self._job(version, timeout, progress, Options(quality=quality, partial=partial))
        rollouts = Rollouts((yield from self._checked(job, model, array, inputs)), job.options, frames)
        whole = Trajectory(rollouts)
        yield from self._frames(rollouts, job, whole.add)
        if whole.outside and not quality:
            warn(model)
        return (whole.array(), whole.quality()) if quality else whole.array()

    def rollout_stream(
        self,
        /,
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
    ) -> Flow[Flow[None]]:
        """Roll out as `rollout` does, and yield every frame as it arrives.

            for vorticity in petrov.rollout_stream("flow", vorticity, frames=10_000): …

        The service computes a few frames ahead. It stops when the iterator is closed, or the loop over it ends early;
        for an asynchronous client use `async with contextlib.aclosing(…)` there.

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
        job = self._job(version, timeout, progress, Options(quality=quality, partial=partial))
        rollouts = Rollouts((yield from self._checked(job, model, array, inputs)), job.options, frames, earlier)
        return self._frames(rollouts, job, lambda frame: Item(rollouts.shown(frame)))

    def vjp(
        self,
        model: str,
        array: Any,
        cotangents: Any,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
    ) -> Flow[tuple[Any, Any]]:
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
        job = self._job(version, timeout, progress)
        first, outputs, gradients = yield from self._derivative("vjp", job, model, array, cotangents)
        passed = {name: gradients[name] for name in array} if isinstance(array, Mapping) else gradients[first]
        return outputs, passed

    def jvp(
        self,
        model: str,
        array: Any,
        tangents: Any,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        frames: int | None = None,
    ) -> Flow[tuple[Any, Any]]:
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
        job = self._job(version, timeout, progress, Options(frames=frames))
        _, outputs, along = yield from self._derivative("jvp", job, model, array, tangents)
        return outputs, unwrapped(along)

    def _job(
        self, version: int | None, timeout: float | None, progress: Progress = False, options: Options = PLAIN
    ) -> Job:
        return Job(version, checked_timeout(self.timeout if timeout is None else timeout), progress, options)

    def _described(self, name: str, version: int | None, timeout: float) -> Flow[ModelInfo]:
        """Return a model, described anew."""
        info = yield from self.wire.model(checked_name(name), version, timeout)
        self.known[name, version] = info
        return info

    def _known(self, name: str, job: Job) -> Flow[ModelInfo]:
        """Return a model as it has been described before, or is now."""
        return self.known.get((name, job.version)) or (yield from self._described(name, job.version, job.timeout))

    def _checked(self, job: Job, model: str, array: Any, named: Mapping[str, Any]) -> Flow[PredictionInput]:
        """Return the input of a model, all of it checked before anything is sent."""
        with self._forgetting():
            info = yield from self._known(model, job)
            checked: PredictionInput = yield Work(lambda: check_input(info, array, named))  # may take seconds
            return checked

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Forget the descriptions of models after a refusal: they may be out of date."""
        try:
            yield
        except RequestError:
            self.known.clear()
            raise

    def _pieces(
        self,
        checked: PredictionInput,
        job: Job,
        each: Callable[[slice, Response], Item | None],
        call: Callable[[Arrays], Call[Response]] | None = None,
    ) -> Flow[None]:
        """Send a batch in pieces, a few at a time, and pass each with its response to a function, in order.

        Args:
            checked: The batch.
            job: How.
            each: Is passed a piece and its response, and returns what is produced of it.
            call: Makes the request of one field, instead of a prediction of several; it is sent alone.
        """
        pieces, in_flight = (checked.pieces(), self.in_flight) if call is None else (checked.pieces(1), 1)
        waiting: deque[tuple[slice, Any]] = deque()
        with self._forgetting(), reporting(job.progress, checked.info.name, len(checked)) as advance:

            def settle() -> Flow[None]:
                piece, started = waiting.popleft()
                item = each(piece, (yield Wait(started)))
                if item is not None:
                    yield item
                advance(piece.stop - piece.start)

            for piece in pieces:
                arrays = checked.arrays(piece)
                sent = call(arrays) if call else self.wire.prediction(checked.info, job.version, arrays, job.options)
                waiting.append((piece, (yield Start(perform(sent, job.timeout)))))
                if len(waiting) == in_flight:
                    yield from settle()
            while waiting:
                yield from settle()

    def _derivative(
        self, kind: Literal["vjp", "jvp"], job: Job, model: str, array: Any, vectors: Any
    ) -> Flow[tuple[str, Any, dict[str, Any]]]:
        """Return the name of the first input, the outputs, and by name the model's Jacobian times vectors.

        A service has each product as a model of its own, `darcy_vjp` and `darcy_jvp`. It takes the model's inputs and
        `cotangents.solution` or `tangents.coefficient`, and returns its outputs and `gradients.coefficient` or
        `tangents.solution`.
        """
        passed, returned = (COTANGENTS, GRADIENTS) if kind == "vjp" else (TANGENTS, TANGENTS)
        with self._forgetting():
            info = yield from self._known(model, job)
            arguments = dict(array) if isinstance(array, Mapping) else {info.first_name: array}
            if not isinstance(vectors, Mapping):
                if kind == "vjp" and len(info.outputs) > 1:
                    names = ", ".join(tensor.name for tensor in info.outputs)
                    fault = f"expected cotangents by name, of {names}, but got one array"
                    raise InvalidInput(fault, where=Where("cotangents"))
                vectors = {info.first_name if kind == "jvp" else info.outputs[0].name: vectors}
            if not vectors:
                raise InvalidInput(f"expected {passed[:-1]} but got none", where=Where(passed[:-1]))
            arguments |= {f"{passed}{name}": vector for name, vector in vectors.items()}
            try:
                product = yield from self._known(f"{model}_{kind}", job)
            except UnknownModel:
                raise RequestError(f'"{model}" has no {kind}: it was exported without derivatives') from None
            checked = yield Work(lambda: check_input(product, arguments))
        output = PredictionOutput(checked)
        yield from self._pieces(checked, job, output.put)
        found = output.array()
        for tensor in product.outputs:
            if tensor.axes == PER_FIELD and tensor.name in found:  # the gradient by a parameter
                found[tensor.name] = np.reshape(found[tensor.name], () if checked.single else (-1,))
        outputs = unwrapped({tensor.name: found[tensor.name] for tensor in info.outputs})
        products = {name.removeprefix(returned): each for name, each in found.items() if name.startswith(returned)}
        return info.first_name, outputs, products

    def _frames(self, rollouts: Rollouts, job: Job, each: Callable[[Response], Item | None]) -> Flow[None]:
        """Pass every frame of the whole batch to a function."""
        name, total = rollouts.checked.info.name, rollouts.total
        with self._forgetting(), reporting(job.progress, name, total) as advance:
            try:
                if rollouts.done:
                    advance(rollouts.done)
                for _ in range(total - rollouts.done):
                    parts = []
                    for piece in rollouts.pieces:
                        parts.append((yield from self._next_frame(piece, job)))  # noqa: PERF401  as above
                    item = each(rollouts.together(parts))
                    if item is not None:
                        yield item
                    advance(1)
            except PetrovError as fault:
                rollouts.end(fault)
        rollouts.warn()

    def _next_frame(self, piece: Rollout, job: Job) -> Flow[Response | None]:
        """Return the next frame of some samples, from a further request where one breaks off or may not ask for all.

        It is None where the model has failed on all of the samples.
        """
        attempts = Attempts(job.timeout)
        while piece.fault is None:
            try:
                if piece.stream is None:
                    options = piece.options()
                    call = self.wire.rollout(piece.info, job.version, piece.inputs, options)
                    replies = yield Receive(call.request, attempts.remaining())
                    piece.stream = replies, call.read, piece.done + (options.frames or 0)
                replies, read, end = piece.stream
                reply = yield Next(replies)
                if reply is None:
                    raise InvalidResponse(f"expected {end} frames but got {piece.done}")
                response = piece.follow(read(reply))
                if piece.done == end:
                    piece.stream = None
                    extra = None
                    with suppress(PetrovError):  # all frames have arrived
                        extra = yield Next(replies)
                    if extra is not None:
                        raise InvalidResponse(f"expected {end} frames but got more")
                return response  # noqa: TRY300  the last statement of what is tried
            except PetrovError as fault:
                piece.stream = None
                if not piece.given_up(fault):
                    yield Pause(attempts.pause_after(fault))
        return None


@dataclass
class HttpOperations(Operations):
    """The operations of the clients over HTTP."""

    wire: HttpWire

    def example(
        self,
        model: str,
        index: int | None = None,
        *,
        seed: int | None = None,
        grid: int | None = None,
        timeout: float | None = None,
    ) -> Flow[Example]:
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
        if index is not None and (seed is not None or grid is not None):
            raise ValueError("expected the index of a stored sample, or seed and grid of a new one, but got both")
        query = {name: each for name, each in (("index", index), ("seed", seed), ("grid", grid)) if each is not None}
        job = self._job(None, timeout)
        return (yield from perform(self.wire.example(checked_name(model), query), job.timeout))

    def reference(
        self,
        /,
        model: str,
        array: Any = None,
        timeout: float | None = None,
        progress: Progress = False,
        **inputs: Any,
    ) -> Flow[Any]:
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
        job = self._job(None, timeout, progress)
        checked = yield from self._checked(job, model, array, inputs)
        output = PredictionOutput(checked)
        yield from self._pieces(checked, job, output.put, lambda arrays: self.wire.reference(checked.info, arrays))
        return output.array()

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
    ) -> Flow[Inversion]:
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
        body, name = inversion.request(sensors, values, noise, options), checked_name(model)
        seconds = self._job(None, timeout).timeout
        job = yield from perform(self.wire.inversion(name, body, str(uuid.uuid4())), seconds)
        wait = min(inversion.SHORT_WAIT if progress else inversion.WAIT, seconds / 2)
        try:
            with reporting(progress, model, iterations or inversion.STEPS) as advance:
                found, steps = inversion.Status(), 0
                while found.state in inversion.PENDING:
                    found = yield from perform(self.wire.inversion_status(name, job, wait), seconds)
                    advance(found.iterations - steps)
                    steps = found.iterations
                return (yield from perform(self.wire.inversion_result(name, job, found), seconds))
        finally:
            with suppress(PetrovError):
                yield from perform(self.wire.inversion_end(name, job), seconds)
