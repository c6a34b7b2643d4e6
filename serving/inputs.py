"""What a request brings: from the bytes of its body to checked inputs that are counted and paid for.

A body is an `Exchange`, of some wire format or in memory (`Arrays`); what is wanted beside it is a `Prediction`. Memory
is counted before it is taken: copies of what is sent in another type, padding, what follows from cells, and outputs.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from schema.card import CELLS, FRAME, Card
from serving import cells, checks, padding
from serving.classical import ClassicalSolvers
from serving.errors import Problem
from serving.frames import PIECE, frames_argument, sent_frames
from serving.limits import Caller, Ticket
from serving.observe import Metrics
from serving.quality import ANY, Policy, Quality
from serving.settings import Settings
from serving.triton import Batch, Run

Result = TypeVar("Result")
Written_co = TypeVar("Written_co", covariant=True)
#: Bytes of text per byte of float32: a number and its comma have up to 14, and their buffer grows by an eighth.
TEXT_GROWTH = 4.0
SOLVER_COST = 8  # of a classical solution, in samples
_LARGE_BYTES = 2**17  # some milliseconds of JSON; a thread costs a tenth of one
#: Decoding and encoding hold the interpreter, piece by piece: more threads would make the event loop wait for more.
_CODERS = ThreadPoolExecutor(2, "coder")


class Exchange(Protocol[Written_co]):
    """A body in some wire format, and the writer of its response.

    Attributes:
        size: Bytes of the body, and of the copies of it that are kept.
        growth: Bytes that writing the response takes per byte of the outputs.
        frames: Frames of a trajectory that the body asks for, known after `read`; None where it does not say.
        grid: The grid of the outputs that it asks for, likewise, of models without an input on it.
        seconds: The time from the end of the body on within which it wants a response, known after `read`; or None.
    """

    @property
    def size(self) -> int: ...

    @property
    def growth(self) -> float: ...

    @property
    def frames(self) -> int | None: ...

    @property
    def grid(self) -> tuple[int, ...] | None: ...

    @property
    def seconds(self) -> float | None: ...

    def read(self, card: Card, max_bytes: int) -> dict[str, NDArray[Any]]:
        """Return the arrays for a model by name, each of at most so many bytes as float32."""
        ...

    def write(self, card: Card, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> Written_co:
        """Return the response; called after `read`. Outputs of a single sample have no batch axis, its quality has."""
        ...


@dataclass(frozen=True)
class Arrays:
    """Inputs by name, single samples or batches, and the writer of outputs by name: an `Exchange` of what is in memory.

    For a derivative, `{"coefficient": …, "cotangents.solution": …}` returns `solution`, `gradients.coefficient` and
    `gradients.source`.
    """

    inputs: Mapping[str, NDArray[Any]]
    frames: int | None = None
    grid: tuple[int, ...] | None = None
    seconds: float | None = None
    growth: float = TEXT_GROWTH  # UM-Bridge writes JSON

    @property
    def size(self) -> int:
        return sum(array.nbytes for array in self.inputs.values())

    def read(self, card: Card, max_bytes: int) -> dict[str, NDArray[Any]]:  # noqa: ARG002  what made them has bounded them
        checks.names(self.inputs, card.names, card.optional)
        return dict(self.inputs)

    def write(
        self,
        card: Card,  # noqa: ARG002  as an exchange is called
        outputs: Mapping[str, NDArray[np.float32]],
        quality: Quality,  # noqa: ARG002
    ) -> Mapping[str, NDArray[np.float32]]:
        return outputs


@dataclass(frozen=True)
class Prediction:
    """What is wanted, beside the arrays."""

    card: Card  # of the version to run
    id: str  # of the request, for Triton's log
    caller: Caller  # who pays once the arrays are checked, whether the rest succeeds or not
    policy: Policy = ANY  # what the caller wants where an output may not be accurate enough
    latest: bool = False  # whether no version was named, so that another one of the model may take over from this one
    paid: bool = False  # whether the caller has paid, for a version that has gone before it was computed
    reference: bool = False  # whether the classical solver computes the outputs instead of the model
    ticket: Ticket | None = None  # counts the memory of the request, if it is one of a client
    begun: float | None = None  # when its body was complete, on the clock of the event loop; None: now
    limit: asyncio.Timeout | None = None  # set on the way

    @property
    def deadline(self) -> float:
        """When it ends, on the clock of the event loop."""
        return math.inf if self.limit is None else self.limit.when() or math.inf

    @property
    def run(self) -> Run:
        """What its calls of a model carry."""
        return Run(self.deadline, self.id)


class Inputs(NamedTuple):
    """Checked inputs: batches `[B, ...]` by name, whether the request was one sample, and the grid's metrics label.

    `cost` is for how many samples one counts: by its points above the largest declared grid, and its frames. `bytes`
    are those of the arrays that are no views of the body, and `outputs` those of all outputs.
    """

    arrays: dict[str, NDArray[np.float32]]
    samples: int
    single: bool
    grid: str
    cost: int
    bytes: int
    outputs: int


class InputReader:
    """Reads the inputs of requests.

    Args:
        classical: The solvers, of which a policy may ask for one.
        metrics: Of the service.
        settings: Of the service.
        run_bytes: What the inputs of one run of a model take at most.
    """

    def __init__(self, classical: ClassicalSolvers, metrics: Metrics, settings: Settings, run_bytes: int) -> None:
        self._classical, self._metrics, self._settings, self._run_bytes = classical, metrics, settings, run_bytes

    async def read(
        self, request: Prediction, exchange: Exchange[Any], frame_bytes: int, *, streamed: bool = False
    ) -> Inputs:
        """Return the inputs of a body, decoded, checked against the card, counted and paid for.

        All frames of an output may take `frame_bytes` as float32; of those that are `streamed`, memory holds few.
        """
        start = time.perf_counter()
        begin = asyncio.get_running_loop().time() if request.begun is None else request.begun
        card, policy = request.card, request.policy
        if policy is not ANY:
            policy.check(card, solver=self._classical.solves(card), reference=request.reference)

        def check() -> Inputs:
            _said_once(policy, exchange)
            frames = policy.count(card, exchange.frames or sent_frames(sent, card))
            sent_frames(sent, card, frames)
            arrays, single = checks.batch(sent, card, frames)
            wanted = policy.points(card, exchange.grid)
            arrays = checks.with_grid(arrays, wanted, card) if card.takes_grid else arrays
            lead, grid = arrays[card.names[0]], card.grid_of(arrays)
            cost = math.ceil(math.prod(grid) / card.grid.most_points) or 1
            if frames is not None:
                arrays[FRAME] = frames_argument(arrays, frames, card, frame_bytes)
                cost *= frames
            size, outputs = own_bytes(arrays), output_bytes(arrays, card, PIECE if streamed else None)
            return Inputs(arrays, len(lead), single, checks.grid_label(grid, card), cost, size, outputs)

        sent = await offload(exchange.size, exchange.read, card, self._settings.max_body_bytes)
        if exchange.seconds is not None and request.limit is not None:
            request.limit.reschedule(min(begin + exchange.seconds, request.deadline))
        if shapes := padding.unequal(sent, card):
            sent = await self._padded(request, exchange.size, sent, shapes)
        # Arrays of another type are converted, and a sample that stands for many is repeated: this is counted before it
        # takes memory. What is left out becomes a view, which takes none.
        converted = _converted_bytes(sent)
        if request.ticket is not None:
            copied = converted + checks.replaced_bytes(sent, card)
            request.ticket.settle(exchange.size + own_bytes(sent) + copied)
        if CELLS in sent and CELLS not in card.names:
            sent = await self._derived(request, exchange.size, sent)
            converted = _converted_bytes(sent)
        inputs = await offload(max(exchange.size, converted), check)
        sent = {}
        if request.ticket is not None:  # outputs are joined from those of several calls
            taken = inputs.bytes + self._spread_bytes(inputs) + int(inputs.outputs * (2 + exchange.growth))
            request.ticket.settle(exchange.size + taken)
        self._metrics.parsed(card.model, inputs.grid, time.perf_counter() - start)
        solved = request.reference or policy.bypasses(card)
        if not request.paid:
            request.caller.spend(inputs.samples, inputs.cost * (SOLVER_COST if solved else 1))
        return inputs

    async def _padded(
        self, request: Prediction, size: int, sent: dict[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, NDArray[Any]]:
        """Return the arrays of a body of so many bytes, samples of unequal numbers of points in such shapes."""
        values = sum(map(math.prod, shapes.values()))
        for name, shape in shapes.items():
            if 4 * math.prod(shape) > self._settings.max_body_bytes:
                detail = f"{shape[0]} samples padded to {shape} take more than {self._settings.max_body_bytes} bytes"
                raise Problem("body-too-large", f"{name}: {detail}", array=name)
        if request.ticket is not None:
            request.ticket.settle(size + own_bytes(sent) + 8 * values)  # in float64
        return await offload(8 * values, padding.rectangular, sent, shapes)

    async def _derived(self, request: Prediction, size: int, sent: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the arrays of a body of so many bytes with what follows from its cells, piece by piece.

        A request that ends meanwhile, such as at its deadline, begins no other piece.
        """
        converted = _converted_bytes(sent)
        derivation = await offload(max(size, converted), cells.Derivation, sent, request.card)
        if request.ticket is not None:
            request.ticket.settle(size + own_bytes(sent) + converted + derivation.bytes)
        for piece in derivation.pieces():
            await offload(derivation.work, derivation.derive, piece)
        return derivation.arrays

    def _spread_bytes(self, inputs: Inputs) -> int:
        """Return the bytes that views of repeated numbers take in the calls that are in flight at one time."""
        spread = sum(array.nbytes for array in inputs.arrays.values() if not array.flags.c_contiguous)
        return min(spread, 2 * max(self._run_bytes, spread // inputs.samples))


def _as_sent(array: NDArray[Any]) -> bool:
    """Return whether an array is sent to Triton as it is."""
    return array.dtype == np.float32 and array.flags.c_contiguous


def _converted_bytes(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return the bytes of arrays as float32 that are not sent to Triton as they are."""
    return 4 * sum(array.size for array in arrays.values() if not _as_sent(array))


def own_bytes(arrays: Batch) -> int:
    """Return the bytes of arrays that have memory of their own, and are no views of a body or of a few numbers."""
    return sum(map(_own_bytes, arrays.values()))


def _own_bytes(array: NDArray[Any]) -> int:
    if array.dtype == object:  # an array for each sample
        return sum(map(_own_bytes, array))
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    return min(array.nbytes, root.nbytes) if root.base is None else 0


def _said_once(policy: Policy, exchange: Exchange[Any]) -> None:
    """Refuse other frames, or another grid, in the body than in the query: one of both would do nothing."""
    for name in ("frames", "grid"):
        if None not in (said := {getattr(policy, name), getattr(exchange, name)}) and len(said) > 1:
            raise Problem("invalid-parameter", f"{name}: expected one value but got several")


def output_bytes(arrays: Batch, card: Card, frames: int | None) -> int:
    """Return the bytes of all outputs for inputs `[B, ...]`, with so many frames at most.

    Those whose shape is known only once it is computed are as large as the inputs.
    """
    points = dict(zip(card.grid.axes, card.grid_of(arrays), strict=True))
    if FRAME in arrays:
        count = int(arrays[FRAME].shape[1])
        points[FRAME] = count if frames is None else min(count, frames)
    try:
        shapes = checks.shapes(card, points)
    except Problem:
        return sum(array.nbytes for array in arrays.values())
    return 4 * len(arrays[card.names[0]]) * sum(math.prod(shapes[tensor.name]) for tensor in card.outputs)


async def offload(size: int, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function on data of that many bytes: in a worker thread if they are large, else at once."""
    if size <= _LARGE_BYTES:
        return function(*args)
    call = partial(copy_context().run, function, *args)  # in the span of the request
    return await asyncio.get_running_loop().run_in_executor(_CODERS, call)
