"""The binary formats .npy and safetensors: arrays from request bodies, and arrays as response bodies.

Arrays share the memory of the body, once their shape has been checked against its bytes. `numpy.load` is unsafe for
request bodies: it unpickles, and it allocates what the header claims before it has seen the data. Here
`numpy.lib.format` parses the header, of at most `NPY_MAX_HEADER` bytes.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from tokenize import TokenError
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
import orjson
from numpy.lib import format as npy_format
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, FailFast, Field

from serving.codecs.json_text import check_names
from serving.document import validated
from serving.errors import Problem

Order = Literal["C", "F"]

Buffer = bytes | bytearray | memoryview
MAX_RANK = 8
_LARGE = 2**20  # bytes that are copied in some tenth of a millisecond


def view(
    data: Buffer | NDArray[np.uint8],
    dtype: np.dtype[Any],
    shape: Sequence[int],
    name: str,
    max_bytes: int,
    holder: str,
    order: Order = "C",
) -> NDArray[Any]:
    """Return the array in a buffer without a copy, once its shape has been checked.

    The shape is what the sender claims: it has to take exactly the bytes of the buffer in `dtype`, and at most
    `max_bytes` as float32. Messages name the array and what holds it.
    """
    values = count(shape, name)
    if values * dtype.itemsize != len(data):
        size = _digits(values * dtype.itemsize)
        detail = f"{name}: shape {_sizes(shape)} of {dtype.name} takes {size} bytes, but {holder} holds {len(data)}"
        raise Problem("unreadable-body", detail)
    if values * 4 > max_bytes:
        detail = f"{name}: shape {list(shape)} takes {values * 4} bytes as float32; the limit is {max_bytes}"
        raise Problem("body-too-large", detail)
    return shaped(data.view(dtype) if isinstance(data, np.ndarray) else np.frombuffer(data, dtype), shape, name, order)


def shaped(values: NDArray[Any], shape: Sequence[int], name: str, order: Order = "C") -> NDArray[Any]:
    """Return values in a shape that holds as many (`count`), unless no array has it."""
    try:
        return values.reshape(shape, order=order)
    except (ValueError, TypeError) as error:  # sizes beyond any address, beside one that is zero; or true and false
        raise _no_field(shape, name) from error


def joined(*parts: Buffer) -> bytes | memoryview:
    """Return bytes one behind the other; large ones are copied while other threads run."""
    size = sum(map(len, parts))
    if size < _LARGE:
        return b"".join(parts)
    found, position = np.empty(size, np.uint8), 0
    for part in parts:
        found[position : position + len(part)] = np.frombuffer(part, np.uint8)
        position += len(part)
    return found.data


def count(shape: Sequence[int], name: str) -> int:
    """Return how many values a shape holds; one that no array has is refused before its sizes are multiplied."""
    if len(shape) > MAX_RANK or min(shape, default=0) < 0:
        raise _no_field(shape, name)
    return math.prod(shape)


def _no_field(shape: Sequence[int], name: str) -> Problem:
    return Problem("wrong-shape", f"{name}: shape {_sizes(shape)} is not the shape of a field", array=name)


def _sizes(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(_digits, shape[: 2 * MAX_RANK]))}]"


def _digits(count: int) -> str:
    """Return a number for a message; one from a request may have more digits than Python will write."""
    return str(count) if abs(count) < 10**18 else "more than 10^18"


NPY = "application/x-npy"
NPY_MAX_HEADER = 10_000
_NPY_PREFIX = 12  # magic string, version and the length of the header
_NUMBERS = frozenset({"b1", "f2", "f4", "f8", *(f"{kind}{size}" for kind in "iu" for size in "1248")})
# What the parsers beneath `read_array_header` raise for text that is no header.
_MALFORMED = (ValueError, TypeError, SyntaxError, TokenError, KeyError, IndexError, AttributeError)
_EXHAUSTED = (RecursionError, MemoryError, OverflowError)  # nested or long literals, within the bounded header
_REFUSED_KINDS = {
    "O": "Python objects (pickle), which are never read",
    "V": "raw or structured records",
    "S": "byte strings",
    "U": "strings",
    "M": "dates",
    "m": "durations",
    "c": "complex numbers",
}


def read_npy(body: Buffer, name: str, max_bytes: int) -> NDArray[Any]:
    """Return the array in an .npy file, a view of it with the file's dtype, shape and memory order."""
    start = 10 if body[6:7] == b"\x01" else _NPY_PREFIX
    start += min(int.from_bytes(body[8:start], "little"), NPY_MAX_HEADER)
    shape, fortran, dtype = _npy_header(bytes(body[:start]), name)
    if dtype.str[1:] not in _NUMBERS:
        kind = _REFUSED_KINDS.get(dtype.kind, "floating-point numbers of a size that is not portable")
        detail = f'{name}: dtype "{dtype.str}" means {kind}; send plain numbers such as "<f4"'
        raise Problem("wrong-dtype", detail, array=name)
    data = memoryview(body)[start:]
    return view(data, dtype, shape, name, max_bytes, "the .npy file", "F" if fortran else "C")


def write_npy(array: NDArray[Any]) -> bytes | memoryview:
    """Return an .npy file (version 1) of a numeric array, copied once."""
    array = np.asarray(array, order="C")
    return joined(_written_npy_header(array.shape, array.dtype.str), array.reshape(-1).view(np.uint8).data)


@lru_cache(maxsize=256)  # the requests of one client differ in their values alone; parsing takes 30 microseconds
def _npy_header(text: bytes, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    file = io.BytesIO(text)
    try:
        version = npy_format.read_magic(file)
        if version not in {(1, 0), (2, 0), (3, 0)}:
            detail = f"{name}: .npy format version {version}; expected (1, 0), (2, 0) or (3, 0)"
            raise Problem("unreadable-body", detail)
        # Version 3 differs from 2 in the names of records, which are refused.
        parse = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        return parse(file, NPY_MAX_HEADER)
    except (*_MALFORMED, *_EXHAUSTED) as error:
        reason = str(error).partition("\n")[0].partition(": <ast.")[0][:160]  # Python names its own object there
        detail = f"{name}: not an .npy file of at most {NPY_MAX_HEADER} header bytes: {reason}"
        raise Problem("unreadable-body", detail) from error


@lru_cache(maxsize=256)
def _written_npy_header(shape: tuple[int, ...], descr: str) -> bytes:
    header = io.BytesIO()
    npy_format.write_array_header_1_0(header, {"shape": shape, "fortran_order": False, "descr": descr})
    return header.getvalue()


SAFETENSORS = "application/vnd.safetensors"
SAFETENSORS_MAX_HEADER = 2**16  # the library's own bound is 100 MB
SAFETENSORS_DTYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
} | {f"{kind}{8 * size}": np.dtype(f"<{kind.lower()}{size}") for kind in "IU" for size in (1, 2, 4, 8)}
_SAFETENSORS_NAMES = {dtype: name for name, dtype in SAFETENSORS_DTYPES.items()}
_LENGTH_BYTES = 8  # the length of the header


class _Entry(BaseModel):
    """A tensor in the header: its bytes are those from one offset behind the header up to another one."""

    model_config = ConfigDict(strict=True, extra="forbid")

    dtype: str
    shape: Annotated[list[Annotated[int, Field(ge=0, lt=2**64)]], FailFast()]
    data_offsets: Annotated[list[Annotated[int, Field(ge=0, lt=2**64)]], Field(min_length=2, max_length=2)]


def read_safetensors(body: Buffer, max_bytes: int) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file by name, views of it.

    As in the library, whose `deserialize` copies a file twice while nothing else runs, the tensors have to tile the
    bytes behind the header.
    """
    length = int.from_bytes(body[:_LENGTH_BYTES], "little")
    if length > SAFETENSORS_MAX_HEADER:
        detail = f"the safetensors header says it is {length} bytes long; the limit is {SAFETENSORS_MAX_HEADER}"
        raise Problem("unreadable-body", detail)
    if len(body) < _LENGTH_BYTES + length:
        raise Problem("unreadable-body", f"not a safetensors file: it ends within its header of {length} bytes")
    data = memoryview(body)[_LENGTH_BYTES + length :]
    tensors: dict[str, NDArray[Any]] = {}
    position = 0
    entries = _header(bytes(body[_LENGTH_BYTES : _LENGTH_BYTES + length]))
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        shown, (begin, end) = name[:64], entry.data_offsets
        if begin != position or not begin <= end <= len(data):
            detail = f"{shown}: data_offsets {begin} and {end}; expected {position} and no more than {len(data)}"
            raise Problem("unreadable-body", detail)
        position = end
        if (dtype := SAFETENSORS_DTYPES.get(entry.dtype)) is None:
            detail = f'{shown}: dtype "{entry.dtype[:32]}" is not read; use one such as "F32"'
            raise Problem("wrong-dtype", detail, array=shown)
        tensors[name] = view(data[begin:end], dtype, entry.shape, shown, max_bytes, "its part of the file")
    if position != len(data):
        raise Problem("unreadable-body", f"{len(data) - position} bytes follow the last tensor")
    return dict(sorted(tensors.items()))


def read_sample(file: BinaryIO, index: int) -> tuple[dict[str, NDArray[Any]], int]:
    """Return one sample of every tensor of a file, whose first axes count samples, and how many all tensors have.

    The last one stands for an index beyond them. Nothing else of the file is read.

    Raises:
        Problem: unreadable-body: The header is none.
        ValueError, KeyError: A tensor has no samples, or is not as the header says.
    """
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    entries = _header(file.read(min(length, SAFETENSORS_MAX_HEADER)))
    count = min(entry.shape[0] if entry.shape else 0 for entry in entries.values())
    last, size = min(index, count - 1), os.fstat(file.fileno()).st_size
    found: dict[str, NDArray[Any]] = {}
    for name, entry in entries.items():
        dtype, shape, (begin, end) = SAFETENSORS_DTYPES[entry.dtype], entry.shape[1:], entry.data_offsets
        each = math.prod(shape) * dtype.itemsize
        if last < 0 or entry.shape[0] * each != end - begin or _LENGTH_BYTES + length + end > size:
            raise ValueError(f"{name}: expected samples of {each} bytes")
        file.seek(_LENGTH_BYTES + length + begin + last * each)
        found[name] = np.frombuffer(file.read(each), dtype).reshape(shape)[()]  # of no axes: a number
    return found, count


def _header(text: bytes) -> dict[str, _Entry]:
    try:
        entries = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Problem("unreadable-body", f"not a safetensors file: its header is not JSON: {error.msg}") from error
    check_names(text, entries)
    if not isinstance(entries, dict):
        raise Problem("unreadable-body", "not a safetensors file: its header is no object")
    entries.pop("__metadata__", None)
    return {name: validated(_Entry, value, f"header of {name[:64]}") for name, value in entries.items()}


def write_safetensors(named: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes | memoryview:
    """Return a file of tensors, with metadata about them; each tensor is copied once.

    Types of many bytes come first, so that each tensor lies at a multiple of its size.
    """
    arrays = {name: np.asarray(array, order="C") for name, array in named.items()}
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        begin, end = end, end + arrays[name].nbytes
        about = {"dtype": _SAFETENSORS_NAMES[arrays[name].dtype], "shape": arrays[name].shape}
        header[name] = {**about, "data_offsets": (begin, end)}
    text = orjson.dumps(header)
    text += b" " * (-len(text) % 8)
    parts = (arrays[name].reshape(-1).view(np.uint8).data for name in order)
    return joined(len(text).to_bytes(_LENGTH_BYTES, "little"), text, *parts)
