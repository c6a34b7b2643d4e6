"""The safetensors format, bytes from strangers in, named arrays that share their memory out; and arrays in, bytes out.

A file is eight bytes with the length of a JSON header, the header `{name: {"dtype", "shape", "data_offsets"}}`, and the
tensors' bytes. It holds several tensors where an .npy file holds one. Here the header is at most `MAX_HEADER` bytes,
only plain numbers pass, and the tensors must tile the bytes: no hole, no overlap, nothing beyond the end.
Format: https://github.com/huggingface/safetensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import orjson
from pydantic import Field, ValidationError

from serving.codecs import buffers as raw
from serving.problem_details import UnreadableBody, WrongDtype
from serving.schemas import Document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

MEDIA_TYPE = "application/vnd.safetensors"
MAX_HEADER = 2**16
METADATA = "__metadata__"
DTYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
} | {f"{kind}{8 * size}": np.dtype(f"<{kind.lower()}{size}") for kind in "IU" for size in (1, 2, 4, 8)}
_NAMES = {np.dtype(np.float32): "F32", np.dtype(np.int32): "I32"}
_PREFIX = 8
_ALIGNMENT = 8

Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]


class Entry(Document):
    """One tensor of the header."""

    dtype: str
    shape: tuple[Count, ...]
    data_offsets: tuple[Count, Count]


def read(body: bytes | bytearray, max_bytes: int) -> dict[str, NDArray[Any]]:
    """The tensors of a file, as views of it.

    Args:
        body: The whole file.
        max_bytes: The most that one tensor may take as float32.

    Raises:
        UnreadableBody: Not a safetensors file, or its header and its bytes disagree.
        WrongDtype: A type that is none of `DTYPES`.
        WrongShape: More axes than any field has.
        BodyTooLarge: A tensor is small as it was sent and too large as float32.
    """
    entries, start = _header(body)
    data = memoryview(body)[start:]
    _check_tiles(entries, len(data))
    return {name: _tensor(data, entry, name, max_bytes) for name, entry in entries.items()}


def write(named: Mapping[str, NDArray[np.float32 | np.int32]], metadata: Mapping[str, str]) -> bytes:
    """A file of float32 and int32 tensors, with words about them."""
    header: dict[str, Any] = {METADATA: dict(metadata)}
    position = 0
    for name, array in named.items():
        offsets = [position, position := position + array.nbytes]
        header[name] = {"dtype": _NAMES[array.dtype], "shape": array.shape, "data_offsets": offsets}
    text = orjson.dumps(header)
    text += b" " * (-len(text) % _ALIGNMENT)
    tensors = (np.ascontiguousarray(array, DTYPES[_NAMES[array.dtype]]).reshape(-1).data for array in named.values())
    return b"".join((len(text).to_bytes(_PREFIX, "little"), text, *tensors))


def _header(body: bytes | bytearray) -> tuple[dict[str, Entry], int]:
    """The tensors that the header tells of, and the offset of the data."""
    length = int.from_bytes(body[:_PREFIX], "little")
    if len(body) < _PREFIX:
        raise UnreadableBody(f"expected a safetensors file but the body has {len(body)} bytes")
    if length > MAX_HEADER:
        raise UnreadableBody(f"the safetensors header says it is {length} bytes long; the limit is {MAX_HEADER}")
    if len(body) < _PREFIX + length:
        raise UnreadableBody(f"the safetensors file ends inside its header, after {len(body)} bytes")
    try:
        document = orjson.loads(body[_PREFIX : _PREFIX + length])
    except orjson.JSONDecodeError as error:
        raise UnreadableBody(f"the safetensors header is not JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(document, dict):
        raise UnreadableBody("the safetensors header is not an object of tensors")
    document.pop(METADATA, None)
    return {name[:64]: _entry(value, name[:64]) for name, value in document.items()}, _PREFIX + length


def _entry(value: Any, name: str) -> Entry:
    try:
        return Entry.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(key)[:32] for key in (name, *first["loc"]))
        raise UnreadableBody(
            f'{place} in the safetensors header: {first["msg"]}; expected "dtype", "shape", "data_offsets"'
        ) from error


def _check_tiles(entries: Mapping[str, Entry], size: int) -> None:
    """Every byte belongs to one tensor."""
    position = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, end = entry.data_offsets
        if begin != position or end < begin or end > size:
            raise UnreadableBody(
                f"{name}: data_offsets [{begin}, {end}] in the safetensors header; "
                f"expected them to begin at {position} and to end by {size}"
            )
        position = end
    if position != size:
        raise UnreadableBody(f"{size - position} bytes follow the last tensor of the safetensors file")


def _tensor(data: memoryview, entry: Entry, name: str, max_bytes: int) -> NDArray[Any]:
    if entry.dtype not in DTYPES:
        raise WrongDtype(f'{name}: dtype "{entry.dtype[:32]}" is not read; use one such as "F32"', array=name)
    begin, end = entry.data_offsets
    return raw.view(data[begin:end], DTYPES[entry.dtype], entry.shape, name, max_bytes, "data_offsets")
