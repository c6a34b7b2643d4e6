"""The inputs of a prediction, checked and cut into pieces of request size, and its outputs, put together from pieces.

A model's inputs have axes (batch, …). The caller may pass single fields, without the batch axis, and receives single
fields, or batches of any size. Arrays with `shape`, `dtype` and slicing (NumPy, memory maps, HDF5 datasets) are read a
piece at a time, so a batch may be larger than memory. Pieces are float32, or int32 for tokens. A parameter is one
number, or one per field of the batch.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from petrov_client._errors import InvalidInput, InvalidResponse, Where
from petrov_client._models import COMPONENT, PADDING
from petrov_client._quality import quality_of, warn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from petrov_client._models import GridInfo, ModelInfo, ParameterInfo, TensorInfo, Vocabulary
    from petrov_client._quality import Quality, Response

Fields = npt.NDArray[np.float32]
Arrays = Mapping[str, npt.NDArray[Any]]
WIRE_TYPES: Mapping[str, str] = {"FP32": "<f4", "INT32": "<i4"}

#: Bytes of one request. Beyond a few megabytes larger requests are no faster, and a lost one costs more.
PIECE_BYTES = 8 * 2**20


@dataclass(frozen=True)
class FieldInput:
    """One input: a field or a batch.

    Attributes:
        array: Anything with `shape`, `dtype` and slicing along its first axis.
        tensor: The model's input.
        single: Whether the array is one field, without the batch axis.
    """

    array: Any
    tensor: TensorInfo
    single: bool

    def __len__(self) -> int:
        """Return the number of fields."""
        return 1 if self.single else int(self.array.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one field, the components of a vector first."""
        return tuple(self.array.shape) if self.single else tuple(self.array.shape[1:])

    @property
    def grid(self) -> tuple[int, ...]:
        """The points per axis of one field."""
        return self.shape[self.tensor.vector :]

    def values(self, piece: slice) -> npt.NDArray[Any]:
        """Return a piece in the caller's own type, the batch axis first."""
        return np.asarray(self.array)[np.newaxis] if self.single else np.asarray(self.array[piece])

    def fields(self, piece: slice) -> npt.NDArray[Any]:
        """Return a piece in the model's own type and in C order, the batch axis first."""
        with np.errstate(over="ignore"):  # a value that overflows becomes infinite, and the check of values finds it
            return np.ascontiguousarray(self.values(piece), dtype=WIRE_TYPES[self.tensor.dtype])


@dataclass(frozen=True)
class Labels:
    """The names of the axes of an input, and its coordinates.

    Attributes:
        template: The input as a `DataArray`, its dimensions in the order of the model's axes.
        tensor: The model's input.
        order: The dimensions in the caller's order.
    """

    template: Any
    tensor: TensorInfo
    order: tuple[str, ...]

    def put_on(self, output: Fields, tensor: TensorInfo, piece: slice | None = None) -> Any:
        """Return an output as a `DataArray`.

        It has the dimensions of the input and all of its coordinates that fit, and the units and meaning of the model.

        Args:
            output: The output of the whole input, or of a piece of the batch.
            tensor: The model's output.
            piece: The piece; None for the whole.
        """
        template = self.template if piece is None else self.template[piece]
        names = dict(zip(self.tensor.axes[-template.ndim :], template.dims, strict=True))
        dims = [names.get(axis, axis) for axis in tensor.axes[-output.ndim :]]
        sizes = dict(zip(dims, output.shape, strict=True))
        coords = {name: each for name, each in template.coords.items() if each.sizes.items() <= sizes.items()}
        if tensor.components and COMPONENT in dims:
            coords.setdefault(COMPONENT, list(tensor.components))
        attributes = {"units": tensor.units, "long_name": tensor.meaning}
        known = {name: text for name, text in attributes.items() if text}
        labelled = type(template)(output, coords, dims, tensor.name, known)
        return labelled.transpose(*self.order) if set(dims) == set(self.order) else labelled


@dataclass(frozen=True)
class PredictionInput:
    """Inputs and parameters that fit a model.

    Attributes:
        info: The model.
        inputs: Its inputs that the caller passed, in the model's order; at least one.
        numbers: The parameters that the caller passed, `[batch]`, by name.
        labels: The dimensions and coordinates of the inputs, where the caller passed them with xarray.
    """

    info: ModelInfo
    inputs: tuple[FieldInput, ...]
    numbers: Mapping[str, Fields]
    labels: Labels | None = None

    def __len__(self) -> int:
        """Return the number of fields in the batch."""
        return len(self.inputs[0])

    @property
    def single(self) -> bool:
        """Whether the inputs are single fields, without the batch axis."""
        return self.inputs[0].single

    def pieces(self, most: int | None = None) -> list[slice]:
        """Return consecutive slices of at most so many fields (the model's batch if None) that one request may hold."""
        affordable = max(1, PIECE_BYTES // (4 * max(math.prod(each.shape) for each in self.inputs)))
        step = min(self.info.batch if most is None else most, affordable)
        return [slice(start, min(start + step, len(self))) for start in range(0, len(self), step)]

    def shown(self, outputs: Mapping[str, Fields], piece: slice | None = None) -> Any:
        """Return outputs as the caller receives them: labelled as the inputs are, and without a dictionary if single.

        Args:
            outputs: Arrays by output name.
            piece: The piece of the batch that they are for; None for the whole.
        """
        tensors = {tensor.name: tensor for tensor in self.info.outputs}
        named = {
            name: self.labels.put_on(array, tensors[name], piece) if self.labels else array
            for name, array in outputs.items()
        }
        return next(iter(named.values())) if len(named) == 1 else named

    def arrays(self, piece: slice) -> dict[str, npt.NDArray[Any]]:
        """Return a piece of all inputs and parameters by name, as the wire has it."""
        return {each.tensor.name: each.fields(piece) for each in self.inputs} | {
            name: numbers[piece] for name, numbers in self.numbers.items()
        }


class PredictionOutput:
    """The outputs for an input and their quality, checked or filled in piece by piece, in any order.

    Attributes:
        outside: Whether the service says that any input so far is unlike the training data.
    """

    def __init__(self, source: PredictionInput) -> None:
        self._source = source
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._arrays: dict[str, Fields] = {}
        self._numbers: dict[str, Fields] = {}
        self._solved_by: set[str] = set()
        self.outside = False

    def checked(self, piece: slice, response: Response, *, warned: bool = False) -> Any:
        """Return the outputs for one piece, if they have the right shapes: an array, or a dictionary of several.

        Args:
            piece: The piece of the batch.
            response: Its response.
            warned: Whether the first piece with an input outside issues a warning.

        Raises:
            InvalidResponse: The number of fields differs from the input's, or the grid from that of earlier pieces.
        """
        self._check(piece, response)
        if warned and response.outside and not self.outside:
            warn(self._source.info.name)
        self.outside |= response.outside
        return self._source.shown(response.outputs, None if self._source.single else piece)

    def _check(self, piece: slice, response: Response) -> None:
        count = piece.stop - piece.start
        for name, fields in response.outputs.items():
            expected = (count, *self._shapes.setdefault(name, fields.shape[1:]))
            if fields.shape != expected:
                raise InvalidResponse(f"expected a response of shape {expected} but got {fields.shape}")
        for name, numbers in response.numbers.items():
            if numbers.shape[:1] != (count,):
                raise InvalidResponse(f'expected {count} numbers for "{name}" but got {numbers.shape}')

    def put(self, piece: slice, response: Response) -> None:
        """Copy the outputs for one piece into the whole.

        Raises:
            InvalidResponse: As `checked`.
        """
        self._check(piece, response)
        self.outside |= response.outside
        self._solved_by.add(response.solved_by)
        for whole, part in ((self._arrays, response.outputs), (self._numbers, response.numbers)):
            for name, fields in part.items():
                if name not in whole:
                    whole[name] = np.empty((len(self._source), *fields.shape[1:]), np.float32)
                whole[name][piece] = fields

    def array(self) -> Any:
        """Return the whole output, with the batch axis if the input has one; several outputs as a dictionary.

        Raises:
            InvalidResponse: There was no piece.
        """
        if not self._arrays:
            raise InvalidResponse("expected a response but got none")
        single = self._source.single
        return self._source.shown({name: array[0] if single else array for name, array in self._arrays.items()})

    def quality(self) -> Quality:
        """Return what is known about the whole output."""
        return quality_of(self._numbers, self._solved_by, single=self._source.single)


def check_input(info: ModelInfo, array: Any = None, named: Mapping[str, Any] | None = None) -> PredictionInput:
    """Check inputs and parameters against the description of a model, all of them before anything is sent.

    Args:
        info: The model.
        array: Real numbers, one field `[…]` or a batch `[batch, …]`, or integers for a sequence model: the only input
            that the model requires, else its first. Or a mapping of several by name.
        named: Inputs and parameters by name.

    Raises:
        InvalidInput: A name is missing or unknown; type, rank, components or grid do not fit; or a value is not finite,
            not positive, out of range or not in the vocabulary. `.where` names the input and, for a value, its index.
    """
    passed, labels = split_labels(info, _named(info, array, named or {}))
    inputs = tuple(_field(info, tensor, passed[tensor.name]) for tensor in info.inputs if tensor.name in passed)
    if not inputs:
        raise InvalidInput(
            f"expected {' or '.join(each.name for each in info.inputs)}, which give the grid, but got none"
        )
    for each in inputs[1:]:
        _check_same_size(each, inputs[0])
    numbers = {
        each.name: _numbers(each, passed[each.name], len(inputs[0])) for each in info.parameters if each.name in passed
    }
    checked = PredictionInput(info, inputs, numbers, labels)
    for each in inputs:
        for piece in checked.pieces():
            _check_values(each, piece, info.vocabulary)
    return checked


def _named(info: ModelInfo, array: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the caller passed by name, if the names are the model's.

    Raises:
        InvalidInput: A name is missing, unknown or given twice.
    """
    first = () if array is None else array.items() if isinstance(array, Mapping) else ((info.first_name, array),)
    passed = dict(first)
    known = {each.name: each.default for each in info.arguments}
    if repeated := [name for name in named if name in passed]:
        raise InvalidInput(f'"{repeated[0]}" is given twice', where=Where(repeated[0]))
    passed |= named
    for name in passed:
        if name not in known:
            raise InvalidInput(f'"{info.name}" takes {_listed(known)} and no "{name}"', where=Where(name))
    for name, default in known.items():
        if name not in passed and default is None:
            got = _listed(passed) if passed else "nothing"
            raise InvalidInput(
                f'"{info.name}" takes {_listed(known)}, but "{name}" is missing; got {got}', where=Where(name)
            )
    return passed


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _field(info: ModelInfo, tensor: TensorInfo, array: Any) -> FieldInput:
    if tensor.dtype not in WIRE_TYPES:
        raise InvalidInput(f'"{info.name}" expects {tensor.dtype}; predict sends {" or ".join(WIRE_TYPES)}')
    values = _array(array, tensor)
    checked = FieldInput(values, tensor, single=_is_single(values.shape, tensor))
    _check_grid(checked, info.grid)
    return checked


def _check_same_size(field: FieldInput, lead: FieldInput) -> None:
    """Check that two inputs have the same number of fields and, unless the model fixes one of them, the same grid."""
    fixed = None not in field.tensor.shape[1:]
    own, other = ((each.single, len(each), () if fixed else each.grid) for each in (field, lead))
    if own != other:
        raise _refusal(
            field.tensor,
            f"expected the same fields and grid but {lead.tensor.name} has shape {tuple(lead.array.shape)} and "
            f"{field.tensor.name} {tuple(field.array.shape)}",
        )


def _numbers(parameter: ParameterInfo, value: Any, count: int) -> Fields:
    """Return the values `[count]` of a parameter: one number for all, or one per field."""
    where = Where(parameter.name)
    values = np.asarray(value)
    if values.dtype.kind not in "fiu":
        raise InvalidInput(f'expected real numbers but got {values.dtype} for "{parameter.name}"', where=where)
    if values.shape not in {(), (count,)}:
        raise InvalidInput(
            f'expected one number or ({count},) numbers but got {values.shape} for "{parameter.name}"', where=where
        )
    with np.errstate(over="ignore"):
        numbers = np.asarray(values, "<f4")
    low, high = parameter.bounds
    bad = ~((numbers >= low) & (numbers <= high) & np.isfinite(numbers))
    if bad.any():
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
        where = Where(parameter.name, index or None)
        finite = np.isfinite(numbers[index])
        rule = f"expected {low:g} to {high:g}" if finite else "every value must be finite in float32"
        raise InvalidInput(f"{where} is {values[index]}; {rule}", where=where)
    return np.array(np.broadcast_to(numbers, (count,)))


def _array(array: Any, tensor: TensorInfo) -> Any:
    """Return the array itself where it can be sliced as it is, else a NumPy array."""
    if not isinstance(getattr(array, "dtype", None), np.dtype) or not hasattr(array, "shape"):
        try:
            array = np.asarray(array)
        except (TypeError, ValueError) as error:  # rows that differ in length
            raise _refusal(tensor, f'expected an array of numbers for "{tensor.name}" but: {error}') from error
    kinds, expected = ("iu", "integers") if tensor.dtype == "INT32" else ("fiu", "real numbers")
    if array.dtype.kind not in kinds:
        raise _refusal(tensor, f'expected {expected} but got {array.dtype} for "{tensor.name}"')
    return array


def _is_single(shape: tuple[int, ...], tensor: TensorInfo) -> bool:
    rank = len(tensor.axes)
    if len(shape) not in (rank - 1, rank) or not all(shape):
        batch, field = ", ".join(tensor.axes), ", ".join(tensor.axes[1:])
        raise _refusal(
            tensor, f'expected ({field}) or ({batch}), none of them empty, but got {tuple(shape)} for "{tensor.name}"'
        )
    return len(shape) == rank - 1


def _check_grid(checked: FieldInput, grid: GridInfo | None) -> None:
    tensor = checked.tensor
    for axis, points, fixed in zip(tensor.axes[1:], checked.shape, tensor.shape[1:], strict=False):
        if fixed is not None and points != fixed:
            kind = "components" if axis == COMPONENT else f"points along {axis}"
            raise _refusal(tensor, f'expected {fixed} {kind} but got {points} for "{tensor.name}"')
    free = zip(tensor.axes[1 + tensor.vector :], checked.grid, tensor.shape[1 + tensor.vector :], strict=True)
    for axis, points, fixed in free:
        if grid is not None and fixed is None and not grid.minimum <= points <= grid.maximum:
            raise _refusal(
                tensor,
                f'expected {grid.minimum} to {grid.maximum} points along {axis} but got {points} for "{tensor.name}"',
            )


def _check_values(checked: FieldInput, piece: slice, vocabulary: Vocabulary | None) -> None:
    tensor = checked.tensor
    if tensor.dtype == "INT32":
        _check_tokens(checked, piece, vocabulary)
        return
    fields = checked.fields(piece)
    finite = np.isfinite(fields)
    if not finite.all():
        raise _bad_value(checked, piece, ~finite, "every value must be finite in float32")
    if tensor.positive and not (fields > 0).all():
        raise _bad_value(checked, piece, fields <= 0, f"{tensor.meaning or tensor.name} must be positive")


def _check_tokens(checked: FieldInput, piece: slice, vocabulary: Vocabulary | None) -> None:
    """Check that every number is in the vocabulary, and that padding only follows the words of a sequence."""
    tokens, low, high, rule = checked.values(piece), -(2**31), 2**31, "expected a number that int32 holds"
    if vocabulary is not None:
        low, high, rule = 0, len(vocabulary.words), f"the vocabulary has {len(vocabulary.words)} words"
    if (unknown := (tokens < low) | (tokens >= high)).any():
        raise _bad_value(checked, piece, unknown, rule)
    if vocabulary is None:
        return
    padding = tokens == PADDING
    misplaced = padding & np.logical_or.accumulate(~padding[:, ::-1], axis=1)[:, ::-1]
    misplaced[:, 0] |= padding[:, 0]
    if misplaced.any():
        raise _bad_value(checked, piece, misplaced, "that is padding and belongs behind the words")


def _bad_value(checked: FieldInput, piece: slice, bad: npt.NDArray[np.bool_], rule: str) -> InvalidInput:
    """Return the error that names the first bad value by its index in the caller's own array."""
    first = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    index = first[1:] if checked.single else (piece.start + first[0], *first[1:])
    where = Where(checked.tensor.name, index)
    return InvalidInput(f"{where} is {np.asarray(checked.array[index])}; {rule}", where=where)


def _refusal(tensor: TensorInfo, message: str) -> InvalidInput:
    return InvalidInput(message, where=Where(tensor.name))


def split_labels(info: ModelInfo, passed: Mapping[str, Any]) -> tuple[dict[str, Any], Labels | None]:
    """Return the arrays in the order of the model's axes, and the labels of the first that has any.

    The dimensions of an input may have any order where they have the names of the grid's axes.

    Args:
        info: The model.
        passed: Arrays by name, `DataArray` or not.

    Raises:
        InvalidInput: The inputs differ in a coordinate.
    """
    labelled = {name: array for name, array in passed.items() if _is_labelled(array)}
    _check_aligned(labelled)
    grid = tuple(info.grid.axes) if info.grid else ()
    ordered = {name: _ordered(array, grid) for name, array in labelled.items()}
    first = next((tensor for tensor in info.inputs if tensor.name in ordered), None)
    labels = Labels(ordered[first.name], first, labelled[first.name].dims) if first else None
    return {**passed, **ordered}, labels


def _is_labelled(array: Any) -> bool:
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(array, xarray.DataArray)


def _ordered(array: Any, grid: tuple[str, ...]) -> Any:
    """Return an array with the grid's axes last, and the components of a vector before them."""
    if not set(grid) <= set(array.dims):
        return array
    others = sorted((name for name in array.dims if name not in grid), key=lambda name: name == COMPONENT)
    return array.transpose(*others, *grid)


def _check_aligned(arrays: Mapping[str, Any]) -> None:
    if len(arrays) < 2:
        return
    import xarray  # noqa: PLC0415  the caller has imported it

    try:
        xarray.align(*arrays.values(), join="exact", copy=False)
    except ValueError as error:
        names = " and ".join(arrays)
        raise InvalidInput(f"expected {names} on the same coordinates but: {error}") from error
