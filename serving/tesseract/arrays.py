"""Arrays of Tesseract's JSON: `{"object_type", "shape", "dtype", "data": {"buffer", "encoding"}}`, or plain numbers.

The buffer holds little-endian bytes in C order (`base64`) or nested lists (`raw`). Files and GPU memory, which a buffer
may name in other servers, are not read here.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, FailFast, ValidationError

from serving.codecs import buffers, json_arrays
from serving.errors import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

Encoding = Literal["base64", "raw"]
_MAX_KEYS = 16


class Data(BaseModel):
    """The values of an array."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    buffer: Any
    encoding: Encoding
    compression: None = None


class ArrayDocument(BaseModel):
    """One array."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    object_type: Literal["array"] = "array"
    shape: Annotated[tuple[int, ...], FailFast()]  # one error is enough
    dtype: str
    data: Data


def decode(value: Any, name: str, max_bytes: int) -> NDArray[Any]:
    """Return the array of a document, of nested lists or of a number.

    Args:
        value: A value of parsed JSON.
        name: Name of the array in error messages.
        max_bytes: The most bytes that it may take as float32.

    Raises:
        Problem: unreadable-body: The document is none of an array, or its bytes do not fit its shape.
        Problem: wrong-input, wrong-dtype or wrong-shape: The values are no numbers, or of another shape than the
            document says.
        Problem: body-too-large: The array would be too large as float32.
    """
    if not isinstance(value, dict):
        return json_arrays.nested(value, name)
    if len(value) > _MAX_KEYS:  # pydantic would describe an error per key
        raise Problem("unreadable-body", f'{name} has {len(value)} keys; expected "shape", "dtype", "data"')
    try:
        document = ArrayDocument.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        location = ".".join(str(part)[:32] for part in (name, *first["loc"]))
        raise Problem("unreadable-body", f"{location}: {first['msg']}") from error
    if document.dtype not in json_arrays.DTYPES:
        raise Problem(
            "wrong-dtype", f'{name}: dtype "{document.dtype[:32]}" is not read; use one such as "float32"', array=name
        )
    return _from_raw(document, name) if document.data.encoding == "raw" else _from_bytes(document, name, max_bytes)


def encode(array: NDArray[Any], encoding: Encoding) -> dict[str, Any]:
    """Return the document of an array; a value that is not finite is null in nested lists."""
    if encoding == "raw":
        buffer: Any = np.ascontiguousarray(array) if array.ndim else array.item()
    else:
        data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data
        buffer = base64.b64encode(data).decode("ascii")
    return {
        "object_type": "array",
        "shape": array.shape,
        "dtype": array.dtype.name,
        "data": {"buffer": buffer, "encoding": encoding},
    }


def _from_bytes(document: ArrayDocument, name: str, max_bytes: int) -> NDArray[Any]:
    """Return the array as a view of its decoded bytes."""
    buffer = document.data.buffer
    if not isinstance(buffer, str):
        raise Problem("unreadable-body", f"{name}.data.buffer: expected a string in base64")
    try:
        data = base64.b64decode(buffer, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Problem("unreadable-body", f"{name}.data.buffer: {error}") from error
    dtype = np.dtype(document.dtype).newbyteorder("<")
    return buffers.view(data, dtype, document.shape, name, max_bytes, "data.buffer")


def _from_raw(document: ArrayDocument, name: str) -> NDArray[Any]:
    """Return the array of nested lists; one without values has the shape of the document."""
    array = json_arrays.nested(document.data.buffer, name)
    if array.shape != document.shape:
        raise Problem(
            "wrong-shape", f"{name} has shape {array.shape}, but its document says {document.shape[:8]}", array=name
        )
    return array
