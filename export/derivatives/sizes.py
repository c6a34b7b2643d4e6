"""Sizes of axes as expressions of a graph's free axes, such as `2*((row//2)) + 4`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy
from onnx import NodeProto, helper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

Size = Any
"""A sympy expression with integer values."""

Shape = tuple[Size, ...]

ONE = sympy.Integer(1)


@cache
def parse(text: str) -> Size:
    """Return the size that an exporter wrote, with `//` for division; one that is no expression is a symbol of its own.

    Example:
        >>> parse("row + 1") - parse("row")
        1
    """
    try:
        found = sympy.sympify(text, locals={name: symbol(name) for name in names(text)})
    except (sympy.SympifyError, SyntaxError, TypeError, AttributeError):
        return symbol(text)
    return found


def symbol(name: str) -> Size:
    """Return a free size."""
    return sympy.Symbol(name, integer=True, positive=True)


def names(text: str) -> list[str]:
    """Return the names in an expression."""
    return "".join(char if char.isidentifier() or char.isdigit() else " " for char in text).split()


def broadcast(first: Shape, second: Shape) -> Shape:
    """Return the shape of an elementwise result; free sizes never change by broadcasting."""
    rank = max(len(first), len(second))
    pairs = zip((ONE,) * (rank - len(first)) + first, (ONE,) * (rank - len(second)) + second, strict=True)
    return tuple(b if a == 1 else a for a, b in pairs)


#: Operators between vectors of sizes.
ARITHMETIC: dict[str, Callable[[Size, Size], Size]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
}


def vectors(
    nodes: Sequence[NodeProto], shapes: Mapping[str, Shape], constants: Mapping[str, NDArray[Any]]
) -> dict[str, Shape]:
    """Return the entries of all vectors (and numbers) that a graph computes from the shapes of tensors.

    Args:
        nodes: The nodes of the graph, in order.
        shapes: The shapes of its tensors.
        constants: Its constants.
    """
    found: dict[str, Shape] = {}

    def entries(name: str) -> Shape | None:
        constant = constants.get(name)
        if constant is not None and constant.ndim < 2 and np.issubdtype(constant.dtype, np.integer):
            return tuple(parse(str(int(each))) for each in constant.reshape(-1))
        return found.get(name)

    for node in nodes:
        made: Shape | None = None
        parts = [entries(name) for name in node.input]
        if node.op_type == "Shape":
            bounds = {each.name: helper.get_attribute_value(each) for each in node.attribute}
            made = shapes[node.input[0]][bounds.get("start", 0) : bounds.get("end")]
        elif None in parts or not parts:
            continue
        elif node.op_type in {"Squeeze", "Unsqueeze", "Reshape", "Cast", "Identity"}:
            made = parts[0]
        elif node.op_type == "Concat":
            made = tuple(size for part in parts if part for size in part)
        elif node.op_type in ARITHMETIC and parts[0] and parts[1] and len(parts[0]) == len(parts[1]):
            made = tuple(ARITHMETIC[node.op_type](a, b) for a, b in zip(parts[0], parts[1], strict=True))
        if made is not None:
            found[node.output[0]] = made
    return found
