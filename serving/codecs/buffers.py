"""Little-endian bytes in C order in, the array that shares their memory out: how every binary format ends.

Nothing is allocated, and nothing is believed: what a shape promises is compared with the bytes that are there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from serving.problem_details import BodyTooLarge, UnreadableBody, WrongShape

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview
MAX_RANK = 8


def view(
    data: Buffer, dtype: np.dtype[Any], shape: Sequence[int], name: str, max_bytes: int, holder: str
) -> NDArray[Any]:
    """The array in a buffer.

    Args:
        data: Exactly its bytes.
        dtype: Of its values; read as little-endian.
        shape: As the sender has it.
        name: Name of the array in messages.
        max_bytes: The most that the array may take as float32.
        holder: What holds the bytes, for messages.

    Raises:
        WrongShape: More than `MAX_RANK` axes, or sizes that no array has.
        UnreadableBody: The shape promises more or fewer bytes.
        BodyTooLarge: The array is small as it was sent and too large as float32.
    """
    values = math.prod(shape)
    if values * dtype.itemsize != len(data):
        raise UnreadableBody(
            f"{name}: shape {str(list(shape))[:256]} of {dtype.name} takes {_digits(values * dtype.itemsize)} bytes, "
            f"but {holder} holds {len(data)}"
        )
    if values * 4 > max_bytes:
        raise BodyTooLarge(f"{name}: shape {list(shape)} takes {values * 4} bytes as float32; the limit is {max_bytes}")
    return shaped(np.frombuffer(data, dtype.newbyteorder("<")), shape, name)


def shaped(values: NDArray[Any], shape: Sequence[int], name: str, order: Literal["C", "F"] = "C") -> NDArray[Any]:
    """Values in a shape that holds as many.

    Raises:
        WrongShape: More than `MAX_RANK` axes, or sizes that no array has.
    """
    try:
        if len(shape) <= MAX_RANK and min(shape, default=0) >= 0:
            return values.reshape(shape, order=order)
    except ValueError:  # sizes beyond any address, beside one that is zero
        pass
    raise WrongShape(f"{name}: shape {str(list(shape))[:64]} is not the shape of a field", array=name)


def _digits(count: int) -> str:
    """A number for a message; a sender's own may have more digits than Python will write."""
    return str(count) if count < 10**18 else "more than 10^18"
