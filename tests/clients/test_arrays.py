"""The checks before anything is sent, and the pieces of a batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
import xarray
from hypothesis import given
from hypothesis import strategies as st

from petrov_client import GridInfo, InvalidInput, InvalidResponse, ModelInfo, ParameterInfo, TensorInfo, Where
from petrov_client import _arrays as arrays
from petrov_client._arrays import PredictionInput, PredictionOutput
from petrov_client._inputs import check_input
from petrov_client._inversion import request
from petrov_client._quality import Options, Response
from petrov_client._schema import FramesInfo
from petrov_client._score import Bulk


def toy(*, batch: int = 4, positive: bool = True, fixed: int | None = None) -> ModelInfo:
    axes = ("batch", "row", "column")
    coefficient = TensorInfo("coefficient", axes, "1", "permeability", positive, (None, fixed, fixed))
    grid = GridInfo(axes[1:], minimum=2, maximum=2000, declared=(8,), points="")
    return ModelInfo("toy", 1, (1,), (coefficient,), (TensorInfo("solution", axes),), batch, grid=grid)


def round_trip(array: object, info: ModelInfo) -> Any:
    """Return the input, cut into pieces and put together."""
    checked = check_input(info, array)
    output = PredictionOutput(checked)
    for piece in checked.pieces():
        output.put(piece, Response({"solution": checked.inputs[0].fields(piece)}))
    return output.array()


@given(fields=st.integers(1, 40), batch=st.integers(1, 9))
def test_pieces_cover_a_batch_once_and_in_order(fields: int, batch: int) -> None:
    array = np.arange(1, fields * 6 + 1, dtype=np.float64).reshape(fields, 2, 3)
    checked = check_input(toy(batch=batch), array)
    sizes = [len(checked.inputs[0].fields(piece)) for piece in checked.pieces()]
    assert sum(sizes) == fields
    assert max(sizes) <= batch
    np.testing.assert_array_equal(round_trip(array, toy(batch=batch)), array)


def test_a_field_comes_back_as_a_field() -> None:
    assert round_trip(np.ones((5, 7)), toy()).shape == (5, 7)


def test_large_fields_make_small_pieces() -> None:
    checked = check_input(toy(batch=64), np.broadcast_to(np.float32(1), (6, 1000, 1000)))
    sizes = [checked.inputs[0].fields(piece).nbytes for piece in checked.pieces()]
    assert sizes == [8_000_000] * 3
    assert max(sizes) <= arrays.PIECE_BYTES


def test_all_inputs_of_a_piece_together_are_a_request() -> None:
    """A message of gRPC has a quarter of the bytes of a body of HTTP, and three inputs of a derivative."""
    axes, batch = ("batch", "row", "column"), np.broadcast_to(np.float32(1), (12, 421, 421))
    info = replace(toy(batch=64), inputs=(*toy().inputs, TensorInfo("source", axes), TensorInfo("cotangents.u", axes)))
    checked = check_input(info, {each.name: batch for each in info.inputs})
    sizes = [sum(array.nbytes for array in checked.arrays(piece).values()) for piece in checked.pieces()]
    assert sizes == [3 * 3 * batch[0].nbytes] * 4
    assert max(sizes) <= arrays.PIECE_BYTES
    resumed = Bulk(checked, Options(), 1.0).pieces  # as jobs of earlier versions, which go on, were cut
    assert resumed == [slice(0, 11), slice(11, 12)]
    assert PredictionInput(info, (), {"wind": np.ones(70, np.float32)}).pieces()[-1] == slice(64, 70)


@pytest.mark.parametrize("dtype", ["f8", ">f4", "f2", "i8", "u1"])
def test_numbers_of_any_kind_become_little_endian_float32_in_C_order(dtype: str) -> None:
    checked = check_input(toy(), np.asfortranarray(np.full((3, 4, 5), 2, dtype)))
    fields = checked.inputs[0].fields(slice(0, 3))
    assert fields.dtype.str == "<f4"
    assert fields.flags.c_contiguous


def test_nested_lists_are_arrays() -> None:
    assert round_trip([[1, 2], [3, 4]], toy()).tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_dataset_on_disk_is_read_a_piece_at_a_time(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "fields.h5", "w") as file:
        dataset = file.create_dataset("coefficient", data=np.arange(1.0, 61.0).reshape(10, 2, 3))
        assert check_input(toy(), dataset).inputs[0].array is dataset
        np.testing.assert_array_equal(round_trip(dataset, toy()), dataset[...])
        np.testing.assert_array_equal(
            round_trip(file.create_dataset("one", data=np.ones((2, 3))), toy()), np.ones((2, 3))
        )


@pytest.mark.parametrize(
    ("array", "index"),
    [
        (np.array([[1.0, 1.0], [1.0, np.nan]]), (1, 1)),
        (np.array([[1.0, -np.inf], [1.0, 1.0]]), (0, 1)),
        (np.array([[1.0, 1e39], [1.0, 1.0]]), (0, 1)),
        (np.array([[1.0, 1.0], [0.0, 1.0]]), (1, 0)),
    ],
    ids=["NaN", "infinite", "infinite in float32", "zero"],
)
def test_a_bad_value_is_named_by_its_index(array: Any, index: tuple[int, int]) -> None:
    batch = np.ones((11, 2, 2))
    batch[9] = array
    for values, expected in ((array, index), (batch, (9, *index))):
        with pytest.raises(InvalidInput) as caught:
            check_input(toy(), values)
        assert caught.value.where == Where("coefficient", expected)
        assert str(caught.value).startswith(f"coefficient[{','.join(map(str, expected))}] is ")


def test_the_sign_is_free_where_the_card_says_so() -> None:
    assert round_trip([[-1.0, 0.0]] * 2, toy(positive=False)).shape == (2, 2)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones(4), r"expected \(row, column\) or \(batch, row, column\).* but got \(4,\)"),
        (np.ones((1, 1, 4, 4)), r"but got \(1, 1, 4, 4\)"),
        (np.ones((0, 4, 4)), "none of them empty"),
        (np.float32(3), r"but got \(\)"),
        (np.ones((4, 1)), "expected 2 to 2000 points along column but got 1"),
        (np.ones((3000, 4)), "expected 2 to 2000 points along row but got 3000"),
        (np.ones((4, 4), complex), "expected real numbers but got complex128"),
        (np.ones((4, 4), bool), "expected real numbers but got bool"),
        ([["a", "b"], ["c", "d"]], "expected real numbers"),
        ([[1.0, 2.0], [3.0]], "expected an array of numbers"),
        (None, '"coefficient" is missing; got nothing'),
    ],
)
def test_what_does_not_fit_is_refused_with_expected_and_found(array: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        check_input(toy(), array)
    assert caught.value.where == Where("coefficient")


def test_a_fixed_axis_is_held() -> None:
    with pytest.raises(InvalidInput, match="expected 8 points along row but got 9"):
        check_input(toy(fixed=8), np.ones((9, 8)))


def test_an_output_of_another_size_is_refused() -> None:
    checked = check_input(toy(batch=2), np.ones((4, 3, 3)))
    output = PredictionOutput(checked)
    with pytest.raises(InvalidResponse, match=r"expected a response of shape \(2, 3, 3\)"):
        output.put(slice(0, 2), Response({"solution": np.ones((1, 3, 3), np.float32)}))


def test_an_output_may_have_another_grid() -> None:
    output = PredictionOutput(check_input(toy(), np.ones((4, 3, 3))))
    output.put(slice(0, 4), Response({"solution": np.ones((4, 2, 2), np.float32)}))
    assert output.array().shape == (4, 2, 2)


MASK = np.arange(12).reshape(3, 4) == 6


def with_fill_value(**attributes: float) -> xarray.DataArray:
    return xarray.DataArray(np.where(MASK, 9.96921e36, 5.0).astype("f4"), dims=("row", "column"), attrs=attributes)


@pytest.mark.parametrize(
    ("array", "index"),
    [
        (np.ma.masked_array(np.full((3, 4), 5.0), MASK), (1, 2)),
        (np.ma.masked_array(np.full((2, 3, 4), 5.0), [np.zeros_like(MASK), MASK]), (1, 1, 2)),
        ([np.ma.masked_array(np.full((3, 4), 5.0), mask) for mask in (np.zeros_like(MASK), MASK)], (1, 1, 2)),
        ([list(np.ma.masked_array(np.full((3, 4), 5.0), mask)) for mask in (np.zeros_like(MASK), MASK)], (1, 1, 2)),
        (with_fill_value(_FillValue=9.96921e36), (1, 2)),
        (with_fill_value(missing_value=9.96921e36), (1, 2)),
        (pd.DataFrame(np.full((3, 4), 5.0)).astype("Float64").mask(MASK), (1, 2)),
        (np.where(MASK, None, 5.0), (1, 2)),
    ],
    ids=["masked field", "masked batch", "list", "nested list", "_FillValue", "missing_value", "pandas", "None"],
)
def test_a_missing_value_is_refused_at_its_location(array: Any, index: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"coefficient\[.*\] is (missing|None|<NA>|nan)") as caught:
        check_input(toy(), array)
    assert caught.value.where == Where("coefficient", index)


@pytest.mark.parametrize("index", [[0, 1, 2], [7, 8, 9], ["a", "b", "c"]])
def test_a_missing_value_of_a_series_is_named_by_its_position_whatever_its_labels(index: list[Any]) -> None:
    line = replace(toy(), inputs=(TensorInfo("initial", ("batch", "column")),))
    with pytest.raises(InvalidInput, match=r"initial\[2\] is nan") as caught:
        check_input(line, pd.Series([1.0, 2.0, np.nan], index))
    assert caught.value.where == Where("initial", (2,))


def test_missing_values_of_datasets_and_numbers_are_refused_too(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        stored = file.create_dataset("coefficient", data=np.where(MASK, 1e20, 5.0)[np.newaxis].astype("f4"))
        stored.attrs["_FillValue"] = 1e20
        with pytest.raises(InvalidInput, match=r"coefficient\[0,1,2\] is missing"):
            check_input(toy(), stored)
    info = replace(toy(), parameters=(ParameterInfo("wind"),))
    for wind in (np.ma.masked, np.ma.masked_array([1.0, 2.0], [False, True]), [1.0, None], 1j):
        with pytest.raises(InvalidInput, match="wind"):
            check_input(info, np.ones((2, 3, 4)), {"wind": wind})
    for values in (np.ma.masked_array([1.0], [True]), [1j], [None]):
        with pytest.raises(InvalidInput, match="values: "):
            request([[0.5, 0.5]], values, 0.1, {})


def test_packed_numbers_are_not_taken_for_values(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        stored = file.create_dataset("coefficient", data=np.full((1, 3, 4), 5, "i2"))
        stored.attrs.update({"scale_factor": 1.0, "add_offset": 0.0})
        check_input(toy(), stored)
        for name, number in (("scale_factor", 0.01), ("add_offset", np.float32([273.15]))):
            stored.attrs.update({"scale_factor": 1.0, "add_offset": 0.0, name: number})
            with pytest.raises(InvalidInput, match=rf"packed numbers, by the {name} [\d.]+ of coefficient") as caught:
                check_input(toy(), stored)
            assert caught.value.where == Where("coefficient")


@pytest.mark.parametrize(
    ("value", "shape", "at", "message"),
    [
        (0.1, (3, 4), (1, 2), "is 0.1; expected 1 inside the domain, or 0 outside"),
        (np.nan, (9, 3, 4), (7, 1, 2), "is nan; every value must be finite"),
        (2.0, (9, 3, 4), (7, 1, 2), "is 2.0; expected 1 inside the domain, or 0 outside"),
        (0.0, (9, 3, 4), (7,), "has no point inside the domain; expected some"),
    ],
)
def test_a_wrong_domain_is_refused_at_its_location_among_all_samples(
    value: float, shape: tuple[int, ...], at: tuple[int, ...], message: str
) -> None:
    axes, fields, inside = ("batch", "row", "column"), np.ones(shape), np.ones(shape, np.float32)
    inside[at] = value
    fields[inside == 0] = np.nan
    masked = replace(toy(), inputs=(*toy().inputs, TensorInfo("inside", axes)), mask="inside")
    with pytest.raises(InvalidInput, match=message) as caught:
        check_input(masked, fields, {"inside": inside})
    assert caught.value.where == Where("inside", at)


def test_frames_asked_of_predict_are_told_of_rollout() -> None:
    moving = replace(toy(), frames=FramesInfo(0.1, 1, ("coefficient",), 7, 100))
    with pytest.raises(InvalidInput, match=r'no "frames": rollout computes as many frames as you name$'):
        check_input(moving, np.ones((3, 4)), {"frames": 5})


def test_a_masked_array_without_masked_values_passes() -> None:
    array = np.ma.masked_array(np.full((2, 3, 4), 5.0), mask=False)
    np.testing.assert_array_equal(round_trip(array, toy()), np.asarray(array))


def test_an_array_that_its_library_does_not_return_is_refused_with_its_reason() -> None:
    with pytest.raises(InvalidInput, match=r"expected an array of numbers .* but: .*resolve_neg"):
        check_input(toy(), torch.ones(3, 4, dtype=torch.complex64).conj().imag)


def test_a_tensor_that_requires_a_gradient_is_told_of_the_operator() -> None:
    with pytest.raises(InvalidInput, match=r"petrov_client.torch.Operator computes gradients"):
        check_input(toy(), torch.ones(3, 4, requires_grad=True))
