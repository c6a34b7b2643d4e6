"""The body of a request of UM-Bridge: a JSON object with the name of a model, whatever its Content-Type says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from serving.codecs.json_arrays import nested
from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Message:
    """A parsed body. Its members are checked when they are used: the model first, then the sizes of vectors.

    Attributes:
        members: The members of the object.
        size: Bytes of the body.
    """

    members: Mapping[str, Any]
    size: int = 0

    @property
    def name(self) -> str:
        """The name of the model.

        Raises:
            Problem: unknown-model: There is none.
        """
        name = self.members.get("name")
        if not isinstance(name, str):
            raise Problem("unknown-model", 'expected the name of a model as "name"; GET Info lists the models')
        return name

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration, empty by default.

        Raises:
            Problem: unreadable-body: It is no object.
        """
        config = self.members.get("config", {})
        if not isinstance(config, dict):
            raise Problem("unreadable-body", "config: expected an object")
        return config

    def inputs(self, sizes: Sequence[int]) -> list[Vector]:
        """Return the input vectors.

        Args:
            sizes: The size of each vector.

        Raises:
            Problem: unreadable-body: `input` is no list.
            Problem: wrong-input, wrong-dtype or wrong-shape: The vectors are not as many, or not of these sizes.
        """
        found = self.members.get("input")
        if not isinstance(found, list):
            raise Problem("unreadable-body", "input: expected a list of lists of numbers")
        if len(found) != len(sizes):
            raise Problem("wrong-shape", f"input has {len(found)} vectors; expected {len(sizes)}", array="input")
        return [_vector(each, f"input[{index}]", sizes[index]) for index, each in enumerate(found)]

    def vector(self, name: str, size: int) -> Vector:
        """Return the vector of a member.

        Args:
            name: The member.
            size: The size of the vector.

        Raises:
            Problem: wrong-input, wrong-dtype or wrong-shape: It is no vector of that size.
        """
        return _vector(self.members.get(name), name, size)

    def index(self, name: str, count: int) -> int:
        """Return the index of an input or an output.

        Args:
            name: The member.
            count: How many there are.

        Raises:
            Problem: unreadable-body: It is none of their indices.
        """
        index = self.members.get(name)
        if type(index) is not int or not 0 <= index < count:
            raise Problem("unreadable-body", f"{name}: expected an index from 0 to {count - 1}")
        return index


def parse(content: bytes | bytearray) -> Message:
    """Return the message of a body; an empty body is a message without members.

    Raises:
        Problem: unreadable-body: The body is no JSON object.
    """
    if not content:
        return Message({})
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise Problem(
            "unreadable-body", f"not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from error
    if not isinstance(document, dict):
        raise Problem("unreadable-body", "expected a JSON object")
    return Message(document, len(content))


def _vector(value: Any, name: str, size: int) -> Vector:
    if not isinstance(value, list):
        raise Problem("unreadable-body", f"{name}: expected a list of {size} numbers")
    if len(value) != size:
        raise Problem("wrong-shape", f"{name} has {len(value)} numbers; expected {size}", array=name)
    found = nested(value, name)
    if found.ndim != 1:
        raise Problem("wrong-shape", f"{name}: expected a list of numbers, not of lists", array=name)
    return found.astype("f8")
