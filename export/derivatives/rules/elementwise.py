"""Operators that work entry by entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from export.derivatives.rules.step import elementwise, rule

if TYPE_CHECKING:
    from export.derivatives.rules.step import Step


@elementwise("Identity", "Dropout")
def identity(step: Step) -> str:
    """Pass the gradient on."""
    return step.g


@elementwise("Neg")
def negative(step: Step) -> str:
    """Return -g."""
    return step.tape.unary("Neg", step.g)


@elementwise("Cast")
def cast(step: Step) -> str:
    """Return g in the type of the input."""
    dtype = step.tape.types[step.x()]
    return step.tape.unary("Cast", step.g, dtype=dtype, to=dtype)


@elementwise("Abs")
def absolute(step: Step) -> str:
    """Return g sign(x)."""
    return step.tape.binary("Mul", step.g, step.tape.unary("Sign", step.x()))


@elementwise("Exp")
def exponential(step: Step) -> str:
    """Return g exp(x)."""
    return step.tape.binary("Mul", step.g, step.z)


@elementwise("Log")
def logarithm(step: Step) -> str:
    """Return g / x."""
    return step.tape.binary("Div", step.g, step.x())


@elementwise("Sqrt")
def root(step: Step) -> str:
    """Return g / (2 sqrt(x))."""
    tape = step.tape
    return tape.binary("Div", tape.binary("Mul", step.g, tape.number(0.5, step.g)), step.z)


@elementwise("Reciprocal")
def reciprocal(step: Step) -> str:
    """Return -g / x²."""
    tape = step.tape
    return tape.unary("Neg", tape.binary("Mul", step.g, tape.binary("Mul", step.z, step.z)))


@elementwise("Tanh")
def hyperbolic_tangent(step: Step) -> str:
    """Return g (1 - z²)."""
    tape = step.tape
    return tape.binary("Mul", step.g, tape.binary("Sub", tape.number(1, step.z), tape.binary("Mul", step.z, step.z)))


@elementwise("Sigmoid")
def sigmoid(step: Step) -> str:
    """Return g z (1 - z)."""
    tape = step.tape
    slope = tape.binary("Mul", step.z, tape.binary("Sub", tape.number(1, step.z), step.z))
    return tape.binary("Mul", step.g, slope)


@elementwise("Asinh")
def inverse_hyperbolic_sine(step: Step) -> str:
    """Return g / sqrt(1 + x²)."""
    tape, x = step.tape, step.x()
    square = tape.binary("Add", tape.binary("Mul", x, x), tape.number(1, x))
    return tape.binary("Div", step.g, tape.unary("Sqrt", square))


@elementwise("Sin")
def sine(step: Step) -> str:
    """Return g cos(x)."""
    return step.tape.binary("Mul", step.g, step.tape.unary("Cos", step.x()))


@elementwise("Cos")
def cosine(step: Step) -> str:
    """Return -g sin(x)."""
    return step.tape.unary("Neg", step.tape.binary("Mul", step.g, step.tape.unary("Sin", step.x())))


@elementwise("Erf")
def error_function(step: Step) -> str:
    """Return 2 g exp(-x²) / sqrt(pi)."""
    tape, x = step.tape, step.x()
    bell = tape.unary("Exp", tape.unary("Neg", tape.binary("Mul", x, x)))
    return tape.binary("Mul", step.g, tape.binary("Mul", bell, tape.number(2 / np.sqrt(np.pi), x)))


@elementwise("Gelu")
def gelu(step: Step) -> str:
    """Return g times the share below x of the normal distribution, plus g x times its density."""
    if step.attribute("approximate", b"none") != b"none":
        raise step.unknown("only the exact form is known")
    tape, x = step.tape, step.x()
    normal = tape.unary("Erf", tape.binary("Mul", x, tape.number(np.sqrt(0.5), x)))
    share = tape.binary("Mul", tape.binary("Add", normal, tape.number(1, x)), tape.number(0.5, x))
    square = tape.binary("Mul", tape.binary("Mul", x, x), tape.number(-0.5, x))
    density = tape.binary("Mul", tape.unary("Exp", square), tape.number(1 / np.sqrt(2 * np.pi), x))
    return tape.binary("Mul", step.g, tape.binary("Add", share, tape.binary("Mul", x, density)))


@elementwise("Relu")
def relu(step: Step) -> str:
    """Return g where the result is positive."""
    return step.tape.only(step.tape.compare("Greater", step.z, step.tape.number(0, step.z)), step.g)


@elementwise("LeakyRelu")
def leaky_relu(step: Step) -> str:
    """Return g where the input is positive, and a multiple of it elsewhere."""
    tape, slope = step.tape, step.attribute("alpha", 0.01)
    below = tape.binary("Mul", step.g, tape.number(slope, step.g))
    return tape.where(tape.compare("Greater", step.x(), tape.number(0, step.x())), step.g, below)


@elementwise("Elu")
def exponential_linear(step: Step) -> str:
    """Return g where the input is positive, and g (z + alpha) elsewhere."""
    tape, scale = step.tape, step.attribute("alpha", 1.0)
    below = tape.binary("Mul", step.g, tape.binary("Add", step.z, tape.number(scale, step.z)))
    return tape.where(tape.compare("Greater", step.x(), tape.number(0, step.x())), step.g, below)


@elementwise("Clip")
def clip(step: Step) -> str:
    """Return g within the bounds."""
    tape, found = step.tape, step.g
    for bound, kind in zip(step.node.input[1:], ("GreaterOrEqual", "LessOrEqual"), strict=False):
        found = tape.only(tape.compare(kind, step.x(), bound), found) if bound else found
    return found


@rule("Softmax")
def softmax(step: Step) -> dict[int, str]:
    """Return z (g - sum(g z))."""
    tape, axis = step.tape, step.attribute("axis", -1) % len(step.shape())
    weighted = tape.binary("Mul", step.whole, step.z)
    mean = tape.binary("Mul", step.z, tape.total(weighted, [axis], keep=True))
    return {0: tape.binary("Sub", weighted, mean)}


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
    tape = step.tape
    upper = tape.binary("Div", step.g, step.x(1))
    found = {0: step.collected(upper, 0)} if step.wanted[0] else {}
    lower = tape.unary("Neg", tape.binary("Mul", upper, step.z)) if step.wanted[1] else ""
    return found | ({1: step.collected(lower, 1)} if lower else {})


@rule("Pow")
def power(step: Step) -> dict[int, str]:
    """Return g n x^(n - 1), for a constant exponent n."""
    tape, exponent = step.tape, step.x(1)
    if step.wanted[1]:
        raise step.unknown("only the base may vary")
    value = float(tape.value(exponent).reshape(-1)[0])
    if tape.value(exponent).size != 1:
        raise step.unknown("expected one exponent")
    less = step.x() if value == 2 else tape.binary("Pow", step.x(), tape.number(value - 1, step.x()))
    slope = tape.binary("Mul", less, tape.number(value, step.x()))
    return {0: step.collected(tape.binary("Mul", step.g, slope), 0)}


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
