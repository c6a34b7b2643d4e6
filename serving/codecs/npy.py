"""The .npy format: arrays from request bodies, and arrays as response bodies.

`numpy.load` is unsafe for request bodies: it unpickles, and it allocates what the header claims before it has seen the
data. Here `numpy.lib.format` parses the header, of at most `MAX_HEADER` bytes, and the array is a view of the body.
"""

from __future__ import annotations

import io
from functools import lru_cache
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy_format

from serving.codecs import buffers
from serving.errors import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEDIA_TYPE = "application/x-npy"
MAX_HEADER = 10_000
_PREFIX = 12  # magic string, version and the length of the header
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


def read(body: bytes | bytearray, name: str, max_bytes: int) -> NDArray[Any]:
    """Return the array in an .npy file.

    Args:
        body: The whole file.
        name: Name of the array in error messages.
        max_bytes: The most bytes that the array may take as float32.

    Returns:
        A view of `body` with the file's dtype, shape and memory order.

    Raises:
        Problem: unreadable-body: The body is no .npy file, or its header and its length disagree.
        Problem: wrong-dtype: The values are objects, records, strings or complex numbers.
        Problem: wrong-shape: There are more axes than any field has, or sizes that no array has.
        Problem: body-too-large: The array is small in its own type and too large as float32.
    """
    start = _start_of_data(body)
    shape, fortran, dtype = _header(bytes(body[:start]), name)
    if dtype.str[1:] not in _NUMBERS:
        kind = _REFUSED_KINDS.get(dtype.kind, "floating-point numbers of a size that is not portable")
        raise Problem(
            "wrong-dtype", f'{name}: dtype "{dtype.str}" means {kind}; send plain numbers such as "<f4"', array=name
        )
    data = memoryview(body)[start:]
    return buffers.view(data, dtype, shape, name, max_bytes, "the .npy file", "F" if fortran else "C")


def write(array: NDArray[Any]) -> bytes:
    """Return an .npy file (version 1) of a numeric array, copied once."""
    array = np.asarray(array, order="C")
    return b"".join((_written_header(array.shape, array.dtype.str), array.reshape(-1).data))


def _start_of_data(body: bytes | bytearray) -> int:
    """Return the offset that the header claims for the data, at most that of the longest header."""
    start = 10 if body[6:7] == b"\x01" else _PREFIX
    return start + min(int.from_bytes(body[8:start], "little"), MAX_HEADER)


@lru_cache(maxsize=256)  # the requests of one client differ in their values alone; parsing takes 30 microseconds
def _header(text: bytes, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, memory order and dtype of the array."""
    file = io.BytesIO(text)
    try:
        version = npy_format.read_magic(file)
        if version not in {(1, 0), (2, 0), (3, 0)}:
            raise Problem(
                "unreadable-body", f"{name}: .npy format version {version}; expected (1, 0), (2, 0) or (3, 0)"
            )
        # Version 3 differs from 2 in the names of records, which are refused.
        parse = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        return parse(file, MAX_HEADER)
    except (*_MALFORMED, *_EXHAUSTED) as error:
        raise Problem(
            "unreadable-body", f"{name}: not an .npy file of at most {MAX_HEADER} header bytes: {_short(error)}"
        ) from error


@lru_cache(maxsize=256)
def _written_header(shape: tuple[int, ...], descr: str) -> bytes:
    """Return magic string and header of an array in C order."""
    header = io.BytesIO()
    npy_format.write_array_header_1_0(header, {"shape": shape, "fortran_order": False, "descr": descr})
    return header.getvalue()


def _short(error: BaseException) -> str:
    return str(error).partition("\n")[0][:160]
