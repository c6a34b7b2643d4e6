"""Linear interpolation to another grid: a product with one small matrix per axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from export.derivatives.rules.step import rule
from export.derivatives.sizes import ONE

if TYPE_CHECKING:
    from export.derivatives.rules.step import Step
    from export.derivatives.sizes import Size
    from export.derivatives.tape import Tape


@rule("Resize")
def resize(step: Step) -> dict[int, str]:
    """Multiply by the transposed matrix of every axis."""
    tape, found = step.tape, step.whole
    if step.attribute("mode", b"nearest") != b"linear" or step.attribute("antialias", 0):
        raise step.unknown("expected linear interpolation")
    mode = step.attribute("coordinate_transformation_mode", b"half_pixel")
    if mode not in {b"align_corners", b"half_pixel", b"pytorch_half_pixel"}:
        raise step.unknown(f"the mode {mode.decode()} is not known")
    rank = len(step.shape())
    for axis, (before, after) in enumerate(zip(step.shape(), tape.shapes[step.z], strict=True)):
        if before != after:
            matrix = hats(tape, before, after, step.x(), corners=mode == b"align_corners")
            order = [other for other in range(rank) if other != axis] + [axis]
            last = tape.transpose(found, order)
            last = tape.add("MatMul", [last, matrix], (*tape.shapes[last][:-1], before))
            found = tape.transpose(last, [order.index(other) for other in range(rank)])
    return {0: found}


def hats(tape: Tape, before: Size, after: Size, like: str, *, corners: bool) -> str:
    """Append the weights `[after, before]` of linear interpolation.

    Args:
        tape: The graph.
        before: Points of the input.
        after: Points of the result.
        like: A tensor of the type of the weights.
        corners: Whether the outermost points of both grids coincide; else their cells do.
    """
    sources = points(tape, before, like)
    half = tape.number(0.0 if corners else 0.5, like)
    ends = tape.number(1.0 if corners else 0.0, like)
    old, new = (tape.binary("Sub", real(tape, size, like), ends) for size in (before, after))
    scale = tape.binary("Div", old, tape.binary("Max", new, tape.number(1, like)))
    wanted = tape.binary("Mul", tape.binary("Add", points(tape, after, like), half), scale)
    last = tape.binary("Sub", real(tape, before, like), tape.number(1, like))
    inside = tape.binary("Max", tape.binary("Sub", wanted, half), tape.number(0, like))
    inside = tape.binary("Min", inside, last)
    distance = tape.unary("Abs", tape.binary("Sub", tape.reshape(inside, (after, ONE)), sources))
    return tape.unary("Relu", tape.binary("Sub", tape.number(1, like), distance))


def points(tape: Tape, count: Size, like: str) -> str:
    """Append the numbers of points."""
    limits = [tape.number(0, like), tape.reshape(real(tape, count, like), ()), tape.number(1, like)]
    return tape.add("Range", limits, (count,))


def real(tape: Tape, count: Size, like: str) -> str:
    """Append a size as a real number."""
    dtype = tape.types[like]
    return tape.unary("Cast", tape.size(count), dtype=dtype, to=dtype)
