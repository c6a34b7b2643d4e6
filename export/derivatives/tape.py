"""A graph that grows node by node and knows the shape of every tensor.

Sizes of axes are expressions of the graph's free axes, such as `2*((row//2)) + 4`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import sympy
from onnx import NodeProto, TensorProto, helper, numpy_helper

from export.graphs.to_onnx import GraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from numpy.typing import NDArray

Size = Any  # a sympy expression with integer values

Shape = tuple[Size, ...]

ONE = sympy.Integer(1)


PREFIX = "derivative_"
FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})
INT64 = TensorProto.INT64


class Tape:
    """The nodes of a graph, and methods that append nodes and return the names of their results.

    Equal nodes are appended once. Shapes, types and constants are by the tensors' names.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.nodes: list[onnx.NodeProto] = list(graph.node)
        self.constants: dict[str, NDArray[Any]] = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
        self.shapes: dict[str, Shape] = {name: sizes(array.shape) for name, array in self.constants.items()}
        self.types: dict[str, int] = {each.name: each.data_type for each in graph.initializer}
        for value in (*graph.input, *graph.value_info, *graph.output):
            self.describe(value)
        self._inputs = [value.name for value in graph.input]
        self._known: dict[Hashable, str] = {}
        self._vectors = vectors(self.nodes, self.shapes, self.constants)

    def describe(self, value: onnx.ValueInfoProto) -> None:
        """Take shape and type of a tensor from the exporter's description."""
        tensor = value.type.tensor_type
        self.types[value.name] = tensor.elem_type
        self.shapes[value.name] = tuple(
            parse(dim.dim_param) if dim.HasField("dim_param") else parse(str(dim.dim_value)) for dim in tensor.shape.dim
        )

    def unknown(self, like: str) -> str:
        """Return the name of a tensor that no node computes, for linear maps of it."""
        name = f"{PREFIX}unknown_{like}"
        self.shapes[name], self.types[name] = self.shapes[like], self.types[like]
        return name

    def add(self, kind: str, inputs: Sequence[str], shape: Shape, dtype: int | None = None, **attributes: Any) -> str:
        """Append a node with one result, by default of the type of the first input; "" leaves an input out."""
        key = (kind, *inputs, *sorted((name, str(value)) for name, value in attributes.items()))
        if key not in self._known:
            name = f"{PREFIX}{len(self.nodes)}"
            self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
            self.shapes[name], self.types[name] = shape, self.types[inputs[0]] if dtype is None else dtype
            self._known[key] = name
        return self._known[key]

    def constant(self, value: Any, dtype: type | str = np.int64) -> str:
        """Return the name of a constant."""
        array = np.asarray(value, dtype)
        key = ("constant", array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            name = f"{PREFIX}constant_{len(self.constants)}"
            self.constants[name], self.shapes[name] = array, sizes(array.shape)
            self.types[name] = helper.np_dtype_to_tensor_dtype(array.dtype)
            self._known[key] = name
        return self._known[key]

    def number(self, value: float, like: str) -> str:
        return self.constant(value, helper.tensor_dtype_to_np_dtype(self.types[like]).str)

    def value(self, name: str) -> NDArray[Any]:
        """Return the value of a constant tensor."""
        if name not in self.constants:
            raise GraphError(f"expected {name!r} to be a constant, for a derivative, but the graph computes it")
        return self.constants[name]

    # Elementwise operators.

    def binary(self, kind: str, first: str, second: str, dtype: int | None = None) -> str:
        """Append an elementwise operator of two tensors."""
        return self.add(kind, [first, second], broadcast(self.shapes[first], self.shapes[second]), dtype)

    def unary(self, kind: str, x: str, **attributes: Any) -> str:
        """Append an elementwise operator of one tensor."""
        return self.add(kind, [x], self.shapes[x], **attributes)

    def compare(self, kind: str, first: str, second: str) -> str:
        return self.binary(kind, first, second, TensorProto.BOOL)

    def where(self, mask: str, first: str, second: str) -> str:
        shape = broadcast(self.shapes[mask], broadcast(self.shapes[first], self.shapes[second]))
        return self.add("Where", [mask, first, second], shape, self.types[first])

    def only(self, mask: str, x: str) -> str:
        """Return x where the mask is true, and 0 elsewhere."""
        return self.where(mask, x, self.number(0, x))

    # Shapes.

    def total(self, x: str, axes: Sequence[int], *, keep: bool) -> str:
        """Append a sum over axes."""
        shape = self.shapes[x]
        left = tuple(ONE if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes)
        return self.add("ReduceSum", [x, self.constant(list(axes))], left, keepdims=int(keep)) if axes else x

    def spread(self, x: str, shape: Shape) -> str:
        """Append a broadcast to a shape, if the tensor does not have it."""
        if self.shapes[x] == shape:
            return x
        return self.add("Expand", [x, self.ints(shape)], shape)

    def collect(self, x: str, shape: Shape) -> str:
        """Append the sums that a broadcast from a shape makes of a gradient: the transpose of `spread`."""
        added = len(self.shapes[x]) - len(shape)
        x = self.total(x, range(added), keep=False)
        axes = [axis for axis, (a, b) in enumerate(zip(self.shapes[x], shape, strict=True)) if b == 1 and a != 1]
        return self.total(x, axes, keep=True)

    def reshape(self, x: str, shape: Shape) -> str:
        free = [axis for axis, size in enumerate(shape) if not size.is_Integer]
        if len(free) == 1:
            known = [-1 if axis in free else int(size) for axis, size in enumerate(shape)]
            return self.add("Reshape", [x, self.constant(known)], shape)
        return self.add("Reshape", [x, self.ints(shape)], shape)

    def as_shape(self, x: str, shape: Shape) -> str:
        """Append a reshape, if the tensor does not have the shape."""
        return x if self.shapes[x] == shape else self.reshape(x, shape)

    def transpose(self, x: str, order: Sequence[int]) -> str:
        return self.add("Transpose", [x], tuple(self.shapes[x][axis] for axis in order), perm=list(order))

    def pad(self, x: str, before: Shape, after: Shape) -> str:
        shape = tuple(a + b + c for a, b, c in zip(before, self.shapes[x], after, strict=True))
        return self.add("Pad", [x, self.ints((*before, *after)), self.number(0, x)], shape, mode="constant")

    def cut(self, x: str, axis: int, start: Size, length: Size) -> str:
        """Append a part of an axis."""
        shape = (*self.shapes[x][:axis], length, *self.shapes[x][axis + 1 :])
        bounds = [self.ints((start,)), self.ints((start + length,)), self.constant([axis])]
        return x if shape == self.shapes[x] else self.add("Slice", [x, *bounds], shape)

    def join(self, parts: Sequence[str], axis: int) -> str:
        length = sum((self.shapes[part][axis] for part in parts), ONE - 1)
        shape = (*self.shapes[parts[0]][:axis], length, *self.shapes[parts[0]][axis + 1 :])
        return self.add("Concat", parts, shape, axis=axis)

    # Sizes, which are computed from the shapes of the graph's inputs.

    def ints(self, expressions: Sequence[Size]) -> str:
        """Return a vector of sizes: a constant where all of them are numbers."""
        if all(each.is_Integer for each in expressions):
            return self.constant([int(each) for each in expressions])
        parts = [self.size(each) for each in expressions]
        found = parts[0] if len(parts) == 1 else self.add("Concat", parts, sizes([len(parts)]), INT64, axis=0)
        self._vectors[found] = tuple(expressions)
        return found

    def vector(self, name: str) -> Shape:
        """Return the entries of a vector of sizes."""
        return self._vectors[name] if name in self._vectors else sizes([int(each) for each in self.value(name)])

    def size(self, expression: Size) -> str:
        """Return a vector of one size."""
        if expression.is_Integer:
            return self.constant([int(expression)])
        if expression.is_Symbol:
            return self.free(expression)
        if expression.func.__name__ == "floor":
            numerator, denominator = expression.args[0].as_numer_denom()
            return self.add("Div", [self.size(numerator), self.size(denominator)], (ONE,), INT64)
        kinds = {"Add": "Add", "Mul": "Mul"}
        if expression.func.__name__ not in kinds:
            raise GraphError(f"expected a size made of the inputs' sizes, for a derivative, but found {expression}")
        first, *others = (self.size(part) for part in expression.args)
        for other in others:
            first = self.add(kinds[expression.func.__name__], [first, other], (ONE,), INT64)
        return first

    def free(self, size: Size) -> str:
        """Return a free size of an input, or of the first tensor that has it."""
        for name in (*self._inputs, *self.shapes):
            if size in self.shapes[name]:
                axis = self.shapes[name].index(size)
                return self.add("Shape", [name], (ONE,), INT64, start=axis, end=axis + 1)
        raise GraphError(f"expected a tensor of size {size}, for a derivative, but there is none")


@dataclass(frozen=True)
class Operand:
    """A tensor of a graph that grows, with the arithmetic of numbers: every operator appends a node."""

    tape: Tape
    name: str

    def __add__(self, other: Operand | float) -> Operand:
        return self.binary("Add", other)

    def __sub__(self, other: Operand | float) -> Operand:
        return self.binary("Sub", other)

    def __rsub__(self, other: float) -> Operand:
        return Operand(self.tape, self.tape.number(other, self.name)).binary("Sub", self)

    def __mul__(self, other: Operand | float) -> Operand:
        return self.binary("Mul", other)

    def __truediv__(self, other: Operand | float) -> Operand:
        return self.binary("Div", other)

    def __neg__(self) -> Operand:
        return self.map("Neg")

    def map(self, kind: str) -> Operand:
        """Append an elementwise operator of this tensor."""
        return Operand(self.tape, self.tape.unary(kind, self.name))

    def binary(self, kind: str, other: Operand | float) -> Operand:
        """Append an elementwise operator of this tensor and another, or a number."""
        return Operand(self.tape, self.tape.binary(kind, self.name, self._name_of(other)))

    def compare(self, kind: str, other: Operand | float) -> Operand:
        return Operand(self.tape, self.tape.compare(kind, self.name, self._name_of(other)))

    def only(self, mask: Operand) -> Operand:
        return Operand(self.tape, self.tape.only(mask.name, self.name))

    def total(self, axes: Sequence[int]) -> Operand:
        """Append a sum over axes, which stay with size 1."""
        return Operand(self.tape, self.tape.total(self.name, axes, keep=True))

    def _name_of(self, other: Operand | float) -> str:
        return other.name if isinstance(other, Operand) else self.tape.number(other, self.name)


def sizes(shape: Sequence[int]) -> Shape:
    """Return a shape of numbers as sizes."""
    return tuple(parse(str(points)) for points in shape)


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
    """Return the entries of all vectors (and numbers) that a graph computes from the shapes of tensors."""
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
