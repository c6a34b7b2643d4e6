"""Arrays in JSON: nested lists of numbers, or `{"shape", "dtype", "base64"}` with little-endian bytes in C order.

Lists in long texts are converted piece by piece (`serving.codecs.json_text`). Of the literals of JSON, `null` is a
missing value, which becomes NaN and is refused as such; `true` and `false` are no numbers.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import FailFast, Field

from schema.card import CELLS, COORDINATES, COUNTS
from serving import checks
from serving.codecs import binary
from serving.codecs.binary import Buffer
from serving.codecs.json_text import PIECE, LongList, parsed
from serving.document import Document, validated
from serving.errors import Problem

DTYPES = frozenset(
    {"float16", "float32", "float64", "bool"} | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
_MOST_FRAMES = 10**9
_MOST_SAMPLES = 2**16  # of unequal numbers of points


class Base64Array(Document):
    """An array as little-endian bytes in C order."""

    # One error is enough, a million would be collected.
    shape: Annotated[tuple[Annotated[int, Field(strict=True)], ...], FailFast()]
    dtype: str = Field(examples=["float32"])
    base64: str


def read(
    body: Buffer,
    names: Sequence[str],
    max_bytes: int,
    optional: Collection[str] = (),
    on_points: Mapping[str, int] = MappingProxyType({}),
    derivable: Collection[str] = (),
) -> tuple[dict[str, NDArray[Any]], bool, Options, list[int] | None]:
    """Return the arrays of a body `{"inputs": {name: array}}`, and the other members that it may hold, `OPTIONS`.

    The array `cotangents.solution` is the member `solution` of `cotangents`, which stands beside `inputs`. Samples on
    points (there is an input `counts`, which the body leaves out) may have unequal numbers of them: they are counted,
    and such an input is an array of arrays, which `serving.padding` pads later. `on_points` says of inputs on points
    how many axes a sample has before that of the points, such as its frames. Where the body has `cells`, the inputs
    that are `derivable` from them may be missing, too.

    Returns:
        The arrays by name, whether one of them was in base64, the frames and the grid that it asks for and its cells,
        if it says them, and the points of every sample, where they are lists of unequal lengths.
    """
    document = parsed(body)
    members: dict[str, str] = {}  # of the document, each with the first of its arrays
    for name in names:
        role, _, last = name.rpartition(".")
        members.setdefault(role or "inputs", last)
    objects = isinstance(document, dict) and all(isinstance(document.get(member), dict) for member in members)
    known = {*members, *Options._fields}
    if objects and (unknown := sorted(document.keys() - known)):
        detail = f'the JSON body has no member "{unknown[0][:32]}"; there are {", ".join(sorted(known))}'
        raise Problem("unreadable-body", detail)
    if not objects:
        shown = ", ".join(f'"{member}": {{"{first}": <array>}}' for member, first in members.items())
        raise Problem("unreadable-body", f"expected {{{shown}}} as the JSON body")
    inputs: dict[str, Any] = {}
    for member in members:
        prefix = "" if member == "inputs" else f"{member}."
        inputs |= {f"{prefix}{name}": value for name, value in document[member].items()}
    options = Options.of(document, max_bytes)
    checks.names(inputs, names, optional if options.cells is None else {*optional, *derivable})
    counts = None
    if COUNTS in names and COUNTS not in inputs:
        inputs, counts = _by_sample(inputs, on_points)
    coded = False
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in inputs.items():
        if isinstance(value, dict):
            coded, path = True, _path(name)
            found = validated(Base64Array, value, path)
            arrays[name] = from_base64(found.base64, found.dtype, found.shape, name, f"{path}.base64", max_bytes)
        else:
            arrays[name] = nested(value, name)
    return arrays, coded, options, counts


class Options(NamedTuple):
    """What a body says beside its arrays: frames of a trajectory, the grid of outputs without an input on it, cells."""

    frames: int | None = None
    grid: tuple[int, ...] | None = None
    cells: NDArray[Any] | None = None  # `[cell, node]`, or an array of those of every sample

    @classmethod
    def of(cls, document: Mapping[str, Any], max_bytes: int) -> Options:
        """Read them; `grid` is a number of points, or a list of one for each axis."""

        def count(value: Any) -> bool:
            return type(value) is int and 0 < value < _MOST_FRAMES

        frames, grid = document.get("frames"), document.get("grid")
        if frames is not None and not count(frames):
            raise Problem("unreadable-body", "frames: expected a positive whole number")
        points = [grid] if type(grid) is int else grid
        if points is not None and not (isinstance(points, list) and 0 < len(points) <= 3 and all(map(count, points))):
            raise Problem("unreadable-body", "grid: expected a positive whole number, or one for each axis")
        return cls(frames, None if points is None else tuple(points), _cells(document.get(CELLS), max_bytes))


def _cells(value: Any, max_bytes: int) -> NDArray[Any] | None:
    """Return the nodes of cells, which a body has beside its inputs."""
    try:
        return None if value is None else _nodes(value, max_bytes)
    except Problem as problem:
        problem.where = problem.where and problem.where.model_copy(update={"inputs": False})
        raise


def _nodes(value: Any, max_bytes: int) -> NDArray[Any]:
    """Return the nodes of the cells of one mesh, or of one for each sample, which may have unequal numbers of them."""
    if isinstance(value, dict):
        coded = validated(Base64Array, value, CELLS)
        return from_base64(coded.base64, coded.dtype, coded.shape, CELLS, f"{CELLS}.base64", max_bytes)
    samples = _samples(value, CELLS, 3)
    return nested(value, CELLS) if samples is None else _several(samples)


def _by_sample(inputs: dict[str, Any], on_points: Mapping[str, int]) -> tuple[dict[str, Any], list[int] | None]:
    """Return inputs on points as arrays of arrays, where samples differ in points, and the points of every sample."""
    samples = _samples(inputs.get(COORDINATES), COORDINATES, 3)
    lengths = [len(each) for each in samples or ()]
    if samples is None or len(set(lengths)) < 2:
        return inputs, None
    found: dict[str, Any] = {COORDINATES: _alike(samples, COORDINATES, lengths, 0)}
    for name, value in inputs.items():
        if name not in found:
            axis = on_points.get(name)
            each = None if axis is None else _samples(value, name, 2 + axis)
            found[name] = value if each is None or axis is None else _alike(each, name, lengths, axis)
    return found | {COUNTS: lengths}, lengths


def _samples(value: Any, name: str, depth: int) -> list[NDArray[Any]] | None:
    """Return the samples of lists that are nested so deep at least; None where they are not, or of other values."""
    if not isinstance(value, list | LongList):
        return None
    items = value.items(_MOST_SAMPLES + 1) if isinstance(value, LongList) else value
    if not _nested_to(items, depth):
        return None
    if len(items) > _MOST_SAMPLES:
        raise Problem("body-too-large", f"{name} has more than {_MOST_SAMPLES} samples")
    return [nested(item, name, (index,)) for index, item in enumerate(items)]


def _nested_to(value: Any, depth: int) -> bool:
    """Return whether the first values of nested lists are so deep at least."""
    while depth and isinstance(value, list | LongList):
        first = value.items(1) if isinstance(value, LongList) else value
        value, depth = first[0] if first else None, depth - 1
    return depth == 0


def _alike(samples: list[NDArray[Any]], name: str, counts: list[int], axis: int) -> NDArray[Any]:
    """Return samples on so many points each, along an axis of theirs, as an array of arrays."""
    if len(samples) != len(counts):
        detail = f"{name} has {len(samples)} samples; {COORDINATES} has {len(counts)}"
        raise Problem("wrong-shape", detail, array=name)
    first = samples[0].shape
    others = (*first[:axis], *first[axis + 1 :])
    for index, (each, count) in enumerate(zip(samples, counts, strict=True)):
        alike = each.ndim == len(first) and (*each.shape[:axis], *each.shape[axis + 1 :]) == others
        if not alike or each.shape[axis] != count:
            shown = f"has {each.shape[axis]} points" if alike else f"has shape {list(each.shape)}"
            detail = f"{name}[{index}] {shown if each.ndim else 'is a number'}; {COORDINATES}[{index}] has {count}"
            raise Problem("wrong-shape", detail, array=name, index=[index])
    return _several(samples)


def _several(samples: list[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays of any shapes as an array of them."""
    found = np.empty(len(samples), object)
    for index, each in enumerate(samples):
        found[index] = each
    return found


def from_base64(text: str, dtype: str, shape: Sequence[int], name: str, path: str, max_bytes: int) -> NDArray[Any]:
    """Return an array from a text in base64, which is decoded in pieces; `path` is where the document has it."""
    check_dtype(dtype, name)
    data, filled = np.empty(len(text) // 4 * 3 + 3, np.uint8), 0
    for start in range(0, len(text), 4 * PIECE):
        part = text[start : start + 4 * PIECE]
        try:
            piece = base64.b64decode(part, validate=True)
        except ValueError as error:
            raise Problem("unreadable-body", f"{path}: {error}") from error
        if part.endswith("=") and start + len(part) < len(text):
            raise Problem("unreadable-body", f"{path}: it goes on behind its padding")
        data[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
        filled += len(piece)
    return binary.view(data[:filled], np.dtype(dtype).newbyteorder("<"), shape, name, max_bytes, "base64")


def check_dtype(dtype: str, name: str) -> None:
    """Refuse an array of a type that is none of `DTYPES`."""
    if dtype not in DTYPES:
        detail = f'{name}: dtype "{dtype[:32]}" is not read; use one such as "float32"'
        raise Problem("wrong-dtype", detail, array=name)


def encode(array: NDArray[Any]) -> dict[str, Any]:
    """Return an array as the document `{"shape", "dtype", "base64"}`."""
    return {"shape": array.shape, "dtype": array.dtype.name, "base64": base64_text(array)}


def base64_text(array: NDArray[Any]) -> orjson.Fragment:
    """Return the little-endian bytes of an array, in C order, as a string of JSON, which is made in pieces."""
    data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
    pieces = (base64.b64encode(data[start : start + 3 * PIECE].data) for start in range(0, len(data), 3 * PIECE))
    return orjson.Fragment(b"".join((b'"', *pieces, b'"')))


def nested(value: Any, name: str, index: tuple[int, ...] = ()) -> NDArray[Any]:
    """Return an array of nested lists: integers if all numbers are, null as NaN, which no model takes.

    A number is an array without axes. A fault is that of the first value that is no number, or whose list is longer or
    shorter than those before it. The `index` is that of the lists in the array that the name means.
    """
    if type(value) in {int, float}:
        return np.array(value)
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, LongList):
        numbers = _Numbers((value.end - value.start) // 2 + 1)  # a number and its comma are two bytes
        shape = _joined(value, name, index, numbers)
        return numbers.array[: numbers.count].reshape(shape)
    if not isinstance(value, list):
        shown = checks.shown(name, index)
        detail = f"{shown}: expected nested lists of numbers, a number or base64 but got {_kind(value)}"
        raise Problem("wrong-shape", detail, array=name, index=index or None)
    return _converted(value, name, index)


def _converted(
    value: list[Any], name: str, index: tuple[int, ...], first: int = 0, shape: tuple[int, ...] | None = None
) -> NDArray[Any]:
    """Return the array of items, the first of which has a number in the list; each has the shape, where it is known."""
    kinds = _kinds(value)
    if not kinds <= {int, float, type(None)}:
        _raise_for_first_fault(value, name, index, first, shape)
    try:
        found = np.array(value, None if kinds == {int} else np.float64)
    except (ValueError, TypeError, OverflowError):
        _raise_for_first_fault(value, name, index, first, shape)
        raise Problem("unreadable-body", f"{_path(name)}: nested lists of numbers of equal length expected") from None
    if shape is not None and found.shape[1:] != shape:
        _raise_for_first_fault(value, name, index, first, shape)
    return found


class _Numbers:
    """The numbers of a long text, in one buffer: integers, or floating-point numbers once one of them is not whole."""

    def __init__(self, most: int) -> None:
        self.array: NDArray[Any] = np.empty(most, np.int64)  # pages that are never written take no memory
        self.count = 0

    def add(self, found: NDArray[Any]) -> None:
        if not self.count:
            self.array = self.array.view(found.dtype)
        elif found.dtype != self.array.dtype:
            as_floats(self.array[: self.count])
            self.array = self.array.view(np.float64)
        self.array[self.count : self.count + found.size] = found.reshape(-1)
        self.count += found.size


def as_floats(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return contiguous numbers of eight bytes as floating-point ones, in the memory that they have."""
    floats = array.view(np.float64)
    if array.dtype != np.float64:
        before, after = array.reshape(-1), floats.reshape(-1)
        for start in range(0, len(before), PIECE):
            after[start : start + PIECE] = before[start : start + PIECE].astype(np.float64)
    return floats


def _joined(text: LongList, name: str, index: tuple[int, ...], numbers: _Numbers) -> tuple[int, ...]:
    """Convert a long list, one piece of it after another, and return its shape."""
    if len(index) == binary.MAX_RANK:
        raise Problem("wrong-shape", f"{name}: lists nested deeper than {binary.MAX_RANK}", array=name)
    shape: tuple[int, ...] | None = None
    count = 0
    for piece in text.pieces():
        if isinstance(piece, LongList):
            items, each = 1, _joined(piece, name, (*index, count), numbers)
        else:
            found = _converted(piece, name, index, count, shape)
            items, each = len(found), found.shape[1:]
            numbers.add(found)
        if 0 in each:
            detail = f"{checks.shown(name, (*index, count))} is empty; expected numbers"
            raise Problem("wrong-shape", detail, array=name, index=(*index, count))
        if shape is None:
            shape = each
        if each != shape:
            detail = f"has shape {list(each)}; the ones before have {list(shape)}"
            shown = checks.shown(name, (*index, count))
            raise Problem("wrong-shape", f"{shown} {detail}", array=name, index=(*index, count))
        count += items
    return (count, *(shape or ()))


def _path(name: str) -> str:
    return name if "." in name else f"inputs.{name}"


def _kinds(value: list[Any], depth: int = binary.MAX_RANK) -> set[type]:
    """Return the types of all numbers in nested lists, or of anything else that is in them."""
    kinds = set(map(type, value))
    if kinds != {list} or depth == 1:
        return kinds
    found: set[type] = set()
    for item in value:
        found |= _kinds(item, depth - 1)
    return found


def _raise_for_first_fault(
    value: list[Any], name: str, index: tuple[int, ...], start: int, items: tuple[int, ...] | None
) -> None:
    """Raise for the first value that is no number, or whose list differs in length from those before it.

    The list is a part, from its item `start` on, of what an index leads to; `items` is the shape of those before.
    """
    shape = _shape_of_first(value)
    if len(index) + len(shape) > binary.MAX_RANK:
        raise Problem("wrong-shape", f"{name}: lists nested deeper than {binary.MAX_RANK}", array=name)
    shape = shape if items is None else [len(value), *items]
    numbers = {int, float, type(None)}

    def visit(value: Any, inner: tuple[int, ...]) -> None:
        kind, fault, depth = "wrong-shape", "", len(inner)
        if depth == len(shape) and isinstance(value, list):
            fault = "is a list; expected a number as in the rows before"
        elif depth == len(shape):
            kind, fault = "wrong-dtype", "" if type(value) in numbers else f"is {_kind(value)}; expected a number"
        elif not isinstance(value, list):
            fault = f"is {_kind(value)}; expected a list of {shape[depth]}"
        elif len(value) != shape[depth]:
            fault = f"has {len(value)} entries; the ones before have {shape[depth]}"
        else:
            for position, item in enumerate(value):
                visit(item, (*inner, position))
        if fault:
            found = (*index, start + inner[0], *inner[1:]) if inner else index
            raise Problem(kind, f"{checks.shown(name, found)} {fault}", array=name, index=found)

    visit(value, ())


def _shape_of_first(value: Any) -> list[int]:
    """Return the lengths of nested lists and of their first items, as far as an array may be deep."""
    shape: list[int] = []
    while isinstance(value, list) and len(shape) <= binary.MAX_RANK:
        shape.append(len(value))
        value = value[0] if value else 0.0
    return shape


def _kind(value: Any) -> str:
    names = {str: "a string", dict: "an object", bool: "a boolean", type(None): "null", list: "a list"}
    return names.get(type(value), "a number")
