"""What a rule receives, the table of rules, and the rules of entries by themselves and of sums along axes.

A rule returns the gradients of an operator's inputs by that of its result. A gradient may have size 1 along an axis on
which all of its entries are equal; `Step.whole` spreads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnx import NodeProto, helper

from export.derivatives.tape import ONE, Operand, Shape
from export.graphs.to_onnx import GraphError

if TYPE_CHECKING:
    from export.derivatives.tape import Tape

# ruff: noqa: ARG005 - a formula need not depend on all of g, x and z


@dataclass(frozen=True)
class Step:
    """A node of a graph whose results have gradients."""

    tape: Tape
    node: NodeProto
    gradients: tuple[str | None, ...]  # the gradient of each result, None where there is none
    wanted: tuple[bool, ...]  # per input whether its gradient is needed

    @property
    def g(self) -> str:
        """The gradient of the only result, or of the first."""
        found = self.gradients[0]
        if found is None:
            raise self.unknown("its first result is not used")
        return found

    @property
    def z(self) -> str:
        """The only result, or the first."""
        return self.node.output[0]

    def x(self, index: int = 0) -> str:
        return self.node.input[index]

    def shape(self, index: int = 0) -> Shape:
        return self.tape.shapes[self.x(index)]

    @property
    def whole(self) -> str:
        """The gradient in the shape of the result."""
        return self.tape.spread(self.g, self.tape.shapes[self.z])

    def operands(self, *names: str) -> tuple[Operand, ...]:
        """Return tensors with the arithmetic of numbers."""
        return tuple(Operand(self.tape, name) for name in names)

    def attribute(self, name: str, default: Any = None) -> Any:
        for attribute in self.node.attribute:
            if attribute.name == name:
                return helper.get_attribute_value(attribute)
        return default

    def collected(self, gradient: str, index: int) -> str:
        """Return a gradient in the shape of an input that the operator has broadcast."""
        shape, result = self.shape(index), self.tape.shapes[self.z]
        summed = tuple(ONE for _ in range(len(result) - len(shape))) + shape
        have = self.tape.shapes[gradient]
        have = (ONE,) * (len(result) - len(have)) + have
        if any(a == 1 and b == 1 and c != 1 for a, b, c in zip(have, summed, result, strict=True)):
            gradient = self.tape.spread(gradient, result)
        return self.tape.collect(gradient, shape) if len(self.tape.shapes[gradient]) >= len(shape) else gradient

    def unknown(self, reason: str) -> GraphError:
        """Return the error that there is no derivative."""
        return GraphError(f"{self.node.op_type} {self.node.name!r} has no derivative: {reason}")


Rule = Callable[[Step], dict[int, str]]
RULES: dict[str, Rule] = {}  # operator -> the gradients of those of its inputs that are wanted, by index

#: Operators whose results do not change with small changes of their inputs.
CONSTANT = frozenset(
    {"And", "ArgMax", "ArgMin", "Ceil", "ConstantOfShape", "Equal", "Floor", "Greater", "GreaterOrEqual", "IsInf",
     "IsNaN", "Less", "LessOrEqual", "NonZero", "Not", "Or", "Range", "Round", "Shape", "Sign", "Size"}
)  # fmt: skip


def rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Register the derivative of operators."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, function))
        return function

    return register


#: The gradient of the input x of an operator with the result z, by the gradient g of z.
FORMULAS: dict[str, Callable[[Operand, Operand, Operand], Operand]] = {
    "Identity": lambda g, x, z: g,
    "Dropout": lambda g, x, z: g,
    "Neg": lambda g, x, z: -g,
    "Abs": lambda g, x, z: g * x.map("Sign"),
    "Exp": lambda g, x, z: g * z,
    "Log": lambda g, x, z: g / x,
    "Sqrt": lambda g, x, z: g * 0.5 / z,
    "Reciprocal": lambda g, x, z: -(g * (z * z)),
    "Tanh": lambda g, x, z: g * (1 - z * z),
    "Sigmoid": lambda g, x, z: g * (z * (1 - z)),
    "Asinh": lambda g, x, z: g / (x * x + 1).map("Sqrt"),
    "Sin": lambda g, x, z: g * x.map("Cos"),
    "Cos": lambda g, x, z: -(g * x.map("Sin")),
    "Erf": lambda g, x, z: g * ((-(x * x)).map("Exp") * (2 / math.sqrt(math.pi))),
    "Relu": lambda g, x, z: g.only(z.compare("Greater", 0)),
}


def _formula(step: Step) -> dict[int, str]:
    return {0: FORMULAS[step.node.op_type](*step.operands(step.g, step.x(), step.z)).name}


RULES.update(dict.fromkeys(FORMULAS, _formula))


@rule("Cast")
def cast(step: Step) -> dict[int, str]:
    """Return g in the type of the input."""
    dtype = step.tape.types[step.x()]
    return {0: step.tape.unary("Cast", step.g, dtype=dtype, to=dtype)}


@rule("Gelu")
def gelu(step: Step) -> dict[int, str]:
    """Return g times the share below x of the normal distribution, plus g x times its density."""
    if step.attribute("approximate", b"none") != b"none":
        raise step.unknown("only the exact form is known")
    g, x = step.operands(step.g, step.x())
    share = ((x * math.sqrt(0.5)).map("Erf") + 1) * 0.5
    density = (x * x * -0.5).map("Exp") * (1 / math.sqrt(2 * math.pi))
    return {0: (g * (share + x * density)).name}


@rule("LeakyRelu", "Elu")
def bent(step: Step) -> dict[int, str]:
    """Return g where the input is positive, and a multiple of it, or of g (z + alpha), elsewhere."""
    g, x, z = step.operands(step.g, step.x(), step.z)
    leaky = step.node.op_type == "LeakyRelu"
    alpha = step.attribute("alpha", 0.01 if leaky else 1.0)
    below = g * alpha if leaky else g * (z + alpha)
    return {0: step.tape.where(x.compare("Greater", 0).name, g.name, below.name)}


@rule("Clip")
def clip(step: Step) -> dict[int, str]:
    """Return g within the bounds."""
    tape, found = step.tape, step.g
    for bound, kind in zip(step.node.input[1:], ("GreaterOrEqual", "LessOrEqual"), strict=False):
        found = tape.only(tape.compare(kind, step.x(), bound), found) if bound else found
    return {0: found}


@rule("Softmax")
def softmax(step: Step) -> dict[int, str]:
    """Return z (g - sum(g z))."""
    g, z = step.operands(step.whole, step.z)
    weighted = g * z
    return {0: (weighted - z * weighted.total([step.attribute("axis", -1) % len(step.shape())])).name}


@rule("Add")
def add(step: Step) -> dict[int, str]:
    """Pass the gradient on to both terms."""
    return {index: step.collected(step.g, index) for index in (0, 1)}


@rule("Sub")
def subtract(step: Step) -> dict[int, str]:
    """Return g and -g."""
    found = {0: step.collected(step.g, 0)} if step.wanted[0] else {}
    return found | ({1: step.tape.unary("Neg", step.collected(step.g, 1))} if step.wanted[1] else {})


@rule("Mul")
def multiply(step: Step) -> dict[int, str]:
    """Return g times the other factor."""
    pairs = [(index, step.x(1 - index)) for index in (0, 1) if step.wanted[index]]
    return {index: step.collected(step.tape.binary("Mul", step.g, other), index) for index, other in pairs}


@rule("Div")
def divide(step: Step) -> dict[int, str]:
    """Return g / y and -g z / y."""
    g, y, z = step.operands(step.g, step.x(1), step.z)
    upper = g / y
    found = {0: step.collected(upper.name, 0)} if step.wanted[0] else {}
    return found | ({1: step.collected((-(upper * z)).name, 1)} if step.wanted[1] else {})


@rule("Pow")
def power(step: Step) -> dict[int, str]:
    """Return g n x^(n - 1), for a constant exponent n."""
    if step.wanted[1]:
        raise step.unknown("only the base may vary")
    exponent = step.tape.value(step.x(1))
    if exponent.size != 1:
        raise step.unknown("expected one exponent")
    n = float(exponent.reshape(-1)[0])
    g, x = step.operands(step.g, step.x())
    less = x if n == 2 else x.binary("Pow", n - 1)
    return {0: step.collected((g * (less * n)).name, 0)}


@rule("Max", "Min")
def extreme(step: Step) -> dict[int, str]:
    """Pass the gradient to the larger (smaller) input, and to a varying one where it equals a constant."""
    tape = step.tape
    if len(step.node.input) != 2:
        raise step.unknown("expected two inputs")
    beyond, reached = ("Greater", "GreaterOrEqual") if step.node.op_type == "Max" else ("Less", "LessOrEqual")
    found = {}
    for index in (0, 1):
        own, other = step.x(index), step.x(1 - index)
        if all(step.wanted[:2]):
            half = tape.binary("Mul", step.g, tape.number(0.5, step.g))
            shared = tape.only(tape.compare("Equal", own, other), half)
            found[index] = step.collected(tape.where(tape.compare(beyond, own, other), step.g, shared), index)
        elif step.wanted[index]:
            found[index] = step.collected(tape.only(tape.compare(reached, own, other), step.g), index)
    return found


@rule("Where")
def where(step: Step) -> dict[int, str]:
    """Pass the gradient on to what is chosen."""
    tape, zero, found = step.tape, step.tape.number(0, step.g), {}
    if step.wanted[1]:
        found[1] = step.collected(tape.where(step.x(0), step.g, zero), 1)
    if step.wanted[2]:
        found[2] = step.collected(tape.where(step.x(0), zero, step.g), 2)
    return found


# Reductions


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
