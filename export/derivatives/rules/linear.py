"""Linear maps: products with matrices, convolutions, interpolation to another grid, and other places of entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from export.derivatives.rules.elementwise import rule
from export.derivatives.tape import ONE, Operand, broadcast, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from export.derivatives.rules.elementwise import Step
    from export.derivatives.tape import Shape, Size, Tape


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
    return tape.add("MatMul", [first, second], (*broadcast(a[:-2], b[:-2]), a[-2], b[-1]))


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


# Layout


@rule("Transpose")
def transpose(step: Step) -> dict[int, str]:
    """Transpose back."""
    order = list(step.attribute("perm", range(len(step.shape()))[::-1]))
    return {0: step.tape.transpose(step.whole, [order.index(axis) for axis in range(len(order))])}


@rule("Reshape", "Squeeze", "Unsqueeze", "Flatten")
def reshape(step: Step) -> dict[int, str]:
    """Reshape back."""
    return {0: step.tape.reshape(step.whole, step.shape())}


@rule("Expand")
def expand(step: Step) -> dict[int, str]:
    """Sum over what was repeated."""
    return {0: step.tape.collect(step.whole, step.shape())}


@rule("Concat")
def concatenate(step: Step) -> dict[int, str]:
    """Cut the gradient into the parts."""
    axis, start, found = step.attribute("axis") % len(step.shape()), ONE - 1, {}
    for index in range(len(step.node.input)):
        length = step.shape(index)[axis]
        if step.wanted[index]:
            found[index] = step.tape.cut(step.whole, axis, start, length)
        start = start + length
    return found


@rule("Split")
def split(step: Step) -> dict[int, str]:
    """Join the gradients of the parts."""
    tape, axis = step.tape, step.attribute("axis", 0) % len(step.shape())
    parts = [
        tape.spread(tape.number(0, step.x()) if gradient is None else gradient, tape.shapes[result])
        for gradient, result in zip(step.gradients, step.node.output, strict=True)
    ]
    return {0: tape.join(parts, axis)}


@rule("Slice")
def cut(step: Step) -> dict[int, str]:
    """Pad the gradient by zeros."""
    tape, shape, result = step.tape, step.shape(), step.tape.shapes[step.z]
    starts = tape.vector(step.x(1))
    axes = [int(axis) for axis in tape.value(step.x(3))] if len(step.node.input) > 3 else list(range(len(starts)))
    if len(step.node.input) > 4 and any(tape.value(step.x(4)) != 1):
        return {0: reverse(step, axes)}
    before = [ONE - 1] * len(shape)
    for axis, start in zip(axes, starts, strict=True):
        before[axis] = shape[axis] + start if start.is_negative else start
    after = [whole - first - part for whole, first, part in zip(shape, before, result, strict=True)]
    return {0: tape.pad(step.whole, tuple(before), tuple(after))}


def reverse(step: Step, axes: list[int]) -> str:
    """Reverse the gradient of reversed axes."""
    tape, steps = step.tape, step.tape.value(step.x(4))
    if any(steps != -1) or tape.shapes[step.z] != step.shape():
        raise step.unknown("expected steps of 1, or whole axes in reverse")
    ends = tape.constant([-1] * len(axes)), tape.constant([np.iinfo(np.int64).min] * len(axes))
    return tape.add("Slice", [step.whole, *ends, tape.constant(axes), tape.constant(steps)], step.shape())


@rule("Pad")
def pad(step: Step) -> dict[int, str]:
    """Cut the padding off, and add its gradient to the points that it repeats."""
    tape, pads, shape = step.tape, padding(step), step.shape()
    mode = step.attribute("mode", b"constant")
    if mode not in FOLDED:
        raise step.unknown(f"the mode {mode.decode()} is not known")
    found = step.whole
    for axis, size in enumerate(shape):
        before, after = pads[axis], pads[axis + len(shape)]
        if before != 0 or after != 0:
            found = FOLDED[mode](tape, found, axis, size, before, after)
    return {0: found}


def padding(step: Step) -> list[Size]:
    """Return the padding of every axis, those before first."""
    found = list(step.tape.vector(step.x(1)))
    rank = len(step.shape())
    if len(step.node.input) > 3 and step.x(3):
        axes = [int(axis) % rank for axis in step.tape.value(step.x(3))]
        whole = [ONE - 1] * (2 * rank)
        for index, axis in enumerate(axes):
            whole[axis], whole[axis + rank] = found[index], found[index + len(axes)]
        found = whole
    if any(points.is_negative for points in found):
        raise step.unknown("expected padding of no negative size")
    return found


def fold_constant(tape: Tape, g: str, axis: int, size: Size, before: Size, after: Size) -> str:
    """Drop the gradient of the padding."""
    del after
    return tape.cut(g, axis, before, size)


def fold_edge(tape: Tape, g: str, axis: int, size: Size, before: Size, after: Size) -> str:
    """Add the gradient of the padding to that of the outermost points."""
    first = tape.total(tape.cut(g, axis, ONE - 1, before + 1), [axis], keep=True)
    last = tape.total(tape.cut(g, axis, size + before - 1, after + 1), [axis], keep=True)
    return tape.join([first, tape.cut(g, axis, before + 1, size - 2), last], axis)


def fold_wrap(tape: Tape, g: str, axis: int, size: Size, before: Size, after: Size) -> str:
    """Add the gradient of the padding to that of the opposite end."""
    found = tape.cut(g, axis, before, size)
    rank = len(tape.shapes[g])
    for length, start, place in ((before, ONE - 1, size - before), (after, size + before, ONE - 1)):
        if length != 0:
            part = tape.cut(g, axis, start, length)
            ahead = tuple(place if other == axis else ONE - 1 for other in range(rank))
            behind = tuple(size - place - length if other == axis else ONE - 1 for other in range(rank))
            found = tape.binary("Add", found, tape.pad(part, ahead, behind))
    return found


FOLDED = {b"constant": fold_constant, b"edge": fold_edge, b"wrap": fold_wrap}


@rule("Gather")
def gather(step: Step) -> dict[int, str]:
    """Put the gradient of one entry back, or add the gradients of several to the entries that they were taken from."""
    tape, shape, indices = step.tape, step.shape(), step.shape(1)
    axis = step.attribute("axis", 0) % len(shape)
    if len(indices) > 1:
        raise step.unknown("expected one entry, or a list of them")
    if not indices:
        index = int(tape.value(step.x(1)))
        start = parse(str(index)) if index >= 0 else shape[axis] + index
        single = tape.reshape(step.whole, (*shape[:axis], ONE, *shape[axis + 1 :]))
        before = tuple(start if other == axis else ONE - 1 for other in range(len(shape)))
        after = tuple(shape[axis] - start - 1 if other == axis else ONE - 1 for other in range(len(shape)))
        return {0: tape.pad(single, before, after)}
    found = tape.reshape(step.x(1), tuple(indices[0] if other == axis else ONE for other in range(len(shape))))
    return {0: scattered(tape, tape.spread(found, tape.shapes[step.whole]), step.whole, shape, axis)}


@rule("GatherND")
def gather_nd(step: Step) -> dict[int, str]:
    """Add the gradient to the entries that were gathered, whose axes become one."""
    if step.attribute("batch_dims", 0):
        raise step.unknown("expected no batch axes")
    tape, shape, (*counts, depth) = step.tape, step.shape(), step.shape(1)
    known, rest = shape[: int(depth)], shape[int(depth) :]
    lengths = tuple(entries(known[axis + 1 :]) for axis in range(len(known)))
    places = tape.binary("Mod", step.x(1), tape.ints(known))  # an index may count from the end
    flat = tape.total(tape.binary("Mul", places, tape.ints(lengths)), [len(counts)], keep=False)
    shape_2d = entries(counts), entries(rest)
    indices = tape.spread(tape.reshape(flat, (shape_2d[0], ONE)), shape_2d)
    found = scattered(tape, indices, tape.reshape(step.whole, shape_2d), (entries(known), entries(rest)), 0)
    return {0: tape.reshape(found, shape)}


def scattered(tape: Tape, indices: str, entries: str, shape: Shape, axis: int) -> str:
    """Append sums of entries in a tensor of a shape, each at an index along an axis.

    ONNX Runtime's ScatterND adds no double precision on a GPU, and this operator does.
    """
    zeros = tape.spread(tape.number(0, entries), shape)
    return tape.add("ScatterElements", [zeros, indices, entries], shape, axis=axis, reduction="add")


def entries(shape: Sequence[Size]) -> Size:
    """Return the number of entries of a shape."""
    found = ONE
    for size in shape:
        found = found * size
    return found


@rule("ScatterElements")
def scatter_elements(step: Step) -> dict[int, str]:
    """Gather the gradient of the entries."""
    if step.wanted[0] or step.attribute("reduction", b"none") != b"add":
        raise step.unknown("expected a sum over constant entries")
    axis = step.attribute("axis", 0)
    return {2: step.tape.add("GatherElements", [step.whole, step.x(1)], step.shape(2), axis=axis)}


@rule("ScatterND")
def scatter_nd(step: Step) -> dict[int, str]:
    """Gather the gradient of the entries."""
    if step.wanted[0] or step.attribute("reduction", b"none") != b"add":
        raise step.unknown("expected a sum over constant entries")
    return {2: step.tape.add("GatherND", [step.whole, step.x(1)], step.shape(2))}


@rule("DepthToSpace")
def depth_to_space(step: Step) -> dict[int, str]:
    """Return blocks of points to channels."""
    tape, size, shape = step.tape, step.attribute("blocksize"), step.shape()
    found = tape.add("SpaceToDepth", [step.whole], shape, blocksize=size)
    if step.attribute("mode", b"DCR") == b"DCR":
        return {0: found}
    channels = int(shape[1]) // size**2  # SpaceToDepth orders them by offset, this mode by channel
    order = np.arange(size**2 * channels).reshape(size**2, channels).T.reshape(-1)
    return {0: tape.add("Gather", [found, tape.constant(order)], shape, axis=1)}


@rule("SpaceToDepth")
def space_to_depth(step: Step) -> dict[int, str]:
    """Return channels to blocks of points."""
    return {0: step.tape.add("DepthToSpace", [step.whole], step.shape(), blocksize=step.attribute("blocksize"))}
