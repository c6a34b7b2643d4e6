"""Messages of gRPC from bytes.

Their parts are counted before they are parsed, because an empty tensor of two bytes takes a hundred as an object.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from serving.errors import Problem

MOST_PARTS = 1024  # fields of a message and of the messages in it: no model has as many tensors


def parse(message: Any, body: bytes | None) -> Any:
    """Return a message of a class; refuse one of more than `MOST_PARTS`, or none (`unreadable-body`)."""
    if body is None:
        raise Problem("unreadable-body", f"expected a {message.DESCRIPTOR.name} but got nothing")
    try:
        _count(memoryview(body), message.DESCRIPTOR, 0)
        return message.FromString(body)
    except (DecodeError, IndexError) as error:
        raise Problem("unreadable-body", f"not a {message.DESCRIPTOR.name}: {error}") from error


def _count(data: memoryview, message: Any, parts: int) -> int:
    """Return how many fields there are in a message and in the messages in it, after so many before.

    The wire format is https://protobuf.dev/programming-guides/encoding. An IndexError: it ends within a field.
    """
    position = 0
    while position < len(data):
        parts += 1
        if parts > MOST_PARTS:
            raise Problem("unreadable-body", f"the message has more than {MOST_PARTS} parts")
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                _, position = _varint(data, position)
            case 2:
                size, position = _varint(data, position)
                field = message.fields_by_number.get(tag >> 3)
                if field is not None and field.message_type is not None:
                    parts = _count(data[position : position + size], field.message_type, parts)
                position += size
            case other:
                position += {1: 8, 5: 4}.get(other, 0)  # the parser refuses any other
    return parts


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return a number of seven bits per byte, the lowest first, and the position behind it."""
    value = 0
    for index in range(10):
        byte = data[position + index]
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, position + index + 1
    raise IndexError("a number of more than ten bytes")
