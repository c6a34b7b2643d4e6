"""Equality of graphs: constants to rounding, names and places not at all, and everything else exactly."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export.graphs.equality import equal

NUMBERS = np.linspace(-340, 250, 6, dtype=np.float32).reshape(2, 3)


def graph(numbers: NDArray[np.float32] = NUMBERS, axis: int = 0, kind: str = "Add", *, inside: bool = False) -> bytes:
    """Return a graph with a floating-point constant and an axis; `inside` puts the constant into a branch."""
    constant = numpy_helper.from_array(numbers, "numbers")
    work = helper.make_node(kind, ["x", "numbers"], ["moved"])
    moved = helper.make_tensor_value_info("moved", TensorProto.FLOAT, None)
    branch = helper.make_graph([work], "branch", [], [moved], [constant] if inside else [])
    nodes = [
        helper.make_node("If", ["yes"], ["chosen"], then_branch=branch, else_branch=branch),
        helper.make_node("ReduceSum", ["chosen", "axes"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    yes = helper.make_tensor_value_info("yes", TensorProto.BOOL, [])
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [axis])
    whole = helper.make_graph(nodes, "whole", [x, yes], [y], [axes, *([] if inside else [constant])])
    return bytes(helper.make_model(whole).SerializeToString(deterministic=True))


@pytest.mark.parametrize("inside", [False, True])
def test_constants_are_equal_to_rounding_wherever_they_are(inside: bool) -> None:
    next_numbers = np.nextafter(NUMBERS, np.float32(np.inf))
    assert graph(next_numbers, inside=inside) != graph(inside=inside)
    assert equal(graph(next_numbers, inside=inside), graph(inside=inside))
    assert not equal(graph(NUMBERS * np.float32(1.0001), inside=inside), graph(inside=inside))


def test_nodes_integers_shapes_and_numbers_that_are_none_are_compared_exactly() -> None:
    assert not equal(graph(kind="Sub"), graph())
    assert not equal(graph(axis=1), graph())
    assert not equal(graph(NUMBERS.reshape(3, 2)), graph())
    assert not equal(graph(np.where(NUMBERS > 0, np.float32(np.nan), NUMBERS)), graph())


def test_a_value_may_be_called_otherwise_and_made_elsewhere_but_is_the_same_one() -> None:
    """One that is read in the place of another makes another graph."""
    assert equal(graph().replace(b"moved", b"shift").replace(b"numbers", b"numeric"), graph())

    def difference(order: str, *taken: str, wire: str = "x", result: str = "y") -> bytes:
        kinds = {"a": "Exp", "b": "Sin", "c": "Exp", "d": "Sin"}
        nodes = [helper.make_node(kinds[each], [wire], [each], f"node_{each}") for each in order]
        nodes.append(helper.make_node("Sub", taken, [result]))
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (wire, result))
        made = helper.make_graph(nodes, "whole", [x], [y])
        made.value_info.extend(helper.make_tensor_value_info(each, TensorProto.FLOAT, [1]) for each in order)
        return bytes(helper.make_model(made).SerializeToString())

    known = difference("ab", "a", "b")
    assert equal(difference("cd", "c", "d"), known)
    assert equal(difference("ba", "a", "b"), known)
    assert not equal(difference("ab", "b", "a"), known)
    assert not equal(difference("ab", "a", "b", wire="z"), known)
    assert not equal(difference("ab", "a", "b", result="z"), known)


def test_a_damaged_graph_whose_nodes_read_one_another_is_another_graph() -> None:
    def chain(read: str) -> bytes:
        nodes = [helper.make_node("Add", ["x", read], ["a"]), helper.make_node("Exp", ["a"], ["y"])]
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
        return bytes(helper.make_model(helper.make_graph(nodes, "whole", [x], [y])).SerializeToString())

    assert not equal(chain("y"), chain("x"))
    assert not equal(chain("a"), chain("x"))
