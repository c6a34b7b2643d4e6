"""Gradients of the solutions: the published differences, strided from the stored mesh, beside per-point statistics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from schema.problem import Description
from training import recipes
from training.data import views
from training.data.generate import Block, Store, fill
from training.data.pools import ThisProcess
from training.data.views import GRADIENTS, Samples, read
from training.fit.operator_workload import OperatorWorkload
from training.nn.pointwise import Normaliser
from training.problems.burgers import DESCRIPTION as BURGERS
from training.problems.darcy import DESCRIPTION as DARCY

ACCURACY = {"rtol": 1e-6, "atol": 1e-5}  # of float32 fields, whose differences are divided by the mesh width


def stored(path: Path, problem: Description, inputs: Tensor, outputs: Tensor) -> Path:
    """Write fields `[sample, *grid]` as the training samples of a file."""
    said = {"problem": problem.name, "provenance": "none"}
    store = Store("fields", path, {"train": len(inputs), "test": 0}, said)
    fields = {problem.inputs[0].name: inputs.float().numpy(), problem.outputs[0].name: outputs.float().numpy()}
    fill(store, [Block("train", 0, len(inputs))], lambda _: fields, ThisProcess(), progress=False)
    return path


@pytest.fixture
def darcy(golden: Callable[[str], Any], tmp_path: Path) -> tuple[Any, Samples]:
    case = golden("darcy_dataset_forward")
    path = stored(tmp_path / "darcy.h5", DARCY, case.inputs["train_coeff"], case.inputs["train_sol"])
    return case.outputs, read(path, "train", 5, 21, gradients=True)


def assert_close(found: NDArray[Any] | Tensor | None, expected: Tensor) -> None:
    np.testing.assert_allclose(found, expected, **ACCURACY)


def test_differences_are_the_published_ones(golden: Callable[[str], Any]) -> None:
    case = golden("data_helpers")
    line, plane = case.inputs["x1"].numpy(), case.inputs["x"].numpy()
    np.testing.assert_allclose(views.line(line), case.outputs["central1d"], rtol=1e-10, atol=1e-12)
    rows, columns = np.moveaxis(views.plane(plane), -1, 0)
    np.testing.assert_allclose(rows, case.outputs["central2d_x"], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(columns, case.outputs["central2d_y"], rtol=1e-10, atol=1e-12)


def test_a_solid_has_no_gradient_here() -> None:
    with pytest.raises(ValueError, match="a field of 3 axes"):
        views.gradient(np.zeros((4, 4, 4), dtype=np.float32))


@pytest.mark.parametrize(("part", "rows"), [("train", slice(0, 5)), ("valid", slice(7, 10))])
def test_burgers_samples_are_the_published_items(
    part: str, rows: slice, golden: Callable[[str], Any], tmp_path: Path
) -> None:
    case = golden(f"burgers_dataset_{part}")
    path = stored(tmp_path / "burgers.h5", BURGERS, case.inputs["a"][rows], case.inputs["u"][rows])
    samples = read(path, "train", len(case.outputs["node"]), 64, gradients=True)
    assert_close(samples.inputs, case.outputs["node"][..., 0])
    assert_close(samples.outputs, case.outputs["target"][..., 0])
    assert_close(samples.tensors[GRADIENTS], case.outputs["target"][..., 1])


def test_darcy_samples_are_the_published_items(darcy: tuple[dict[str, Tensor], Samples]) -> None:
    expected, samples = darcy
    assert_close(samples.inputs, expected["train_coeff"][..., 0])
    assert_close(samples.outputs, expected["train_target"][..., 0])
    assert_close(samples.tensors[GRADIENTS], expected["train_target_grad"])


def test_the_statistics_by_point_are_the_published_ones(darcy: tuple[dict[str, Tensor], Samples]) -> None:
    expected, samples = darcy
    for values, name in ((samples.inputs, "x"), (samples.outputs, "y")):
        normaliser = Normaliser((21, 21), relative=False)
        normaliser.fit(torch.from_numpy(values))
        assert_close(normaliser.mean, expected[f"norm_{name}_mean"][..., 0])
        assert_close(normaliser.deviation, expected[f"norm_{name}_std"][..., 0] + 1e-5)
        if name == "x":
            assert_close(normaliser(torch.from_numpy(values)), expected["train_node"][..., 0])


def test_batches_carry_the_gradients_of_their_samples(darcy: tuple[Any, Samples], tmp_path: Path) -> None:
    samples = darcy[1]
    work = OperatorWorkload(recipes.read_fields(recipes.find("darcy-tiny")), tmp_path)
    batch = work.as_batch(samples.read(range(5)))
    assert batch.gradients is not None
    assert batch.gradients.numpy().tobytes() == samples.tensors[GRADIENTS].tobytes()
