"""The .npy format, bytes from strangers in, an array that shares their memory out; and an array in, bytes out.

`numpy.load` is not for request bodies: it unpickles, and it trusts the header's shape before it has seen the data.
Here the header is read by a regular expression, at most `MAX_HEADER` bytes of it, only plain little or big endian
numbers pass, and nothing is allocated: the array is a view of the body. Format: numpy.lib.format, versions 1 to 3.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from serving.codecs import buffers as raw
from serving.problem_details import BodyTooLarge, UnreadableBody, WrongDtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEDIA_TYPE = "application/x-npy"
MAGIC = b"\x93NUMPY"
MAX_HEADER = 10_000

_ENTRY = re.compile(
    r"""\s*(?P<quote>['"])(?P<key>\w{1,32})(?P=quote)\s*:\s*
    (?P<value>True|False|'[^']*'|"[^"]*"|\(\s*(?:\d{1,18}\s*(?:,\s*|(?=\))))*\)|\[.*\])\s*(?:,|$)""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"[<>|=]?(?:f[248]|[iu][1248]|b1)")
_REFUSED_KINDS = {
    "O": "Python objects (pickle), which are never read",
    "V": "raw or structured records",
    "S": "byte strings",
    "a": "byte strings",
    "U": "strings",
    "M": "dates",
    "m": "durations",
    "c": "complex numbers",
    "f": "floating-point numbers of a size that is not portable",
}


def read(body: bytes | bytearray, name: str, max_bytes: int) -> NDArray[Any]:
    """The array in an .npy file.

    Args:
        body: The whole file.
        name: Name of the array in messages.
        max_bytes: The most that the array may take as float32.

    Returns:
        A view of `body` with the file's dtype, shape and memory order.

    Raises:
        UnreadableBody: Not an .npy file, or its header and its length disagree.
        WrongDtype: Objects, records, strings, complex numbers.
        WrongShape: More axes than any field has, or sizes that no array has.
        BodyTooLarge: The array is small as it was sent and too large as float32.
    """
    text, start = _header_text(body, name)
    dtype, shape, order = _header(text, name)
    values = math.prod(shape)
    if values * dtype.itemsize != len(body) - start:
        raise UnreadableBody(
            f"{name}: shape {shape} of {dtype.str} takes {values * dtype.itemsize} bytes, "
            f"but {len(body) - start} follow the .npy header"
        )
    if values * 4 > max_bytes:
        raise BodyTooLarge(f"{name}: shape {shape} takes {values * 4} bytes as float32; the limit is {max_bytes}")
    flat = np.frombuffer(body, dtype, values, start) if values else np.empty(0, dtype)
    return raw.shaped(flat, shape, name, order)


def write(array: NDArray[Any]) -> bytes:
    """An .npy file (version 1) of a numeric array, copied once."""
    array = np.asarray(array, order="C")
    header = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape}, }}"
    padding = -(len(MAGIC) + 4 + len(header) + 1) % 64  # the format asks for data aligned to 64 bytes
    text = f"{header}{' ' * padding}\n".encode("ascii")
    return b"".join((MAGIC, b"\x01\x00", len(text).to_bytes(2, "little"), text, array.reshape(-1).data))


def _header_text(body: bytes | bytearray, name: str) -> tuple[str, int]:
    """The header's text and the offset of the data."""
    if not body.startswith(MAGIC):
        raise UnreadableBody(f"{name}: expected an .npy file but the body starts with {bytes(body[:6])!r}")
    if len(body) < 8 or (body[6], body[7]) not in {(1, 0), (2, 0), (3, 0)}:
        raise UnreadableBody(f"{name}: expected .npy format version 1.0, 2.0 or 3.0 at byte 6")
    start = 10 if body[6] == 1 else 12
    length = int.from_bytes(body[8:start], "little")
    if length > MAX_HEADER:
        raise UnreadableBody(f"{name}: the .npy header says it is {length} bytes long; the limit is {MAX_HEADER}")
    if len(body) < start + length or len(body) < start:
        raise UnreadableBody(f"{name}: the .npy file ends inside its header, after {len(body)} bytes")
    try:
        return bytes(body[start : start + length]).decode("ascii"), start + length
    except UnicodeDecodeError as error:
        raise UnreadableBody(f"{name}: the .npy header is not ASCII at byte {start + error.start}") from error


@lru_cache(maxsize=256)  # the fields of one client differ in their values
def _header(text: str, name: str) -> tuple[np.dtype[Any], tuple[int, ...], Literal["C", "F"]]:
    """Type, shape and order of the array."""
    entries = _entries(text, name)
    order: Literal["C", "F"] = "F" if entries["fortran_order"] == "True" else "C"
    return _dtype(entries["descr"], name), _shape(entries["shape"], name), order


def _entries(text: str, name: str) -> dict[str, str]:
    """The three entries of the header as their source text."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        raise UnreadableBody(f"{name}: the .npy header is not a dictionary")
    inside, position, entries = text[1:-1].rstrip(), 0, dict[str, str]()
    while position < len(inside):
        match = _ENTRY.match(inside, position)
        if match is None or match["key"] in entries:
            raise UnreadableBody(f"{name}: the .npy header cannot be read at {inside[position : position + 40]!r}")
        entries[match["key"]], position = match["value"], match.end()
    if set(entries) != {"descr", "fortran_order", "shape"}:
        raise UnreadableBody(f"{name}: expected descr, fortran_order and shape in the .npy header, got {list(entries)}")
    if entries["fortran_order"] not in {"True", "False"}:
        raise UnreadableBody(f"{name}: expected True or False as fortran_order in the .npy header")
    return entries


def _dtype(descr: str, name: str) -> np.dtype[Any]:
    if descr.startswith("["):
        raise WrongDtype(f"{name}: structured .npy records are not read; send plain numbers", array=name)
    if descr[0] not in "'\"":
        raise UnreadableBody(f"{name}: expected a string as descr in the .npy header")
    code = descr[1:-1]
    if not _NUMBER.fullmatch(code):
        kind = _REFUSED_KINDS.get(code.lstrip("<>|=")[:1], "an unknown data type")
        raise WrongDtype(f'{name}: dtype "{code[:16]}" means {kind}; send plain numbers such as "<f4"', array=name)
    return np.dtype(code)


def _shape(source: str, name: str) -> tuple[int, ...]:
    if not source.startswith("(") or (source.count(",") == 0 and source.strip("() \t\n")):
        raise UnreadableBody(f"{name}: expected a tuple as shape in the .npy header")
    return tuple(int(size) for size in source.strip("()").split(",") if size.strip())
