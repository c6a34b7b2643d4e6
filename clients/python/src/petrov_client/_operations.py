"""Every operation of the clients, written once and without I/O: its arguments, its calls, what becomes of the replies.

The clients perform a method of `Operations`, with an event loop or without (`_flow`), and show its parameters and
documentation as their own. The wire formats (`_http`, `_grpc_client`) make the calls.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import numpy as np

from petrov_client import _inversion as inversion
from petrov_client._arrays import Arrays, PredictionInput, PredictionOutput, check_input
from petrov_client._errors import InvalidInput, InvalidResponse, PetrovError, RequestError, UnknownModel, Where
from petrov_client._flow import AsyncDriver, Attempts, Call, Progress, SyncDriver, checked_timeout, reporting
from petrov_client._inversion import Inversion
from petrov_client._models import COTANGENTS, GRADIENTS, PER_FIELD, TANGENTS, Example, ModelInfo, Models, checked_name
from petrov_client._quality import Options, Outside, Quality, Response, warn
from petrov_client._rollout import Rollout, Rollouts, Trajectory, unwrapped

if TYPE_CHECKING:
    from petrov_client._grpc_client import GrpcWire
    from petrov_client._http import HttpWire


T = TypeVar("T")


@dataclass
class Operations:
    """The operations of all clients."""

    wire: HttpWire | GrpcWire
    driver: SyncDriver | AsyncDriver
    timeout: float  # seconds for each request by default
    known: dict[tuple[str, int | None], ModelInfo] = field(default_factory=dict)  # by name and version

    def __post_init__(self) -> None:
        checked_timeout(self.timeout)

    async def models(self) -> Models:
        """Return all models that are ready.

        Raises:
            PetrovError: Any but `InvalidInput`.
        """
        return Models([await self.model(name) for name in await self.perform(self.wire.names(), self.timeout)])

    async def model(self, name: str) -> ModelInfo:
        """Return one model: its versions, inputs, outputs and, over HTTP, its card.

        Raises:
            UnknownModel: No such model.
            PetrovError: Any other but `InvalidInput`.
        """
        self.known.pop((name, None), None)  # it is described anew
        return await self._known(name, self._options(None))

    @overload
    async def predict(
        self,
        /,
        model: str,
        array: Any = None,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        *,
        quality: Literal[True],
        tolerance: float | None = None,
        outside: Outside = "answer",
        **inputs: Any,
    ) -> tuple[Any, Quality]: ...

    @overload
    async def predict(
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
    ) -> Any: ...

    async def predict(
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
    ) -> Any:
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
        options = self._options(
            timeout, version=version, progress=progress, quality=quality, tolerance=tolerance, outside=outside
        )
        checked = await self._checked(options, model, array, inputs)
        output = PredictionOutput(checked)
        await _exhausted(self._pieces(checked, options, output.put))
        if output.doubtful and options.warns:
            warn(model)
        return (output.array(), output.quality()) if quality else output.array()

    async def stream(
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
    ) -> AsyncGenerator[Any]:
        """Predict as `predict` does, and yield the outputs as they arrive, so that memory holds one piece of the batch.

        The arguments are those of `predict`; a memory map or an HDF5 dataset stays on disk. The inputs are checked as a
        whole before this returns; a piece is sent when the iterator is advanced. An asynchronous client does both
        then, and has at most four pieces in flight or waiting to be consumed: use `async with contextlib.aclosing(…)`
        where the loop may end early.

        Returns:
            Batches `[fields, …]` of consecutive outputs, in order; together they are what `predict` returns.

        Raises:
            InvalidInput: The inputs do not fit the model; `.where` names the location.
            PetrovError: Any other of the tree in `petrov_client._errors`, here or from the iterator.
        """
        options = self._options(timeout, version=version, progress=progress, tolerance=tolerance, outside=outside)
        checked = await self._checked(options, model, array, inputs)
        output = PredictionOutput(checked)
        return self._pieces(
            checked, options, lambda piece, response: output.checked(piece, response, warned=options.warns)
        )

    async def rollout(
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
        options = self._options(timeout, version=version, progress=progress, quality=quality, partial=partial)
        rollouts = Rollouts(await self._checked(options, model, array, inputs), options, frames)
        whole = Trajectory(rollouts)
        await _exhausted(self._frames(rollouts, options, whole.add))
        if whole.doubtful and not quality:
            warn(model)
        return (whole.array(), whole.quality()) if quality else whole.array()

    async def rollout_stream(
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
    ) -> AsyncGenerator[Any]:
        """Roll out as `rollout` does, and yield every frame as it arrives.

            for vorticity in petrov.rollout_stream("flow", vorticity, frames=10_000): …

        The arguments are those of `rollout`, and `earlier`: the first of the frames, as an iterator of an earlier call
        without `quality` has yielded them. This one goes on behind them, and computes none of them again.

        The service computes a few frames ahead. It stops when the iterator is closed, or the loop over it ends early;
        for an asynchronous client use `async with contextlib.aclosing(…)` there.

        Returns:
            Frames `[(batch), (component), *grid]`, in order; with `quality`, pairs of a frame and a `Quality`.

        Raises:
            InvalidInput: The inputs do not fit the model, or it computes no trajectories.
            PetrovError: Any other of the tree in `petrov_client._errors`, here or from the iterator.
        """
        options = self._options(timeout, version=version, progress=progress, quality=quality, partial=partial)
        rollouts = Rollouts(await self._checked(options, model, array, inputs), options, frames, earlier)
        return self._frames(rollouts, options, rollouts.shown)

    async def vjp(
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

        The cotangents, by output and in its shape, are the gradient of a loss by the outputs: an array, or a mapping by
        name where there are several outputs; one that is left out is 0. The other arguments are those of `predict`,
        with the inputs as an array, or as a mapping of inputs and parameters by name.

        Returns:
            The outputs as `predict` returns them, and the gradients: an array for inputs without names, else by the
            names of what was passed. The gradient by a parameter is one number per field.

        Raises:
            RequestError: The model has no derivatives.
            PetrovError: As `predict`.
        """
        options = self._options(timeout, version=version, progress=progress)
        first, outputs, gradients = await self._derivative("vjp", options, model, array, cotangents)
        passed = {name: gradients[name] for name in array} if isinstance(array, Mapping) else gradients[first]
        return outputs, passed

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
        """Return the outputs, and their derivatives along tangents.

            pressure, tangent = petrov.jvp("darcy", permeability, direction)

        The tangents, by input and in its shape, are an array, or a mapping of inputs and parameters by name; one that
        is left out is 0. `frames` of a trajectory are at most 16, by default those of a training trajectory. The other
        arguments are those of `vjp`.

        Returns:
            The outputs, and their tangents, each as `predict` returns outputs.

        Raises:
            RequestError: The model has no derivatives.
            PetrovError: As `predict`.
        """
        options = self._options(timeout, version=version, progress=progress, frames=frames)
        _, outputs, along = await self._derivative("jvp", options, model, array, tangents)
        return outputs, unwrapped(along)

    async def once(self, call: Call[T], seconds: float) -> T:
        """Send a call once, and return its result."""
        async with aclosing(self.driver.receive(call.request, seconds)) as replies:
            reply = await anext(replies)
        return call.read(reply)

    async def perform(self, call: Call[T], seconds: float) -> T:
        """Send a call, again where that is safe, and return its result."""
        attempts = Attempts(seconds)
        while True:
            try:
                return await self.once(call, attempts.remaining())
            except PetrovError as fault:
                await self.driver.pause(attempts.pause_after(fault))

    def _options(self, timeout: float | None, **wanted: Any) -> Options:
        for name, number in (
            ("timeout", timeout),
            ("version", wanted.get("version")),
            ("frames", wanted.get("frames")),
        ):
            if not isinstance(number, Real | None) or isinstance(number, bool):
                raise InvalidInput(
                    f"{name}: expected a number but got {type(number).__name__}; a second input is passed by its name, "
                    'such as predict("heat", conductivity=k, source=f)'
                )
        return Options(timeout=checked_timeout(self.timeout if timeout is None else timeout), **wanted)

    async def _known(self, name: str, options: Options) -> ModelInfo:
        """Return a model as it has been described before, or is now."""
        info = self.known.get((name, options.version))
        if info is None:
            perform = partial(self.perform, seconds=options.timeout)
            try:
                info = await self.wire.model(checked_name(name), options.version, perform)
            except UnknownModel as fault:
                raise await self._with_advice(fault, name, options) from None
            self.known[name, options.version] = info
        return info

    async def _with_advice(self, fault: UnknownModel, name: str, options: Options) -> UnknownModel:
        """Return the refusal of a model with the names that may be meant, if the service lists them."""
        try:
            known: list[str] = await self.perform(self.wire.names(), options.timeout)
        except PetrovError:
            return fault
        if name in known or (name.rpartition("_")[0] in known and name.endswith(("_vjp", "_jvp"))):
            return fault  # another version, or derivatives that there are none of
        names = sorted(each for each in known if not any(each.startswith(f"{other}_") for other in known))
        close = get_close_matches(name, names, 3)
        text = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names) or 'none'}"
        return UnknownModel(f'there is no model "{name[:64]}": {text}', problem=fault.problem)

    async def _checked(self, options: Options, model: str, array: Any, named: Mapping[str, Any]) -> PredictionInput:
        """Return the input of a model, all of it checked before anything is sent."""
        with self._forgetting():
            info = await self._known(model, options)
            return await self.driver.work(lambda: check_input(info, array, named))

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Forget the descriptions of models after a refusal: they may be out of date."""
        try:
            yield
        except RequestError:
            self.known.clear()
            raise

    async def _pieces(
        self,
        checked: PredictionInput,
        options: Options,
        each: Callable[[slice, Response], Any],
        call: Callable[[Arrays], Call[Response]] | None = None,
    ) -> AsyncGenerator[Any]:
        """Send a batch in pieces, a few at a time, and yield what `each` makes of each and its response, in order.

        `call` makes the request of one field, instead of a prediction of several; it is sent alone.
        """
        pieces, in_flight = (checked.pieces(), self.driver.in_flight) if call is None else (checked.pieces(1), 1)
        call = call or (lambda arrays: self.wire.prediction(checked.info, arrays, options))
        waiting: deque[tuple[slice, Any]] = deque()
        with self._forgetting(), reporting(options.progress, checked.info.name, len(checked)) as advance:
            try:
                for piece in (*pieces, *[None] * in_flight):  # None only waits for one that is in flight
                    if piece is not None:
                        sent = self.perform(call(checked.arrays(piece)), options.timeout)
                        waiting.append((piece, self.driver.start(sent)))
                    if waiting and (piece is None or len(waiting) == in_flight):
                        first, started = waiting.popleft()
                        yield each(first, await started)
                        advance(first.stop - first.start)
            finally:
                await self.driver.cancel([started for _, started in waiting])

    async def _derivative(
        self, kind: Literal["vjp", "jvp"], options: Options, model: str, array: Any, vectors: Any
    ) -> tuple[str, Any, dict[str, Any]]:
        """Return the name of the first input, the outputs, and by name the model's Jacobian times vectors.

        A service has each product as a model of its own, `darcy_vjp` and `darcy_jvp`. It takes the model's inputs and
        `cotangents.solution` or `tangents.coefficient`, and returns its outputs and `gradients.coefficient` or
        `tangents.solution`.
        """
        passed, returned = (COTANGENTS, GRADIENTS) if kind == "vjp" else (TANGENTS, TANGENTS)
        with self._forgetting():
            info = await self._known(model, options)
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
                product = await self._known(f"{model}_{kind}", options)
            except UnknownModel:
                raise RequestError(f'"{model}" has no {kind}: it was exported without derivatives') from None
            checked = await self.driver.work(lambda: check_input(product, arguments))
        output = PredictionOutput(checked)
        await _exhausted(self._pieces(checked, options, output.put))
        found = output.array()
        for tensor in product.outputs:
            if tensor.axes == PER_FIELD and tensor.name in found:  # the gradient by a parameter
                found[tensor.name] = np.reshape(found[tensor.name], () if checked.single else (-1,))
        outputs = unwrapped({tensor.name: found[tensor.name] for tensor in info.outputs})
        products = {name.removeprefix(returned): each for name, each in found.items() if name.startswith(returned)}
        return info.first_name, outputs, products

    async def _frames(
        self, rollouts: Rollouts, options: Options, each: Callable[[Response], Any]
    ) -> AsyncGenerator[Any]:
        """Yield what `each` makes of every frame of the whole batch."""
        name, total = rollouts.checked.info.name, rollouts.total
        async with AsyncExitStack() as stack:
            advance = stack.enter_context(reporting(options.progress, name, total))
            stack.enter_context(self._forgetting())
            try:
                if rollouts.done:
                    advance(rollouts.done)
                for _ in range(total - rollouts.done):
                    parts = [await self._next_frame(piece, options, stack) for piece in rollouts.pieces]
                    yield each(rollouts.together(parts))
                    advance(1)
            except PetrovError as fault:
                rollouts.end(fault)
        rollouts.warn()

    async def _next_frame(self, piece: Rollout, options: Options, stack: AsyncExitStack) -> Response | None:
        """Return the next frame of some samples, from a further request where one breaks off or may not ask for all.

        It is None where the model has failed on all of the samples. The stack closes the responses.
        """
        attempts = Attempts(options.timeout)
        while piece.fault is None:
            try:
                if piece.stream is None:
                    call = self.wire.rollout(piece.info, piece.inputs, wanted := piece.options())
                    opened = aclosing(self.driver.receive(call.request, attempts.remaining()))
                    replies = await stack.enter_async_context(opened)
                    piece.stream = replies, call.read, piece.done + (wanted.frames or 0)
                replies, read, end = piece.stream
                reply = await anext(replies, None)
                if reply is None:
                    raise InvalidResponse(f"expected {end} frames but got {piece.done}")
                response = piece.follow(read(reply))
                if piece.done == end:
                    piece.stream = None
                    extra = None
                    with suppress(PetrovError):  # all frames have arrived
                        extra = await anext(replies, None)
                    if extra is not None:
                        raise InvalidResponse(f"expected {end} frames but got more")
                return response  # noqa: TRY300  the last statement of what is tried
            except PetrovError as fault:
                piece.stream = None
                if not piece.given_up(fault):
                    await self.driver.pause(attempts.pause_after(fault))
        return None


async def _exhausted(items: AsyncGenerator[Any]) -> None:
    async for _ in items:
        pass


@dataclass
class HttpOperations(Operations):
    """The operations of the clients over HTTP."""

    wire: HttpWire

    async def example(
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
        if index is not None and (seed is not None or grid is not None):
            raise ValueError("expected the index of a stored sample, or seed and grid of a new one, but got both")
        query = {name: each for name, each in (("index", index), ("seed", seed), ("grid", grid)) if each is not None}
        call = self.wire.example(checked_name(model), query)
        return await self.perform(call, self._options(timeout).timeout)

    async def reference(
        self,
        /,
        model: str,
        array: Any = None,
        timeout: float | None = None,
        progress: Progress = False,
        **inputs: Any,
    ) -> Any:
        """Return the classical solutions for the inputs of `predict`, field by field, each within `timeout` seconds.

        Raises:
            RequestError: The model has no classical solver.
            PetrovError: Any other of the tree in `petrov_client._errors`.
        """
        options = self._options(timeout, progress=progress)
        checked = await self._checked(options, model, array, inputs)
        output = PredictionOutput(checked)
        call = partial(self.wire.reference, checked.info)
        await _exhausted(self._pieces(checked, options, output.put, call))
        return output.array()

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
        seconds = self._options(timeout).timeout
        job = await self.perform(self.wire.inversion(name, body, str(uuid.uuid4())), seconds)
        wait = min(inversion.SHORT_WAIT if progress else inversion.WAIT, seconds / 2)
        try:
            with reporting(progress, model, iterations or inversion.STEPS) as advance:
                found, steps = inversion.Status(), 0
                while found.state in inversion.PENDING:
                    found = await self.perform(self.wire.inversion_status(name, job, wait), seconds)
                    advance(found.iterations - steps)
                    steps = found.iterations
                return await self.perform(self.wire.inversion_result(name, job, found), seconds)
        finally:
            with suppress(PetrovError):
                await self.perform(self.wire.inversion_end(name, job), seconds)
