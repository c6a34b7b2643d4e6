"""The safetensors format: named arrays from request bodies, and arrays as response bodies.

The `safetensors` library parses the header and checks that the tensors tile the bytes that follow it. It copies every
tensor. Added here are a smaller bound on the header, the data types, and the gateway's limits on an array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from serving.codecs import buffers
from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

MEDIA_TYPE = "application/vnd.safetensors"
MAX_HEADER = 2**16  # the library's own bound is 100 MB
DTYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
} | {f"{kind}{8 * size}": np.dtype(f"<{kind.lower()}{size}") for kind in "IU" for size in (1, 2, 4, 8)}
_PREFIX = 8  # the length of the header


def read(body: bytes | bytearray, max_bytes: int) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file by name, in the order of their names: the library has them in none.

    Args:
        body: The whole file.
        max_bytes: The most bytes that one tensor may take as float32.

    Raises:
        Problem: unreadable-body: The body is no safetensors file, or its header and its bytes disagree.
        Problem: wrong-dtype: A type that is none of `DTYPES`.
        Problem: wrong-shape: There are more axes than any field has.
        Problem: body-too-large: A tensor is small in its own type and too large as float32.
    """
    length = int.from_bytes(body[:_PREFIX], "little")
    if length > MAX_HEADER:
        raise Problem(
            "unreadable-body", f"the safetensors header says it is {length} bytes long; the limit is {MAX_HEADER}"
        )
    try:
        entries = deserialize(bytes(body))  # type: ignore[no-untyped-call]  # its stub is not annotated
    except SafetensorError as error:
        raise Problem("unreadable-body", f"not a safetensors file: {str(error)[:160]}") from error
    return {name: _tensor(entry, name[:64], max_bytes) for name, entry in sorted(entries, key=lambda item: item[0])}


def write(named: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Return a file of tensors, with metadata about them."""
    return save({name: np.asarray(array, order="C") for name, array in named.items()}, dict(metadata))


def _tensor(entry: dict[str, Any], name: str, max_bytes: int) -> NDArray[Any]:
    if entry["dtype"] not in DTYPES:
        raise Problem("wrong-dtype", f'{name}: dtype "{entry["dtype"]}" is not read; use one such as "F32"', array=name)
    return buffers.view(entry["data"], DTYPES[entry["dtype"]], entry["shape"], name, max_bytes, "the safetensors file")
