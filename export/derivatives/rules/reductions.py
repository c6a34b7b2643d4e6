"""Sums, means, extreme values and standardisation along axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from export.derivatives.rules.step import rule
from export.derivatives.sizes import ONE

if TYPE_CHECKING:
    from export.derivatives.rules.step import Step


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
    mask = tape.unary("Cast", reached, dtype=dtype, to=dtype)
    share = tape.binary("Div", kept(step, step.whole), tape.total(mask, reduced(step), keep=True))
    return {0: tape.binary("Mul", mask, share)}


@rule("LayerNormalization")
def layer_normalization(step: Step) -> dict[int, str]:
    """Return (g - mean(g) - s mean(g s)) / deviation, with the standardised input s and g times the weights."""
    tape, x, rank = step.tape, step.x(), len(step.shape())
    if any(step.wanted[1:]) or step.attribute("axis", -1) % rank != rank - 1:
        raise step.unknown("expected constant weights and the last axis")
    axes, size = [rank - 1], tape.number(float(step.shape()[-1]), x)
    shifted = tape.binary("Sub", x, tape.binary("Div", tape.total(x, axes, keep=True), size))
    variance = tape.binary("Div", tape.total(tape.binary("Mul", shifted, shifted), axes, keep=True), size)
    deviation = tape.unary("Sqrt", tape.binary("Add", variance, tape.number(step.attribute("epsilon", 1e-5), x)))
    standard = tape.binary("Div", shifted, deviation)
    g = tape.binary("Mul", step.whole, step.x(1))
    mean = tape.binary("Div", tape.total(g, axes, keep=True), size)
    slope = tape.binary("Div", tape.total(tape.binary("Mul", g, standard), axes, keep=True), size)
    centred = tape.binary("Sub", tape.binary("Sub", g, mean), tape.binary("Mul", standard, slope))
    return {0: tape.binary("Div", centred, deviation)}
