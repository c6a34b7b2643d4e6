"""Equality of exported graphs, whichever processor they were exported on.

The exporter computes what does not depend on the inputs. Each kind of processor sums a matrix product in an order of
its own, so these constants differ in their last digits. Everything else is the same on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

ROUNDING = 5e-6
"""The most by which computed constants differ, relative to the largest number of each: some units in the last place."""


def equal(one: bytes, other: bytes) -> bool:
    """Return whether two serialised graphs are equal, floating-point constants to `ROUNDING` and the rest exactly."""
    if one == other:
        return True
    models = [onnx.load_model_from_string(each) for each in (one, other)]
    first, second = ([taken_out(each) for each in constants(model.graph)] for model in models)
    return models[0] == models[1] and all(map(close, first, second))


def constants(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Return the floating-point constants of a graph and of the graphs inside it."""
    yield from (each for each in graph.initializer if each.data_type in {TensorProto.FLOAT, TensorProto.DOUBLE})
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from constants(attribute.g)


def taken_out(constant: TensorProto) -> NDArray[Any]:
    """Return the numbers of a constant, which keeps its name, type and shape alone."""
    numbers = numpy_helper.to_array(constant)
    for field in ("raw_data", "float_data", "double_data"):
        constant.ClearField(field)
    return numbers


def close(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two arrays of one shape are equal to rounding."""
    largest = np.abs(one[np.isfinite(one)]).max(initial=0)
    return bool(np.allclose(one, other, rtol=0, atol=ROUNDING * largest, equal_nan=True))
