"""Every operation of the clients, written once: which calls, in which order, and what becomes of the replies.

The wire formats (`_http`, `_grpc_client`) make the calls, the drivers (`_flow`) perform them.
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
from petrov_client._flow import Attempts, Item, Next, Pause, Receive, Start, Wait, Work, perform, reporting
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
    from petrov_client._quality import Response
    from petrov_client._rollout import Rollout

Kind = Literal["vjp", "jvp"]
#: How the names of the arguments and results of a derivative begin.
GRADIENTS, COTANGENTS, TANGENTS = "gradients.", "cotangents.", "tangents."
PER_FIELD = ("batch", "value")


@dataclass(frozen=True)
class Job:
    """What a caller passes to an operation on arrays.

    Attributes:
        model: The model's name.
        array: The inputs without a name, or by name.
        named: Inputs and parameters by name.
        version: A version of the model; the newest if None.
        timeout: Seconds for each request, its repetitions included.
        progress: True for a progress bar, or a function of (fields done, fields in all).
        options: What is wanted besides the outputs.
    """

    model: str
    array: Any
    named: Mapping[str, Any]
    version: int | None
    timeout: float
    progress: Progress
    options: Options = PLAIN


@dataclass
class Operations:
    """The operations of a client.

    Attributes:
        wire: Makes the calls.
        in_flight: Requests of one batch in flight at a time.
        known: Models that have been described, by name and version.
    """

    wire: HttpWire | GrpcWire
    in_flight: int
    known: dict[tuple[str, int | None], ModelInfo] = field(default_factory=dict)

    def models(self, timeout: float) -> Flow[list[ModelInfo]]:
        """Return all models that are ready."""
        found = []
        for name in (yield from perform(self.wire.names(), timeout)):
            found.append((yield from self.model(name, None, timeout)))  # noqa: PERF401  it yields
        return found

    def model(self, name: str, version: int | None, timeout: float) -> Flow[ModelInfo]:
        """Return one model, described anew."""
        info = yield from self.wire.model(checked_name(name), version, timeout)
        self.known[name, version] = info
        return info

    def checked(self, job: Job) -> Flow[PredictionInput]:
        """Return the input of a job, all of it checked before anything is sent."""
        with self._forgetting():
            info = yield from self._known(job.model, job)
            checked: PredictionInput = yield Work(lambda: check_input(info, job.array, job.named))  # may take seconds
            return checked

    def predict(self, job: Job) -> Flow[Any]:
        """Return the outputs of a batch, with their quality if that is wanted."""
        checked = yield from self.checked(job)
        output = PredictionOutput(checked)
        yield from self._pieces(checked, job, output.put)
        if output.outside and job.options.warns:
            warn(job.model)
        return (output.array(), output.quality()) if job.options.quality else output.array()

    def stream(self, checked: PredictionInput, job: Job) -> Flow[None]:
        """Produce the outputs of a batch in order, piece by piece."""
        output = PredictionOutput(checked)
        yield from self._pieces(
            checked, job, lambda piece, response: Item(output.checked(piece, response, warned=job.options.warns))
        )

    def reference(self, job: Job) -> Flow[Any]:
        """Return the classical solutions, field by field."""
        checked = yield from self.checked(job)
        output = PredictionOutput(checked)

        def call(arrays: Arrays) -> Call[Response]:
            return self._http.reference(checked.info, arrays)

        yield from self._ordered(checked, job, checked.pieces(1), call, output.put, in_flight=1)
        return output.array()

    def derivative(self, kind: Kind, job: Job, vectors: Any) -> Flow[tuple[Any, Any]]:
        """Return outputs, and the product of the model's Jacobian with vectors.

        A service has each product as a model of its own, `darcy_vjp` and `darcy_jvp`. It takes the model's inputs and
        `cotangents.solution` or `tangents.coefficient`, and returns its outputs and `gradients.coefficient` or
        `tangents.solution`.
        """
        with self._forgetting():
            model = yield from self._known(job.model, job)
            arguments = _arguments(kind, model, job.array, vectors)
            try:
                info = yield from self._known(f"{job.model}_{kind}", job)
            except UnknownModel:
                raise RequestError(f'"{job.model}" has no {kind}: it was exported without derivatives') from None
            checked = yield Work(lambda: check_input(info, arguments))
        output = PredictionOutput(checked)
        yield from self._pieces(checked, job, output.put)
        numbers, shape = {each.name for each in info.outputs if each.axes == PER_FIELD}, () if checked.single else (-1,)
        found = {name: np.reshape(array, shape) if name in numbers else array for name, array in output.array().items()}
        outputs = unwrapped({tensor.name: found[tensor.name] for tensor in model.outputs})
        role = GRADIENTS if kind == "vjp" else TANGENTS
        products = {name.removeprefix(role): array for name, array in found.items() if name.startswith(role)}
        if kind == "jvp":
            return outputs, unwrapped(products)
        if isinstance(job.array, Mapping):
            return outputs, {name: products[name] for name in job.array}
        return outputs, products[model.first_name]

    def rollout(self, job: Job, frames: int | None) -> Flow[Any]:
        """Return whole trajectories, with their quality if that is wanted."""
        rollouts = Rollouts((yield from self.checked(job)), job.options, frames)
        whole = Trajectory(rollouts)
        yield from self._frames(rollouts, job, whole.add)
        rollouts.warn()
        if whole.outside and not job.options.quality:
            warn(job.model)
        return (whole.array(), whole.quality()) if job.options.quality else whole.array()

    def rollout_stream(self, rollouts: Rollouts, job: Job) -> Flow[None]:
        """Produce the frames of trajectories as they arrive."""
        yield from self._frames(rollouts, job, lambda frame: Item(rollouts.shown(frame)))
        rollouts.warn()

    def example(
        self, model: str, index: int | None, seed: int | None, grid: int | None, timeout: float
    ) -> Flow[Example]:
        """Return a stored test sample, or a new one.

        Raises:
            ValueError: Both are requested at once.
        """
        if index is not None and (seed is not None or grid is not None):
            raise ValueError("expected the index of a stored sample, or seed and grid of a new one, but got both")
        query = {name: each for name, each in (("index", index), ("seed", seed), ("grid", grid)) if each is not None}
        return (yield from perform(self._http.example(checked_name(model), query), timeout))

    def invert(self, model: str, body: Mapping[str, Any], timeout: float, progress: Progress) -> Flow[Inversion]:
        """Return what measurements say about an input; the job is ended whatever ends the wait for it."""
        wire, name = self._http, checked_name(model)
        job = yield from perform(wire.inversion(name, body, str(uuid.uuid4())), timeout)
        wait = min(inversion.SHORT_WAIT if progress else inversion.WAIT, timeout / 2)
        try:
            with reporting(progress, model, body.get("iterations") or inversion.STEPS) as advance:
                found, steps = inversion.Status(), 0
                while found.state in inversion.PENDING:
                    found = yield from perform(wire.inversion_status(name, job, wait), timeout)
                    advance(found.iterations - steps)
                    steps = found.iterations
                return (yield from perform(wire.inversion_result(name, job, found), timeout))
        finally:
            with suppress(PetrovError):
                yield from perform(wire.inversion_end(name, job), timeout)

    @property
    def _http(self) -> HttpWire:
        wire: Any = self.wire  # only the clients over HTTP have the operations that use it
        return wire  # type: ignore[no-any-return]

    def _known(self, name: str, job: Job) -> Flow[ModelInfo]:
        if known := self.known.get((name, job.version)):
            return known
        return (yield from self.model(name, job.version, job.timeout))

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Forget the descriptions of models after a refusal: they may be out of date."""
        try:
            yield
        except RequestError:
            self.known.clear()
            raise

    def _pieces(self, checked: PredictionInput, job: Job, each: Callable[[slice, Response], Item | None]) -> Flow[None]:
        """Send a batch to the model in pieces."""

        def call(arrays: Arrays) -> Call[Response]:
            return self.wire.prediction(checked.info, job.version, arrays, job.options)

        yield from self._ordered(checked, job, checked.pieces(), call, each, self.in_flight)

    def _ordered(
        self,
        checked: PredictionInput,
        job: Job,
        pieces: Iterable[slice],
        call: Callable[[Arrays], Call[Response]],
        each: Callable[[slice, Response], Item | None],
        in_flight: int,
    ) -> Flow[None]:
        """Send pieces of a batch, a few at a time, and pass each with its response to a function, in order."""
        waiting: deque[tuple[slice, Any]] = deque()
        with self._forgetting(), reporting(job.progress, checked.info.name, len(checked)) as advance:

            def settle() -> Flow[None]:
                piece, started = waiting.popleft()
                item = each(piece, (yield Wait(started)))
                if item is not None:
                    yield item
                advance(piece.stop - piece.start)

            for piece in pieces:
                waiting.append((piece, (yield Start(perform(call(checked.arrays(piece)), job.timeout)))))
                if len(waiting) == in_flight:
                    yield from settle()
            while waiting:
                yield from settle()

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


def _arguments(kind: Kind, model: ModelInfo, array: Any, vectors: Any) -> dict[str, Any]:
    """Return the arguments of a product by name.

    Raises:
        InvalidInput: There is no cotangent or tangent, or an array without a name for several outputs.
    """
    role = COTANGENTS if kind == "vjp" else TANGENTS
    inputs = array if isinstance(array, Mapping) else {model.first_name: array}
    if not isinstance(vectors, Mapping):
        if kind == "vjp" and len(model.outputs) > 1:
            names = ", ".join(tensor.name for tensor in model.outputs)
            raise InvalidInput(f"expected cotangents by name, of {names}, but got one array", where=Where("cotangents"))
        vectors = {model.first_name if kind == "jvp" else model.outputs[0].name: vectors}
    if not vectors:
        raise InvalidInput(f"expected {role[:-1]} but got none", where=Where(role[:-1]))
    return {**inputs, **{f"{role}{name}": vector for name, vector in vectors.items()}}
