"""Checks against the card, each with the location in the caller's own array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from schema.card import Card, Parameter
from schema.problem import Grid
from serving import checks
from serving.errors import Problem, Where
from serving.frames import Rollout
from serving.inputs import Arrays, Prediction
from serving.limits import ANYONE
from serving.protocols import umbridge_models
from serving.service import Service
from serving.settings import Settings
from serving.triton import RUN_BYTES, Triton
from tests.refusals import refused


def tensor(name: str, axes: list[str], meaning: str, *, positive: bool) -> dict[str, object]:
    return {"name": name, "dtype": "FP32", "axes": axes, "meaning": meaning, "units": "1", "positive": positive}


def card(inputs: list[dict[str, object]]) -> Card:
    return Card.model_validate(
        {
            "model": "flow",
            "version": 1,
            "format": "onnx",
            "title": "Flow",
            "problem": "flow",
            "equation": "",
            "boundary": "",
            "inputs": inputs,
            "outputs": [tensor("u", ["batch", "row", "column"], "pressure", positive=False)],
            "grid": {"axes": ["row", "column"], "minimum": 3, "maximum": 9, "declared": [5, 7], "points": ""},
            "limits": {"batch": 4},
            "training": {},
            "errors": [],
            "classical": [],
            "checkpoint": {},
        }
    )


FLOW = card([tensor("a", ["batch", "row", "column"], "permeability", positive=True)])
WAVE = card([tensor("w", ["batch", "row", "column"], "wave", positive=False)])


def check(array: NDArray[Any], of: Card = FLOW) -> tuple[NDArray[Any], bool]:
    batches, single = checks.batch({of.inputs[0].name: array}, of)
    return batches[of.inputs[0].name], single


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8", ">f8", "i1", "<i8", "u1", ">u4", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numbers_become_float32(dtype: str, order: Any) -> None:
    array = np.ones((2, 3, 4), dtype, order=order)
    batch, single = check(array)
    assert batch.dtype == np.float32
    assert batch.flags.c_contiguous
    assert not single
    np.testing.assert_array_equal(batch, array)


def test_float32_is_not_copied() -> None:
    array = np.ones((2, 3, 4), np.float32)
    assert np.shares_memory(check(array)[0], array)


def test_one_field_is_a_batch_of_one() -> None:
    batch, single = check(np.ones((3, 4)))
    assert batch.shape == (1, 3, 4)
    assert single


@pytest.mark.parametrize("shape", [(), (5,), (1, 1, 5, 5)])
def test_the_rank_is_that_of_a_field_or_a_batch(shape: Any) -> None:
    with refused("wrong-shape", match=r"expected \(batch, row, column\) or \(row, column\) but got shape") as caught:
        check(np.ones(shape))
    assert caught.value.where is not None
    assert caught.value.where.array == "a"


def test_an_empty_batch_is_refused() -> None:
    with refused("wrong-shape", match="at least one field"):
        check(np.ones((0, 5, 5)))


@pytest.mark.parametrize(
    ("shape", "axis", "size"), [((2, 5), "row", 2), ((5, 10), "column", 10), ((1, 5, 0), "column", 0)]
)
def test_a_grid_outside_the_limits_is_refused(shape: Any, axis: str, size: int) -> None:
    with refused("grid-out-of-limits", match=f'a has {size} points along "{axis}"; the model takes 3 to 9'):
        check(np.ones(shape))


@given(st.data())
def test_the_first_bad_value_is_located(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(5, 6), (3, 5, 6)]))
    array = np.ones(shape)
    indices = data.draw(st.lists(st.integers(0, array.size - 1), min_size=1, max_size=3))
    value, problem = data.draw(
        st.sampled_from(
            [
                (np.nan, "non-finite"),
                (-np.inf, "non-finite"),
                (1e39, "non-finite"),
                (0.0, "non-positive"),
                (-2.0, "non-positive"),
            ]
        )
    )
    array.flat[indices] = value
    index = [int(i) for i in np.unravel_index(min(indices), shape)]
    with refused(problem) as caught:
        check(array)
    assert caught.value.where is not None
    assert caught.value.where.index == index
    assert caught.value.detail.startswith(f"a[{','.join(map(str, index))}] is {value}")


def test_messages_use_the_meaning_in_the_card() -> None:
    with refused("non-positive", match=r"^a\[0,0\] is -2.0; a permeability must be positive$"):
        check(np.full((5, 5), -2.0))
    with refused("non-finite", match=r"is 1e\+39, beyond the range of float32$"):
        check(np.full((5, 5), 1e39))
    with refused("non-positive", match=r"is 1e-60 \(zero in float32\)"):
        check(np.full((5, 5), 1e-60))


def test_only_positive_quantities_must_be_positive() -> None:
    assert check(np.full((5, 5), -2.0), WAVE)[0].max() == -2.0


FULL = card(
    [
        tensor("a", ["batch", "row", "column"], "permeability", positive=True),
        tensor("v", ["batch", "component", "row", "column"], "velocity", positive=False)
        | {"shape": [None, 2, None, None], "components": ["x", "y"], "default": 0.5},
    ]
).model_copy(
    update={
        "parameters": (
            Parameter(name="p", meaning="wind", units="m/s", default=0.25),
            Parameter(name="q", meaning="heat", units="W", minimum=0.1, maximum=2.0),
        )
    }
)


def test_what_is_left_out_has_the_default_of_the_card() -> None:
    batches, single = checks.batch({"a": np.ones((3, 5, 6)), "q": np.array(1)}, FULL)
    assert not single
    assert list(batches) == ["a", "v", "p", "q"]
    assert (batches["v"].shape, batches["v"].min(), batches["v"].max()) == ((3, 2, 5, 6), 0.5, 0.5)
    np.testing.assert_array_equal(batches["p"], np.full(3, 0.25, np.float32))
    np.testing.assert_array_equal(batches["q"], np.ones(3, np.float32))
    assert {array.dtype for array in batches.values()} == {np.dtype(np.float32)}


def test_a_single_sample_has_single_numbers() -> None:
    batches, single = checks.batch({"a": np.ones((5, 6)), "v": np.zeros((2, 5, 6)), "q": np.array([1.5])}, FULL)
    assert single
    assert (batches["a"].shape, batches["v"].shape, batches["q"].tolist()) == ((1, 5, 6), (1, 2, 5, 6), [1.5])


@pytest.mark.parametrize(
    ("change", "problem", "message"),
    [
        ({"v": np.ones((3, 3, 5, 6))}, "wrong-shape", r"v has 3 components; expected 2 \(x, y\)"),
        ({"v": np.ones((3, 2, 5, 7))}, "wrong-shape", r"v has shape \(3, 2, 5, 7\) and a \(3, 5, 6\)"),
        ({"v": np.ones((2, 5, 6))}, "wrong-shape", r"v has shape \(2, 5, 6\) and a \(3, 5, 6\)"),
        ({"v": np.ones((3, 2, 5, 2))}, "grid-out-of-limits", 'v has 2 points along "column"; the model takes 3 to 9'),
        ({"q": np.ones(2)}, "wrong-shape", r"q has shape \(2,\); expected one number, or one per sample \(3,\)"),
        ({"q": np.ones((3, 1))}, "wrong-shape", r"q has shape \(3, 1\)"),
        ({"q": np.array([1, 3, 1])}, "out-of-range", r"^q\[1\] is 3; expected 0.1 to 2$"),
        ({"q": np.array(0.001, np.float32)}, "out-of-range", "^q is 0.001; expected 0.1 to 2$"),
        ({"q": np.array(np.nan)}, "non-finite", "^q is nan; values must be finite$"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: Any, problem: Any, message: str) -> None:
    with refused(problem, match=message) as caught:
        checks.batch({"a": np.ones((3, 5, 6)), "q": np.array(1)} | change, FULL)
    assert caught.value.where is not None
    assert caught.value.where.array in change


def test_bounds_are_compared_in_float32() -> None:
    assert checks.batch({"a": np.ones((5, 6)), "q": np.array(0.1)}, FULL)[0]["q"] == np.float32(0.1)


def test_no_input_at_all_is_refused() -> None:
    optional = card([tensor("a", ["batch", "row", "column"], "source", positive=False) | {"default": 1.0}])
    with refused("wrong-input", match="no input was sent, so the grid is unknown; send a"):
        checks.batch({}, optional)


async def test_no_input_at_all_is_refused_on_its_way_to_the_model(tmp_path: Path) -> None:
    optional = card([tensor("a", ["batch", "row", "column"], "source", positive=False) | {"default": 1.0}])
    service = Service(Settings.model_validate({"repository": tmp_path}), Triton("127.0.0.1:1", 1), "0")
    with refused("wrong-input", match="no input was sent, so the grid is unknown; send a"):
        await service.predictor.predict(Prediction(optional, "", ANYONE), Arrays({}))


def test_inputs_agree_in_shape() -> None:
    axes = ["batch", "row", "column"]
    both = card([tensor("a", axes, "x", positive=False), tensor("b", axes, "y", positive=False)])
    with refused("wrong-shape", match=r"b has shape \(5, 6\) and a \(5, 5\)"):
        checks.batch({"a": np.ones((5, 5)), "b": np.ones((5, 6))}, both)


def test_an_output_that_is_not_finite_is_an_error_that_names_the_sample() -> None:
    output = np.ones((3, 3, 3), np.float32)
    assert not checks.not_finite({"u": output}).any()
    output[1, 2, 0] = np.inf
    failed = checks.not_finite({"v": np.ones((3, 2)), "u": output})
    assert failed.tolist() == [False, True, False]
    fault = checks.output_fault({"u": output}, failed, FLOW, single=False)
    assert "for sample 1 of a is not finite (u[2,0] is inf); 1 of 3 samples fail" in fault.detail
    assert fault.details().where == Where(array="a", index=[1])


def test_grid_labels_are_few() -> None:
    assert checks.grid_label((5, 5), FLOW) == "5x5"
    assert checks.grid_label((6, 6), FLOW) == "other"
    assert checks.grid_label((5, 7), FLOW) == "other"
    grid = Grid.model_validate(FLOW.grid.model_dump() | {"unequal": ((5, 7),)})
    oblong = FLOW.model_copy(update={"grid": grid})
    assert checks.grid_label((5, 7), oblong) == "5x7"


def test_invalid_arrays_always_name_the_array() -> None:
    for array in (np.ones(3), np.ones((1, 1)), np.zeros((5, 5)), np.full((5, 5), np.nan)):
        with pytest.raises(Problem) as caught:
            check(array)
        assert caught.value.where is not None
        assert caught.value.where.array == "a"


def test_few_frames_are_computed_at_once_where_their_forcing_is_large() -> None:
    held = {"frames": {"states": ["a"], "trained": 8, "maximum": 8, "step": 1.0}}
    forcing = tensor("f", ["batch", "frame", "component", "row", "column"], "force", positive=False)
    more = forcing | {"shape": [None, None, 3, None, None], "components": ["x", "y", "z"], "default": 0.0}
    of = Card.model_validate(FLOW.model_dump() | held | {"inputs": [FLOW.inputs[0].model_dump(), more]})
    sent = {"a": np.broadcast_to(np.float32(1), (1, 512, 512)), "f": np.zeros((1, 1, 1, 1, 1), np.float32)}
    sent["f"] = np.broadcast_to(sent["f"], (1, 8, 3, 512, 512))
    start = Rollout(of, sent | {"frame": np.zeros((1, 8), np.int32)}).start
    assert start["frame"].shape == (1, 2)
    assert start["f"].nbytes <= RUN_BYTES


def test_the_grid_that_a_request_leaves_out_is_the_first_declared_one() -> None:
    of = Card.model_validate(FLOW.model_dump() | {"grid": FLOW.grid.model_dump() | {"declared": (7, 5)}})
    assert checks.points_of(None, None, of) == (7, 7)
    assert umbridge_models._grid(of, umbridge_models.Config()) == (7, 7)
