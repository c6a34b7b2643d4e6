"""Arrays in JSON: nested lists of numbers, or `{"shape", "dtype", "base64"}` with little-endian bytes in C order."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError

from serving.codecs import binary
from serving.codecs.names import check_names
from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

MEDIA_TYPE = "application/json"
DTYPES = frozenset(
    {"float16", "float32", "float64", "bool"} | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
_MAX_KEYS = 16
_MOST_FRAMES = 10**9


@dataclass(frozen=True)
class Request:
    """A parsed body.

    Attributes:
        arrays: By name.
        base64: Whether one of them was in base64.
        frames: How many frames of a trajectory it asks for, if it says so.
    """

    arrays: dict[str, NDArray[Any]]
    base64: bool
    frames: int | None


class Base64Array(BaseModel):
    """An array as little-endian bytes in C order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: Annotated[tuple[int, ...], FailFast()]  # one error is enough, a million would be collected
    dtype: str = Field(examples=["float32"])
    base64: str


def read(body: bytes | bytearray, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()) -> Request:
    """Return the arrays of a body `{"inputs": {name: array}}`, which may hold `"frames": count`, too.

    The array `cotangents.solution` is the member `solution` of `cotangents`, which stands beside `inputs`.

    Args:
        body: The whole body.
        names: Inputs and parameters of the model.
        max_bytes: The most bytes that one array may take as float32.
        optional: The names that a body may leave out.

    Raises:
        Problem: unreadable-body: The body is not such a document.
        Problem: wrong-input, wrong-dtype or wrong-shape: An array is missing, unknown, or not numeric.
        Problem: body-too-large: An array would be too large as float32.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        hint = "; JSON has no NaN and no Infinity" if b"NaN" in body or b"Infinity" in body else ""
        raise Problem(
            "unreadable-body", f"not JSON: {error.msg} at line {error.lineno} column {error.colno}{hint}"
        ) from error
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
    check_names(inputs, names, optional)
    frames = document.get("frames")
    if frames is not None and not (type(frames) is int and 0 < frames < _MOST_FRAMES):
        raise Problem("unreadable-body", "frames: expected a positive whole number")
    coded = {name for name, value in inputs.items() if isinstance(value, dict)}
    arrays = {
        name: _decode(value, name, max_bytes) if name in coded else nested(value, name)
        for name, value in inputs.items()
    }
    return Request(arrays, bool(coded), frames)


def encode(array: NDArray[Any]) -> dict[str, Any]:
    """Return an array as the document `{"shape", "dtype", "base64"}`."""
    data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data
    return {"shape": array.shape, "dtype": array.dtype.name, "base64": base64.b64encode(data).decode("ascii")}


def nested(value: Any, name: str) -> NDArray[Any]:
    """Return an array of nested lists: integers if all numbers are, null as NaN, which no model takes.

    A number is an array without axes.

    Raises:
        Problem: wrong-input, wrong-dtype or wrong-shape: A value is no number, or a list is longer or shorter than
            those before it; the first
            is named.
        Problem: unreadable-body: No float64 holds one of the numbers.
    """
    if type(value) in {int, float}:
        return np.array(value)
    if not isinstance(value, list):
        raise Problem(
            "wrong-shape",
            f"{name}: expected nested lists of numbers, a number or base64 but got {_kind(value)}",
            array=name,
        )
    kinds = _kinds(value)
    if not kinds <= {int, float}:
        _raise_for_first_fault(value, name)
    try:
        return np.array(value, None if kinds == {int} else np.float64)
    except (ValueError, TypeError, OverflowError):
        _raise_for_first_fault(value, name)
        raise Problem("unreadable-body", f"{_path(name)}: nested lists of numbers of equal length expected") from None


def _path(name: str) -> str:
    """Return the path of an array in the document."""
    return name if "." in name else f"inputs.{name}"


def _decode(value: dict[str, Any], name: str, max_bytes: int) -> NDArray[Any]:
    """Return the array of `{"shape", "dtype", "base64"}`, a view of the decoded bytes."""
    if len(value) > _MAX_KEYS:  # pydantic would describe an error per key
        raise Problem("unreadable-body", f'{_path(name)} has {len(value)} keys; expected "shape", "dtype", "base64"')
    try:
        coded = Base64Array.model_validate(value)
        data = base64.b64decode(coded.base64, validate=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part)[:32] for part in first["loc"])
        raise Problem(
            "unreadable-body", f'{_path(name)}.{key}: {first["msg"]}; expected "shape", "dtype", "base64"'
        ) from error
    except (binascii.Error, ValueError) as error:
        raise Problem("unreadable-body", f"{_path(name)}.base64: {error}") from error
    if coded.dtype not in DTYPES:
        raise Problem(
            "wrong-dtype", f'{name}: dtype "{coded.dtype[:32]}" is not read; use one such as "float32"', array=name
        )
    dtype = np.dtype(coded.dtype).newbyteorder("<")
    return binary.view(data, dtype, coded.shape, name, max_bytes, "base64")


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
    _visit(value, shape, (), name)


def _visit(value: Any, shape: list[int], index: tuple[int, ...], name: str) -> None:
    location = f"{name}[{','.join(map(str, index))}]" if index else name
    if len(index) == len(shape):
        if isinstance(value, list):
            raise Problem(
                "wrong-shape", f"{location} is a list; expected a number as in the rows before", array=name, index=index
            )
        if value is not None and not isinstance(value, int | float):
            raise Problem("wrong-dtype", f"{location} is {_kind(value)}; expected a number", array=name, index=index)
        return
    if not isinstance(value, list):
        expected = f"expected a list of {shape[len(index)]}"
        raise Problem("wrong-shape", f"{location} is {_kind(value)}; {expected}", array=name, index=index)
    if len(value) != shape[len(index)]:
        raise Problem(
            "wrong-shape",
            f"{location} has {len(value)} entries; the ones before have {shape[len(index)]}",
            array=name,
            index=index,
        )
    for position, item in enumerate(value):
        _visit(item, shape, (*index, position), name)


def _kind(value: Any) -> str:
    """Return JSON's name for the type of a decoded value."""
    names = {str: "a string", dict: "an object", bool: "a boolean", type(None): "null", list: "a list"}
    return names.get(type(value), "a number")
