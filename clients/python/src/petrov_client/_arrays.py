"""The inputs of a prediction, checked and cut into pieces of request size, and its outputs, put together from pieces.

A model's inputs have axes (batch, …). The caller may pass single fields, without the batch axis, and receives single
fields, or batches of any size. Arrays with `shape`, `dtype` and slicing (NumPy, memory maps, HDF5 datasets) are read a
piece at a time, so a batch may be larger than memory. Pieces are float32, or int32 for tokens. A parameter is one
number, or one per field of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from petrov_client._errors import InvalidResponse
from petrov_client._labels import Labels
from petrov_client._meshes import is_number, with_outputs
from petrov_client._models import ModelInfo, vector_axes
from petrov_client._quality import Quality, Response, coverage_of, quality_of, warn
from petrov_client._schema import COMPONENT, FRAME, TensorInfo

Fields = npt.NDArray[np.float32]
Arrays = Mapping[str, npt.NDArray[Any]]
WIRE_TYPES: Mapping[str, str] = {"FP32": "<f4", "INT32": "<i4"}

#: Bytes of one request. Beyond a few megabytes larger requests are no faster, and a lost one costs more.
PIECE_BYTES = 8 * 2**20


@dataclass(frozen=True)
class FieldInput:
    """One input: a batch, or a single field, without the batch axis."""

    array: Any  # with `shape`, `dtype` and slicing along its first axis
    tensor: TensorInfo
    single: bool

    def __len__(self) -> int:
        return 1 if self.single else int(self.array.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one field, the components of a vector first, or last on points."""
        return tuple(self.array.shape) if self.single else tuple(self.array.shape[1:])

    @property
    def grid(self) -> tuple[int, ...]:
        """The points per axis of one field."""
        last = self.tensor.axes[-1] == COMPONENT
        return self.shape[vector_axes(self.tensor) - last : len(self.shape) - last]

    def values(self, piece: slice) -> npt.NDArray[Any]:
        """Return a piece in the caller's own type, the batch axis first; masked where the caller's array is."""
        return np.asanyarray(self.array)[np.newaxis] if self.single else np.asanyarray(self.array[piece])

    def fields(self, piece: slice) -> npt.NDArray[Any]:
        """Return a piece in the model's own type and in C order, the batch axis first."""
        return self.converted(self.values(piece))

    def converted(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values in the model's own type and in C order."""
        with np.errstate(over="ignore"):  # a value that overflows becomes infinite, and the check of values finds it
            return np.ascontiguousarray(values, dtype=WIRE_TYPES[self.tensor.dtype])


@dataclass(frozen=True)
class PredictionInput:
    """Inputs and parameters that fit a model, of those that the caller passed."""

    info: ModelInfo
    inputs: tuple[FieldInput, ...]  # in the model's order; none where a model takes numbers alone
    numbers: Mapping[str, Fields]  # parameters `[batch]`, or `[batch, frame]`, one frame where it is for all
    labels: Labels | None = None  # where the caller passed inputs with xarray
    mesh: Any = None  # whose points and data the inputs are, where the caller passed one
    frames: int | None = None  # that inputs and parameters have, such as a forcing; None where none of them says it
    alone: bool = False  # whether numbers alone are those of one sample, without the batch axis

    def __len__(self) -> int:
        return len(self.inputs[0]) if self.inputs else len(next(iter(self.numbers.values())))

    @property
    def single(self) -> bool:
        """Whether the inputs are single fields, without the batch axis."""
        return self.inputs[0].single if self.inputs else self.alone

    def coverage(self, versions: Iterable[int | None] = ()) -> float | None:
        """Return the share of test fields like these for which the model's error estimate held.

        It is None where a version has computed outputs whose card this is not.
        """
        if not set(versions) <= {None, self.info.version}:
            return None
        grid = self.inputs[0].grid if self.inputs else ()
        return coverage_of(self.info, grid, self.numbers.get("noise", ()))  # type: ignore[arg-type]

    def pieces(self, most: int | None = None, weigh: Callable[[Iterable[int]], int] = sum) -> list[slice]:
        """Return consecutive slices of at most so many fields (the model's batch if None) that one request may hold.

        `weigh` makes one number of how many numbers each input has in a field.
        """
        numbers = weigh([math.prod(each.shape) for each in self.inputs] or [1])
        step = min(self.info.batch if most is None else most, max(1, PIECE_BYTES // (4 * numbers)))
        return [slice(start, min(start + step, len(self))) for start in range(0, len(self), step)]

    def bytes_of(self, piece: slice) -> int:
        """Return the bytes of the inputs in a piece."""
        return int(4 * (piece.stop - piece.start) * sum(math.prod(each.shape) for each in self.inputs))

    def shown(self, outputs: Mapping[str, Fields], piece: slice | None = None) -> Any:
        """Return outputs (of a piece) as the caller receives them: labelled like the inputs, a single one by itself."""
        # Neither numbers nor the frames of a trajectory are data of the points of one mesh.
        apart = (is_number(tensor) or FRAME in tensor.axes for tensor in self.info.outputs)
        if self.mesh is not None and not any(apart):
            return with_outputs(self.mesh, outputs, self.info.outputs)
        tensors = {tensor.name: tensor for tensor in self.info.outputs}
        step = self.info.frames.step if self.info.frames else None
        named = {
            name: self.labels.put_on(array, tensors[name], piece, step) if self.labels else array
            for name, array in outputs.items()
        }
        return unwrapped(named)

    def frame(self, outputs: Mapping[str, Fields], number: int) -> Any:
        """Return a frame of the outputs, counted from 1, as the caller receives it; on a mesh it is an array, too."""
        labels, time = self.labels, self.info.frames
        if labels is None or time is None:
            return unwrapped(outputs)
        tensors = {tensor.name: tensor for tensor in self.info.outputs}
        return unwrapped(
            {name: labels.on_frame(array, tensors[name], number, time.step) for name, array in outputs.items()}
        )

    def arrays(self, piece: slice, frames: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return a piece of all inputs and parameters by name, as the wire has it.

        A number that is for all frames of a trajectory is repeated for so many, by default those of a training one.
        """
        numbers = {name: each[piece] for name, each in self.numbers.items()}
        if self.frames is None and self.info.frames is not None:
            count = frames or self.info.frames.trained
            numbers |= {name: np.repeat(numbers[name], count, axis=1) for name in self.info.forced if name in numbers}
        return {each.tensor.name: each.fields(piece) for each in self.inputs} | numbers


def unwrapped(outputs: Mapping[str, Any]) -> Any:
    """Return outputs as the caller receives them."""
    return next(iter(outputs.values())) if len(outputs) == 1 else dict(outputs)


class PredictionOutput:
    """The outputs for an input and their quality, checked or filled in piece by piece, in any order.

    Attributes:
        doubtful: Whether the network has predicted for any input so far that is unlike the training data.
    """

    def __init__(self, source: PredictionInput) -> None:
        self._source = source
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._arrays: dict[str, Fields] = {}
        self._numbers: dict[str, Fields] = {}
        self._solved_by: set[str] = set()
        self._versions: set[int | None] = set()
        self.doubtful = False

    def checked(self, piece: slice, response: Response, *, warned: bool = False) -> Any:
        """Return the outputs for one piece as the caller receives them; the first doubtful one may issue a warning."""
        self.check(piece, response)
        if warned and response.doubtful and not self.doubtful:
            warn(self._source.info.name)
        self.doubtful |= response.doubtful
        return self._source.shown(response.outputs, None if self._source.single else piece)

    def check(self, piece: slice, response: Response) -> None:
        """Check that the response for one piece fits it, and those for the others.

        Raises:
            InvalidResponse: An output has another shape, or a number is not there once per field.
        """
        count = piece.stop - piece.start
        for name, fields in response.outputs.items():
            expected = (count, *self._shapes.setdefault(name, fields.shape[1:]))
            if fields.shape != expected:
                raise InvalidResponse(f"expected a response of shape {expected} but got {fields.shape}")
        for name, numbers in response.numbers.items():
            if numbers.shape[:1] != (count,):
                raise InvalidResponse(f'expected {count} numbers for "{name}" but got {numbers.shape}')

    def put(self, piece: slice, response: Response) -> None:
        """Copy the outputs for one piece into the whole."""
        self.check(piece, response)
        self._put(piece, response)

    def _put(self, index: Any, response: Response, frames: tuple[int, ...] = ()) -> None:
        self.doubtful |= response.doubtful
        self._solved_by.add(response.solved_by)
        self._versions.add(response.version)
        for whole, part in ((self._arrays, response.outputs), (self._numbers, response.numbers)):
            for name, fields in part.items():
                if name not in whole:
                    shape = (len(self._source), *frames, *fields.shape[1:])
                    whole[name] = np.full(shape, np.nan, np.float32)  # a number may be known of some pieces alone
                whole[name][index] = fields

    def array(self) -> Any:
        """Return the whole output, with the batch axis if the input has one; several outputs as a dictionary."""
        if not self._arrays:
            raise InvalidResponse("expected a response but got none")
        single = self._source.single
        return self._source.shown({name: array[0] if single else array for name, array in self._arrays.items()})

    def quality(self) -> Quality:
        """Return what is known about the whole output."""
        coverage = self._source.coverage(self._versions)
        return quality_of(self._numbers, self._solved_by, single=self._source.single, coverage=coverage)
