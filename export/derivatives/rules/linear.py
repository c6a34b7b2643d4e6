"""Products with matrices, convolutions, interpolation to another grid; sums, means, extremes along axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from export.derivatives.rules.elementwise import rule
from export.derivatives.tape import ONE, Operand

if TYPE_CHECKING:
    from export.derivatives.rules.elementwise import Step
    from export.derivatives.tape import Size, Tape


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
    """Append the weights `[after, before]` of linear interpolation, of the type of a tensor.

    The outermost points of both grids coincide with `corners`; else their cells do.
    """

    def real(count: Size) -> Operand:
        dtype = tape.types[like]
        return Operand(tape, tape.unary("Cast", tape.size(count), dtype=dtype, to=dtype))

    def points(count: Size) -> Operand:
        limits = [tape.number(0, like), tape.reshape(real(count).name, ()), tape.number(1, like)]
        return Operand(tape, tape.add("Range", limits, (count,)))

    sources = points(before)
    half, ends = (Operand(tape, tape.number(x, like)) for x in ((0.0, 1.0) if corners else (0.5, 0.0)))
    old, new = (real(size) - ends for size in (before, after))
    scale = old / new.binary("Max", 1)
    wanted = (points(after) + half) * scale
    last = real(before) - 1
    inside = (wanted - half).binary("Max", 0).binary("Min", last)
    distance = Operand(tape, tape.reshape(inside.name, (after, ONE))) - sources
    return (1 - distance.map("Abs")).map("Relu").name


def kept(step: Step, tensor: str) -> str:
    """Return a tensor of the result's shape with the reduced axes as axes of size 1."""
    axes = reduced(step)
    shape = tuple(ONE if axis in axes else size for axis, size in enumerate(step.shape()))
    return step.tape.as_shape(tensor, shape)


def reduced(step: Step) -> list[int]:
    """Return the axes that a node reduces."""
    rank = len(step.shape())
    if len(step.node.input) > 1 and step.x(1):
        return [int(axis) % rank for axis in step.tape.value(step.x(1))]
    return list(range(rank))


@rule("ReduceSum")
def reduce_sum(step: Step) -> dict[int, str]:
    """Repeat the gradient along the axes of the sum."""
    return {0: kept(step, step.whole)}


@rule("ReduceMean")
def reduce_mean(step: Step) -> dict[int, str]:
    """Repeat the gradient along the axes of the mean, over their number of entries."""
    tape, count = step.tape, ONE
    for axis in reduced(step):
        count = count * step.shape()[axis]
    dtype = tape.types[step.g]
    number = tape.unary("Cast", tape.size(count), dtype=dtype, to=dtype)
    return {0: tape.binary("Div", kept(step, step.whole), number)}


@rule("ReduceMax", "ReduceMin")
def reduce_extreme(step: Step) -> dict[int, str]:
    """Share the gradient evenly among all entries that reach the extreme value."""
    tape, dtype = step.tape, step.tape.types[step.g]
    reached = tape.compare("Equal", step.x(), kept(step, step.z))
    mask = Operand(tape, tape.unary("Cast", reached, dtype=dtype, to=dtype))
    share = Operand(tape, kept(step, step.whole)) / mask.total(reduced(step))
    return {0: (mask * share).name}


@rule("LayerNormalization")
def layer_normalization(step: Step) -> dict[int, str]:
    """Return (g - mean(g) - s mean(g s)) / deviation, with the standardised input s and g times the weights."""
    rank = len(step.shape())
    if any(step.wanted[1:]) or step.attribute("axis", -1) % rank != rank - 1:
        raise step.unknown("expected constant weights and the last axis")
    [x] = step.operands(step.x())
    axes, size = [rank - 1], Operand(step.tape, step.tape.number(float(step.shape()[-1]), x.name))
    shifted = x - x.total(axes) / size
    variance = (shifted * shifted).total(axes) / size
    deviation = (variance + step.attribute("epsilon", 1e-5)).map("Sqrt")
    standard = shifted / deviation
    whole, weight = step.operands(step.whole, step.x(1))
    g = whole * weight
    mean = g.total(axes) / size
    slope = (g * standard).total(axes) / size
    return {0: ((g - mean - standard * slope) / deviation).name}
