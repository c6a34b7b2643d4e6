"""Products with matrices, and convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from export.derivatives.rules.step import rule
from export.derivatives.sizes import ONE

if TYPE_CHECKING:
    from export.derivatives.rules.step import Step
    from export.derivatives.tape import Tape


@rule("MatMul")
def matrix_product(step: Step) -> dict[int, str]:
    """Multiply by the transpose of the other matrix; a vector is a row on the left and a column on the right."""
    tape, found = step.tape, {}
    first, second = step.shape(0), step.shape(1)
    row = first if len(first) > 1 else (ONE, *first)
    column = second if len(second) > 1 else (*second, ONE)
    batch = tape.shapes[step.z][: len(tape.shapes[step.z]) - (len(first) > 1) - (len(second) > 1)]
    g = tape.as_shape(step.whole, (*batch, row[-2], column[-1]))
    if step.wanted[0]:
        made = product(tape, g, flipped(tape, tape.as_shape(step.x(1), column)))
        found[0] = tape.as_shape(tape.collect(made, row), first)
    if step.wanted[1]:
        made = product(tape, flipped(tape, tape.as_shape(step.x(0), row)), g)
        found[1] = tape.as_shape(tape.collect(made, column), second)
    return found


def product(tape: Tape, first: str, second: str) -> str:
    """Append a matrix product."""
    a, b = tape.shapes[first], tape.shapes[second]
    longer = a if len(a) >= len(b) else b
    batch = tuple(
        next((size for size in (*a[:-2][-rank:][:1], *b[:-2][-rank:][:1]) if size != 1), ONE)
        for rank in range(len(longer) - 2, 0, -1)
    )
    return tape.add("MatMul", [first, second], (*batch, a[-2], b[-1]))


def flipped(tape: Tape, matrix: str) -> str:
    """Append the transpose of matrices."""
    rank = len(tape.shapes[matrix])
    return tape.transpose(matrix, [*range(rank - 2), rank - 1, rank - 2])


@rule("Gemm")
def general_product(step: Step) -> dict[int, str]:
    """Multiply by the transposed weights."""
    tape = step.tape
    if step.wanted[1] or step.attribute("transA", 0) or (len(step.wanted) > 2 and step.wanted[2]):
        raise step.unknown("expected constant weights")
    weight = step.x(1) if step.attribute("transB", 0) else flipped(tape, step.x(1))
    alpha = step.attribute("alpha", 1.0)
    g = step.whole if alpha == 1 else tape.binary("Mul", step.whole, tape.number(alpha, step.g))
    return {0: product(tape, g, weight)}


def constant_weights(step: Step) -> dict[str, Any]:
    """Return the attributes of a convolution that its transpose has, too."""
    if any(step.wanted[1:]):
        raise step.unknown("expected constant weights")
    if step.attribute("auto_pad", b"NOTSET") != b"NOTSET":
        raise step.unknown("expected explicit padding")
    axes = len(step.shape()) - 2
    return {
        "kernel_shape": [int(size) for size in step.tape.shapes[step.x(1)][2:]],
        "pads": list(step.attribute("pads", [0] * 2 * axes)),
        "strides": list(step.attribute("strides", [1] * axes)),
        "dilations": list(step.attribute("dilations", [1] * axes)),
        "group": step.attribute("group", 1),
    }


@rule("Conv")
def convolution(step: Step) -> dict[int, str]:
    """Convolve with the transposed weights, and cut to the points of the input."""
    tape, options, shape = step.tape, constant_weights(step), step.shape()
    more = [stride - 1 for stride in options["strides"]]  # a stride forgets up to so many points of the input
    made = list(shape)
    for axis, extra in enumerate(more):
        if extra:
            kernel = options["dilations"][axis] * (options["kernel_shape"][axis] - 1) + 1
            pads = options["pads"][axis] + options["pads"][axis + len(more)]
            made[2 + axis] = (tape.shapes[step.z][2 + axis] - 1) * options["strides"][axis] + kernel + extra - pads
    found = tape.add("ConvTranspose", [step.whole, step.x(1)], tuple(made), output_padding=more, **options)
    for axis, size in enumerate(shape[2:], start=2):
        found = tape.cut(found, axis, ONE - 1, size) if more[axis - 2] else found
    return {0: found}


@rule("ConvTranspose")
def transposed_convolution(step: Step) -> dict[int, str]:
    """Convolve with the weights."""
    return {0: step.tape.add("Conv", [step.whole, step.x(1)], step.shape(), **constant_weights(step))}
