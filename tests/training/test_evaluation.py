"""Errors are measured on every grid, oblong ones too, at known noise, beside the classical solver."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from training import evaluation
from training.config import DataConfig
from training.data import Request, deviation, prepare, read
from training.operators import Operator, build
from training.operators.darcy_inverse import DarcyInverseConfig
from training.problems import BURGERS, DARCY, DARCY_INVERSE

DATA = DataConfig(mesh=141, train=6, test=2, grids=(36,))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    request = Request("darcy_inverse", mesh=141, train=6, test=2, seed=5)
    return prepare(request, tmp_path_factory.mktemp("inverse"), workers=2, progress=False)


@pytest.fixture(scope="module")
def operator() -> Operator:
    torch.manual_seed(0)
    return build(DarcyInverseConfig(layers=1, patch=8, channels=8, heads=2, feedforward=8)).eval()


def test_a_plane_is_measured_on_an_oblong_grid_too() -> None:
    whole = DataConfig(mesh=421, train=1, test=1, grids=(85,))
    assert evaluation.measured_grids(DARCY, whole) == [(85, 85), (141, 141), (211, 211), (421, 421), (141, 211)]
    line = DataConfig(mesh=8192, train=1, test=1, grids=(256,))
    assert evaluation.measured_grids(BURGERS, line) == [(256,), (512,), (1024,), (2048,), (8192,)]


def test_the_unit_of_noise_is_the_training_inputs_deviation(stored: Path) -> None:
    fine = deviation(stored, 6, DARCY_INVERSE)
    inputs = read(stored, "train", 6, 141, problem="darcy_inverse").inputs
    np.testing.assert_allclose(fine, inputs.std(axis=0), rtol=1e-4, atol=1e-9)
    [unit] = evaluation.noise_units(DARCY_INVERSE, DATA, stored, [(36, 71)])
    np.testing.assert_array_equal(unit, fine[::4, ::2])


def test_every_level_of_noise_has_its_row_and_its_rival(stored: Path, operator: Operator) -> None:
    card = evaluation.report(operator, DARCY_INVERSE, DATA, stored, (0.0, 0.1))
    places = [(row["grid"], row.get("noise", 0)) for row in card["errors"]]
    assert places == [([n, m], level) for level in (0, 0.1) for n, m in ((36, 36), (141, 141), (36, 141))]
    rivals = [(ours, theirs) for ours, theirs in evaluation.beside(card) if theirs]
    assert [(ours["grid"], ours.get("noise", 0)) for ours, _ in rivals] == [([36, 36], 0), ([36, 36], 0.1)]
    assert all(theirs["relative_l2"] < 0.3 for _, theirs in rivals)
    assert evaluation.report(operator, DARCY_INVERSE, DATA, stored, patient=False)["classical"] == []


def test_noise_makes_a_difference_and_is_the_same_at_every_call(stored: Path, operator: Operator) -> None:
    samples = read(stored, "test", 2, 141, problem="darcy_inverse")
    unit = deviation(stored, 6, DARCY_INVERSE)
    clean, noisy, again = (evaluation.noisy(samples, level, unit) for level in (0.0, 0.1, 0.1))
    np.testing.assert_array_equal(clean, samples.inputs)
    np.testing.assert_array_equal(noisy, again)
    assert ((noisy - clean) / unit).std() == pytest.approx(0.1, rel=0.02)
    assert evaluation.errors(operator, samples, 0.1, unit)["fields"] == 2
