"""Arrays in JSON: nested lists of numbers, or `{"shape", "dtype", "base64"}` with little-endian bytes in C order."""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import FailFast, Field

from serving import checks
from serving.codecs import binary
from serving.document import COORDINATES, COUNTS, Document, parsed, validated
from serving.errors import Problem

DTYPES = frozenset(
    {"float16", "float32", "float64", "bool"} | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
_MOST_FRAMES = 10**9


class Base64Array(Document):
    """An array as little-endian bytes in C order."""

    shape: Annotated[tuple[int, ...], FailFast()]  # one error is enough, a million would be collected
    dtype: str = Field(examples=["float32"])
    base64: str


def read(
    body: bytes | bytearray, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()
) -> tuple[dict[str, NDArray[Any]], bool, int | None, list[int] | None]:
    """Return the arrays of a body `{"inputs": {name: array}}`, which may hold `"frames": count`, too.

    The array `cotangents.solution` is the member `solution` of `cotangents`, which stands beside `inputs`. Samples on
    points (there is an input `counts`, which the body leaves out) may have unequal numbers of them: lists are padded,
    and counted.

    Returns:
        The arrays by name, whether one of them was in base64, the frames that it asks for, if it says so, and the
        points of every sample, where they are lists of unequal lengths.
    """
    document = parsed(body)
    members: dict[str, str] = {}  # of the document, each with the first of its arrays
    for name in names:
        role, _, last = name.rpartition(".")
        members.setdefault(role or "inputs", last)
    objects = isinstance(document, dict) and all(isinstance(document.get(member), dict) for member in members)
    if not objects or set(document) - {"frames"} != set(members):
        shown = ", ".join(f'"{member}": {{"{first}": <array>}}' for member, first in members.items())
        raise Problem("unreadable-body", f"expected {{{shown}}} as the JSON body")
    inputs: dict[str, Any] = {}
    for member in members:
        prefix = "" if member == "inputs" else f"{member}."
        inputs |= {f"{prefix}{name}": value for name, value in document[member].items()}
    checks.names(inputs, names, optional)
    counts = _lengths(inputs.get(COORDINATES)) if COUNTS in names and COUNTS not in inputs else None
    if counts is not None:
        if 4 * len(counts) * max(counts) > max_bytes:
            detail = f"{len(counts)} samples padded to {max(counts)} points take more than {max_bytes} bytes"
            raise Problem("body-too-large", f"{COORDINATES}: {detail}")
        inputs = {name: _padded(value, name, counts) for name, value in inputs.items()} | {COUNTS: counts}
    frames = document.get("frames")
    if frames is not None and not (type(frames) is int and 0 < frames < _MOST_FRAMES):
        raise Problem("unreadable-body", "frames: expected a positive whole number")
    coded = False
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in inputs.items():
        if isinstance(value, dict):
            coded, path = True, _path(name)
            found = validated(Base64Array, value, path)
            arrays[name] = from_base64(found.base64, found.dtype, found.shape, name, f"{path}.base64", max_bytes)
        else:
            arrays[name] = nested(value, name)
    return arrays, coded, frames, counts


def _lengths(coordinates: Any) -> list[int] | None:
    """Return the points of every sample of nested lists `[sample][point][dimension]` where they are unequal."""
    if not isinstance(coordinates, list) or not all(isinstance(each, list) and each for each in coordinates):
        return None
    lengths = [len(each) for each in coordinates]
    nested_deeper = all(isinstance(each[0], list) for each in coordinates)
    return lengths if nested_deeper and len(set(lengths)) > 1 else None


def _padded(value: Any, name: str, counts: list[int]) -> Any:
    """Return the lists of all samples on points with null behind the shorter ones; numbers by sample as they are."""
    if not isinstance(value, list) or not any(isinstance(each, list) for each in value):
        return value
    for sample, (each, count) in enumerate(zip(value, counts, strict=False)):
        if not isinstance(each, list) or len(each) != count:
            found = f"has {len(each)} points" if isinstance(each, list) else f"is {_kind(each)}"
            detail = f"{name}[{sample}] {found}; {COORDINATES}[{sample}] has {count}"
            raise Problem("wrong-shape", detail, array=name, index=[sample])
    most = max(counts)
    blank = [None] * len(value[0][0]) if isinstance(value[0][0], list) else None
    return [[*each, *[blank] * (most - len(each))] for each in value]


def from_base64(text: str, dtype: str, shape: Sequence[int], name: str, path: str, max_bytes: int) -> NDArray[Any]:
    """Return an array, a view of the decoded bytes; `path` is where the document has the text."""
    check_dtype(dtype, name)
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Problem("unreadable-body", f"{path}: {error}") from error
    return binary.view(data, np.dtype(dtype).newbyteorder("<"), shape, name, max_bytes, "base64")


def check_dtype(dtype: str, name: str) -> None:
    """Refuse an array of a type that is none of `DTYPES`."""
    if dtype not in DTYPES:
        detail = f'{name}: dtype "{dtype[:32]}" is not read; use one such as "float32"'
        raise Problem("wrong-dtype", detail, array=name)


def encode(array: NDArray[Any]) -> dict[str, Any]:
    """Return an array as the document `{"shape", "dtype", "base64"}`."""
    return {"shape": array.shape, "dtype": array.dtype.name, "base64": base64_text(array)}


def base64_text(array: NDArray[Any]) -> str:
    """Return the little-endian bytes of an array, in C order, as text."""
    return base64.b64encode(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data).decode("ascii")


def nested(value: Any, name: str) -> NDArray[Any]:
    """Return an array of nested lists: integers if all numbers are, null as NaN, which no model takes.

    A number is an array without axes. A fault is that of the first value that is no number, or whose list is longer or
    shorter than those before it.
    """
    if type(value) in {int, float}:
        return np.array(value)
    if not isinstance(value, list):
        detail = f"{name}: expected nested lists of numbers, a number or base64 but got {_kind(value)}"
        raise Problem("wrong-shape", detail, array=name)
    kinds = _kinds(value)
    if not kinds <= {int, float}:
        _raise_for_first_fault(value, name)
    try:
        return np.array(value, None if kinds == {int} else np.float64)
    except (ValueError, TypeError, OverflowError):
        _raise_for_first_fault(value, name)
        raise Problem("unreadable-body", f"{_path(name)}: nested lists of numbers of equal length expected") from None


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


def _raise_for_first_fault(value: list[Any], name: str) -> None:
    """Raise for the first value that is no number, or whose list differs in length from those before it."""
    shape: list[int] = []
    first: Any = value
    while isinstance(first, list) and len(shape) <= binary.MAX_RANK:
        shape.append(len(first))
        first = first[0] if first else 0.0
    if len(shape) > binary.MAX_RANK:
        raise Problem("wrong-shape", f"{name}: lists nested deeper than {binary.MAX_RANK}", array=name)

    numbers = {int, float, bool, type(None)}

    def visit(value: Any, index: tuple[int, ...]) -> None:
        kind, fault, depth = "wrong-shape", "", len(index)
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
                visit(item, (*index, position))
        if fault:
            raise Problem(kind, f"{checks.shown(name, index)} {fault}", array=name, index=index)

    visit(value, ())


def _kind(value: Any) -> str:
    names = {str: "a string", dict: "an object", bool: "a boolean", type(None): "null", list: "a list"}
    return names.get(type(value), "a number")
