"""What a rule receives, and the table of rules: the gradients of an operator's inputs by that of its result.

A gradient may have size 1 along an axis on which all of its entries are equal; `Gradients.whole` spreads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnx import NodeProto, helper

from export.derivatives.tape import ONE, Shape
from export.graphs.to_onnx import GraphError

if TYPE_CHECKING:
    from export.derivatives.tape import Tape


@dataclass(frozen=True)
class Step:
    """A node of a graph whose results have gradients.

    Attributes:
        tape: The graph.
        node: The node.
        gradients: The gradient of each result, None where there is none.
        wanted: Per input whether its gradient is needed.
    """

    tape: Tape
    node: NodeProto
    gradients: tuple[str | None, ...]
    wanted: tuple[bool, ...]

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
        """Return an input."""
        return self.node.input[index]

    def shape(self, index: int = 0) -> Shape:
        """Return the shape of an input."""
        return self.tape.shapes[self.x(index)]

    @property
    def whole(self) -> str:
        """The gradient in the shape of the result."""
        return self.tape.spread(self.g, self.tape.shapes[self.z])

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the node."""
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
RULES: dict[str, Rule] = {}
"""Operator -> the gradients of those of its inputs that are wanted, by index."""

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


def elementwise(*kinds: str) -> Callable[[Callable[[Step], str]], Rule]:
    """Register the derivative of an elementwise operator of one tensor."""

    def register(function: Callable[[Step], str]) -> Rule:
        return rule(*kinds)(lambda step: {0: function(step)})

    return register
