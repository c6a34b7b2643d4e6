"""A writer of safetensors bytes, and a reader that does not trust them.

The format is the length of a header (8 bytes), the header as JSON, and the tensors without gaps. This reader bounds the
header, accepts little-endian float32 and booleans only, and requires exactly the bytes that the shapes need.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from petrov_client._values.exceptions import InvalidResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

MEDIA_TYPE = "application/vnd.safetensors"

_TYPES = {"<f4": "F32", "<i4": "I32"}
_READ = {"F32": "<f4", "BOOL": "?"}
_PREFIX = 8
_ALIGNMENT = 8
_LONGEST_HEADER = 2**16
_MOST_AXES = 8


def encode(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return arrays of little-endian float32 or int32 as safetensors bytes."""
    header, blocks, end = dict[str, Any](), list[bytes](), 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        header[name] = {"dtype": _TYPES[array.dtype.str], "shape": array.shape, "data_offsets": [start, end]}
        blocks.append(array.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return b"".join((len(text).to_bytes(_PREFIX, "little"), text, *blocks))


def decode(body: bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of safetensors bytes by name, read-only views of them.

    Raises:
        InvalidResponse: The bytes are anything else, or more or fewer than the header declares.
    """
    length = int.from_bytes(body[:_PREFIX], "little")
    if length > _LONGEST_HEADER or len(body) < _PREFIX + length:
        raise InvalidResponse(f"safetensors response: a header of {length} bytes in a body of {len(body)}")
    try:
        header = json.loads(body[_PREFIX : _PREFIX + length])
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        return {name: _tensor(entry, body, _PREFIX + length) for name, entry in tensors.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidResponse(f"safetensors response: the header is not readable: {error!r}") from error


def _tensor(entry: Mapping[str, Any], body: bytes, origin: int) -> npt.NDArray[Any]:
    """Return one array.

    Args:
        entry: Its description in the header.
        body: All bytes.
        origin: Where the tensors begin.

    Raises:
        InvalidResponse: It has another type, or its bytes are not those of its shape.
    """
    shape, (start, end) = tuple(int(size) for size in entry["shape"]), entry["data_offsets"]
    if entry["dtype"] not in _READ or len(shape) > _MOST_AXES or min(shape, default=1) < 1:
        raise InvalidResponse(f"safetensors response: expected F32 but got {entry['dtype']} {shape[:_MOST_AXES]}")
    dtype = np.dtype(_READ[entry["dtype"]])
    if end - start != dtype.itemsize * math.prod(shape) or not 0 <= start <= end <= len(body) - origin:
        raise InvalidResponse(f"safetensors response: the bytes {start} to {end} do not hold the shape {shape}")
    return np.frombuffer(body[origin + start : origin + end], dtype).reshape(shape)
