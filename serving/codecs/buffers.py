"""Arrays that share the memory of a request body, once their shape has been checked against its bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from numpy.typing import NDArray

    Order = Literal["C", "F"]

Buffer = bytes | bytearray | memoryview
MAX_RANK = 8


def view(
    data: Buffer,
    dtype: np.dtype[Any],
    shape: Sequence[int],
    name: str,
    max_bytes: int,
    holder: str,
    order: Order = "C",
) -> NDArray[Any]:
    """Return the array in a buffer without a copy.

    Args:
        data: Exactly the bytes of the array.
        dtype: Type and byte order of its values.
        shape: Shape that the sender claims; nothing is allocated from it.
        name: Name of the array in error messages.
        max_bytes: The most bytes that the array may take as float32.
        holder: Name of the buffer in error messages.
        order: Memory order of the values.

    Returns:
        A view of `data` with that dtype and shape.

    Raises:
        Problem: wrong-shape: There are more than `MAX_RANK` axes, or sizes that no array has.
        Problem: unreadable-body: The shape takes more or fewer bytes than there are.
        Problem: body-too-large: The array is small in its own type and too large as float32.
    """
    if len(shape) > MAX_RANK:
        raise _no_field(shape, name)
    values = math.prod(shape)  # negative sizes do not fit the bytes, or are refused with the shape
    if values * dtype.itemsize != len(data):
        raise Problem(
            "unreadable-body",
            f"{name}: shape {_sizes(shape)} of {dtype.name} takes {_digits(values * dtype.itemsize)} bytes, "
            f"but {holder} holds {len(data)}",
        )
    if values * 4 > max_bytes:
        raise Problem(
            "body-too-large",
            f"{name}: shape {list(shape)} takes {values * 4} bytes as float32; the limit is {max_bytes}",
        )
    return shaped(np.frombuffer(data, dtype), shape, name, order)


def shaped(values: NDArray[Any], shape: Sequence[int], name: str, order: Order = "C") -> NDArray[Any]:
    """Return values in a shape that holds as many.

    Args:
        values: The values, one after another.
        shape: Shape that the sender claims.
        name: Name of the array in error messages.
        order: Memory order of the values.

    Raises:
        Problem: wrong-shape: There are more than `MAX_RANK` axes, or sizes that no array has.
    """
    count(shape, name)
    try:
        return values.reshape(shape, order=order)
    except ValueError as error:  # sizes beyond any address, beside one that is zero
        raise _no_field(shape, name) from error


def count(shape: Sequence[int], name: str) -> int:
    """Return how many values a shape holds, which is checked before its sizes are multiplied.

    Raises:
        Problem: wrong-shape: There are more than `MAX_RANK` axes, or negative sizes.
    """
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
