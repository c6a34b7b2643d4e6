"""The set in neuraloperator's wheel is read without its pickles, and a network trained on it takes finer grids."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from physics.numerics.grid import relative_l2
from research import neuralop_darcy as neuralop
from research.neuralop_darcy import PROBLEM, solve_material
from training import recipes
from training.data.augment import transform
from training.data.generate import Request, prepare
from training.data.views import read
from training.evaluation.drawn import measured_grids
from training.fit.run import train
from training.operators import build

ROOT = Path(__file__).parents[2]
GALLERY = {16: 0.0975, 32: 0.139}  # of neuraloperator's own Fourier neural operator, trained on 16 x 16 points


@pytest.fixture(scope="module")
def wheel() -> Path:
    wheels = sorted((ROOT / neuralop.FOLDER).glob(neuralop.WHEEL))
    if not wheels:
        reason = f"no {neuralop.WHEEL} in {neuralop.FOLDER}: `make test` downloads it"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    return wheels[0]


@pytest.fixture(scope="module")
def stored(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATA_PATH", str(wheel.parent))
        return prepare(Request(PROBLEM, 32, 1000, 50, seed=1), tmp_path_factory.mktemp("neuralop"))


def test_numbers_are_those_that_torch_reads(wheel: Path, stored: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        saved = io.BytesIO(archive.read("neuralop/datasets/data/darcy_test_32.pt"))
    expected = torch.load(saved, weights_only=True)
    found = read(stored, "test", 50, 32)
    np.testing.assert_array_equal(found.inputs, expected["x"].numpy())
    np.testing.assert_array_equal(found.outputs, expected["y"].numpy())
    np.testing.assert_array_equal(read(stored, "test", 50, 16).inputs, found.inputs[:, ::2, ::2])
    assert read(stored, "train", 1000, 16).outputs.shape == (1000, 16, 16)


def test_a_missing_wheel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"expected neuraloperator-0\.3\.0-\*\.whl in .*pip download"):
        prepare(Request(PROBLEM, 32, 1000, 50, seed=1), tmp_path / "data")


def test_grids_have_no_point_at_the_far_wall() -> None:
    recipe = recipes.read_fields(recipes.find("neuralop_darcy-quick"))
    assert measured_grids(PROBLEM.description, recipe.data) == [(16, 16), (32, 32), (16, 32)]


def test_moved_fields_still_solve_the_equation(stored: Path) -> None:
    """The classical solver agrees with what a symmetry made of a solution about as well as with the solution."""
    samples, rng = read(stored, "test", 6, 32), np.random.default_rng(0)
    moved = transform(PROBLEM.description, [*map(torch.from_numpy, (samples.inputs, samples.outputs))], rng)
    assert any(not torch.equal(a, torch.from_numpy(b)) for a, b in zip(moved[0], samples.inputs, strict=True))
    before, after = (
        relative_l2(np.stack([solve_material(np.asarray(field)) for field in inputs]), np.asarray(outputs)).mean()
        for inputs, outputs in ((samples.inputs, samples.outputs), moved)
    )
    assert solve_material(samples.inputs[0, ::2]).shape == (16, 32)
    assert before < 0.034
    assert after < 2 * before


def test_a_finer_grid_is_answered_as_the_trained_one_where_both_have_points() -> None:
    torch.manual_seed(0)
    operator = build(recipes.read_fields(recipes.find("neuralop_darcy-quick")).operator).eval()
    material = (torch.rand(2, 16, 16) < 0.5).float()
    fine = material.repeat_interleave(2, 1).repeat_interleave(2, 2)
    with torch.inference_mode():
        torch.testing.assert_close(operator(fine)[:, ::2, ::2], operator(material), rtol=1e-4, atol=1e-5)


@pytest.mark.deep
def test_a_short_run_beats_the_mean_field(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_PATH", str(wheel.parent))
    short = ["data.train=200", "data.test=10", "fit.epochs=2", "operator.layers=1", "operator.channels=16"]
    recipe = recipes.read_fields(recipes.find("neuralop_darcy-quick"), short)
    folder = train(recipe, tmp_path / "run", tmp_path / "data")
    path = tmp_path / "data" / "neuralop_darcy-32-published.h5"
    test, mean = read(path, "test", 10, 16), read(path, "train", 200, 16).outputs.mean(axis=0)
    card = json.loads((folder / "card.json").read_text())
    guess = relative_l2(np.broadcast_to(mean, test.outputs.shape), test.outputs).mean()
    assert card["errors"][0]["grid"] == [16, 16]
    assert card["errors"][0]["relative_l2"] < guess
    assert (test.problem, test.mesh) == (PROBLEM, 32)


def test_the_published_figures_beat_the_librarys() -> None:
    rows = json.loads((ROOT / "docs" / "neuralop.json").read_text())["errors"]
    errors = {row["grid"][0]: row["relative_l2"] for row in rows if row["grid"][0] == row["grid"][1]}
    assert all(errors[points] < bar for points, bar in GALLERY.items())
