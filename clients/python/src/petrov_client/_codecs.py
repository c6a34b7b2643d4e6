"""Arrays as bytes, `.npy` and safetensors, and the parts of a multipart response. Responses are not trusted."""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from petrov_client._errors import ConnectionFailed, InvalidResponse
from petrov_client._untrusted import printable

NPY, SAFETENSORS, MULTIPART = "application/x-npy", "application/vnd.safetensors", "multipart/mixed"
LONGEST_HEAD = 2**14
SAMPLE_TYPES = ("<f2", "<f4", "<f8", "|b1", "|u1", "|i1", "<i2", "<i4", "<i8")  # that a stored sample may have


def encode_npy(fields: npt.NDArray[Any]) -> bytes:
    """Return an array as `.npy` bytes."""
    buffer = io.BytesIO()
    np.save(buffer, fields, allow_pickle=False)
    return buffer.getvalue()


def decode_npy(body: bytes) -> npt.NDArray[np.float32]:
    """Return the array of `.npy` bytes (little-endian float32 in C order), a read-only view of them.

    NumPy reads the header; its reader of arrays would allocate whatever the header declares.
    """
    buffer = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(buffer)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(buffer)
    except Exception as error:  # noqa: BLE001  it raises whatever Python's parser does, and shows the header as it is
        raise InvalidResponse(f".npy response: the header is not readable: {error!r}") from None
    if dtype.str != "<f4" or fortran or min(shape, default=1) < 1:
        raise InvalidResponse(f".npy response: expected float32 '<f4' in C order but got {dtype} {shape}")
    start = buffer.tell()
    expected, found = 4 * math.prod(shape), len(body) - start
    if expected != found:
        raise InvalidResponse(f".npy response: expected {expected} bytes for shape {shape} but got {found}")
    return np.frombuffer(body, dtype="<f4", offset=start).reshape(shape)


def encode_safetensors(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return arrays as safetensors bytes."""
    return safetensors.numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def decode_safetensors(body: bytes, types: Collection[str] = ("<f4", "|b1")) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of safetensors bytes by name: float32 or booleans, none of them empty."""
    try:
        arrays = safetensors.numpy.load(body)
    except Exception as error:  # noqa: BLE001  SafetensorError, which shows the header, and KeyError for a type
        raise InvalidResponse(f"safetensors response: not readable: {error}") from None
    arrays = {printable(name): array for name, array in arrays.items()}
    for name, array in arrays.items():
        if array.dtype.str not in types or array.size == 0:
            raise InvalidResponse(f"safetensors response: expected F32 but got {array.dtype} {array.shape} for {name}")
    return arrays


def decode_sample(body: bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a sample in safetensors by name: float32, or int32 of integers and booleans."""
    found = decode_safetensors(body, SAMPLE_TYPES)
    return {name: array.astype(np.float32 if array.dtype.kind == "f" else np.int32) for name, array in found.items()}


@dataclass(frozen=True)
class Part:
    """One part of a multipart response; header names in lower case."""

    headers: Mapping[str, str]
    body: bytes


class Parts:
    """A reader of `multipart/mixed` (RFC 2046) as its bytes arrive; each part says how long it is.

    It holds one part, of at most `longest` bytes. What follows the last part is dropped, and has to be as short as a
    head.
    """

    def __init__(self, content_type: str, longest: int) -> None:
        kind, _, rest = content_type.partition(";")
        if kind.strip().lower() != MULTIPART or "boundary=" not in rest:
            raise InvalidResponse(f'expected {MULTIPART} but got "{content_type[:80]}"')
        self._boundary = rest.partition("boundary=")[2].partition(";")[0].strip().strip('"').encode()
        self._bytes, self._longest = bytearray(), longest
        self._complete = False

    def feed(self, chunk: bytes) -> Iterator[Part]:
        """Yield the parts that are complete with these bytes."""
        self._bytes += chunk
        while part := self._next():
            yield part
        if self._complete and len(self._bytes) > LONGEST_HEAD:
            raise InvalidResponse("expected the end of a response behind its last part but got more")

    def end(self) -> None:
        """Check that the response is complete."""
        if not self._complete:
            raise ConnectionFailed("the response ended before its last frame")

    def _next(self) -> Part | None:
        if self._complete:
            return None
        delimiter = b"--" + self._boundary
        if bytes(self._bytes[: len(delimiter) + 2]) == delimiter + b"--":
            self._complete = True
            return None
        end = self._bytes.find(b"\r\n\r\n", 0, LONGEST_HEAD)
        if end < 0:
            if len(self._bytes) >= LONGEST_HEAD:
                raise InvalidResponse("expected the head of a part but got none")
            return None
        first, *lines = bytes(self._bytes[:end]).split(b"\r\n")
        if first != delimiter:
            raise InvalidResponse(f"expected a part but got {first[:60]!r}")
        split = [line.decode("latin-1").partition(":") for line in lines]
        headers = {name.strip().lower(): value.strip() for name, _, value in split}
        text = headers.get("content-length", "")
        if not (text.isascii() and text.isdigit() and len(text) < 18 and int(text) <= self._longest):
            raise InvalidResponse(f'expected the size of a part, at most {self._longest} bytes, but got "{text[:32]}"')
        start, size = end + 4, int(text)
        if len(self._bytes) < start + size + 2:
            return None
        part = Part(headers, bytes(self._bytes[start : start + size]))
        del self._bytes[: start + size + 2]
        return part
