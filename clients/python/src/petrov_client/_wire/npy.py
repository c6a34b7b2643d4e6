"""A writer of `.npy` bytes, and a reader that does not trust them.

NumPy's own reader evaluates the header as a Python literal and allocates what the header declares. This reader accepts
the one header that NumPy writes for little-endian float32 in C order, bounds its length, and requires exactly the
number of bytes that the shape needs.
"""

from __future__ import annotations

import io
import math
import re

import numpy as np
import numpy.typing as npt

from petrov_client._values.exceptions import InvalidResponse

MEDIA_TYPE = "application/x-npy"

_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {b"\x01\x00": 2, b"\x02\x00": 4, b"\x03\x00": 4}
#: NumPy pads headers to a multiple of 64 bytes; a float32 array needs 64 or 128.
_LONGEST_HEADER = 1024
#: At most eight axes of one to nine digits each, none of them empty: a response holds at least one number.
_HEADER = re.compile(
    rb"\{'descr': '<f4', 'fortran_order': False, 'shape': \(((?:[1-9]\d{0,8}, ?){0,7}(?:[1-9]\d{0,8},?)?)\), \} *\n"
)


def encode(fields: npt.NDArray[np.float32]) -> bytes:
    """Return an array as `.npy` bytes, version 1.0."""
    buffer = io.BytesIO()
    np.save(buffer, fields, allow_pickle=False)
    return buffer.getvalue()


def decode(body: bytes) -> npt.NDArray[np.float32]:
    """Return the array of `.npy` bytes (little-endian float32 in C order), a read-only view of them.

    Raises:
        InvalidResponse: The bytes are anything else, or more or fewer than the header declares.
    """
    shape, start = _header(body)
    expected, found = 4 * math.prod(shape), len(body) - start
    if expected != found:
        raise InvalidResponse(f".npy response: expected {expected} bytes for shape {shape} but got {found}")
    return np.frombuffer(body, dtype="<f4", offset=start).reshape(shape)


def _header(body: bytes) -> tuple[tuple[int, ...], int]:
    """Return the shape, and the offset of the data."""
    width = _LENGTH_BYTES.get(body[6:8])
    if body[:6] != _MAGIC or width is None:
        raise InvalidResponse(f".npy response: expected the magic bytes of a .npy file but got {body[:8]!r}")
    start = 8 + width
    length = int.from_bytes(body[8:start], "little")
    if length > _LONGEST_HEADER or len(body) < start + length:
        raise InvalidResponse(f".npy response: a header of {length} bytes in a body of {len(body)}")
    return _shape(body[start : start + length]), start + length


def _shape(header: bytes) -> tuple[int, ...]:
    match = _HEADER.fullmatch(header)
    if match is None:
        raise InvalidResponse(f".npy response: expected '<f4' in C order but got the header {header[:100]!r}")
    return tuple(int(number) for number in match[1].replace(b",", b" ").split())
