"""Check the committed checkpoints on unseen fields, new expressions and memorised sequences, against their cards."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from scipy.spatial import cKDTree

import physics.burgers
import physics.cole_hopf
import physics.darcy
from physics.numerics.grid import WALL, coarsen, relative_l2
from research import plates
from research.sequences.corpus import UNLABELLED
from research.sequences.problems import listops
from research.sequences.recipe import load
from training import checkpoint
from training.data.augment import add_noise

RELEASED = Path(__file__).parents[2] / "checkpoints"
FIELDS, SEED = 8, 2**31  # of new fields; the seeds are of no training, validation, test or calibration sample
MARGIN = 1.3  # the mean of eight fields varies by a tenth to a third
Fields = NDArray[np.float64]


@pytest.fixture(scope="module")
def darcy_fields() -> tuple[Fields, Fields]:
    """Return new coefficients and their pressures on the whole mesh."""
    coefficients, pressures = zip(*(physics.darcy.sample(SEED + n) for n in range(FIELDS)), strict=True)
    return np.stack(coefficients), np.stack(pressures)


@pytest.fixture(scope="module")
def burgers_fields() -> tuple[Fields, Fields]:
    """Return new initial velocities and the final ones on the finest grid."""
    initial = [physics.burgers.example(physics.burgers.POINTS, SEED + n) for n in range(FIELDS)]
    return np.stack(initial), np.stack([physics.cole_hopf.converged(each) for each in initial])


def error(model: str, inputs: Fields, truth: Fields) -> float:
    """Return the mean relative error of a released model."""
    operator = checkpoint.load_operator(RELEASED / model).operator
    with torch.inference_mode():
        found = torch.cat([operator(torch.from_numpy(field).float()[None]) for field in inputs]).double().numpy()
    return float(relative_l2(found, truth).mean())


def on_card(model: str, sides: tuple[int, ...], noise: float = 0.0) -> float:
    """Return the mean relative error on a model's card."""
    rows = checkpoint.load(RELEASED / model).card.errors
    return next(
        float(row["relative_l2"]) for row in rows if tuple(row["grid"]) == sides and row.get("noise", 0.0) == noise
    )


@pytest.mark.parametrize(
    ("model", "noise"),
    [("darcy", 0.0), ("darcy_galerkin", 0.0), ("darcy_inverse", 0.0), ("darcy_inverse_galerkin", 0.01)],
)
def test_the_stored_samples_have_the_error_of_the_card(model: str, noise: float) -> None:
    """They are of the test set; the deep suite draws new ones, and solves them on the whole mesh."""
    stored = load_file(RELEASED / model / "examples.safetensors")
    inputs, truth = (stored[name].astype(float) for name in ("coefficient", "solution"))
    inputs, truth = (truth, inputs) if "inverse" in model else (inputs, truth)
    assert error(model, inputs, truth) < MARGIN * on_card(model, inputs.shape[1:], noise)


@pytest.mark.deep
@pytest.mark.parametrize("model", ["darcy", "darcy_galerkin"])
@pytest.mark.parametrize("points", [85, 141, 211, 421])
def test_darcy_keeps_the_error_of_its_card(darcy_fields: tuple[Fields, Fields], model: str, points: int) -> None:
    inputs, truth = (physics.darcy.restrict(fields, points) for fields in darcy_fields)
    assert error(model, inputs, truth) < MARGIN * on_card(model, (points, points))


@pytest.mark.deep
@pytest.mark.parametrize(
    ("model", "noise"),
    [*(("darcy_inverse", noise) for noise in (0.0, 0.01, 0.1)), ("darcy_inverse_galerkin", 0.01)],
)
@pytest.mark.parametrize("points", [85, 141, 421])
def test_the_inverse_keeps_the_error_of_its_card(
    darcy_fields: tuple[Fields, Fields], model: str, noise: float, points: int
) -> None:
    coefficients, pressures = darcy_fields
    pressures = physics.darcy.restrict(pressures, points)
    normals = np.random.default_rng(0).standard_normal(pressures.shape)
    measured = add_noise(pressures, np.full(FIELDS, noise), pressures.std(axis=0), normals)
    means = np.stack([coarsen(field, (36, 36), WALL) for field in coefficients])
    assert error(model, measured, means) < MARGIN * on_card(model, (points, points), noise)


@pytest.mark.parametrize("model", ["burgers", "burgers_galerkin"])
@pytest.mark.parametrize("points", [512, 8192])
def test_burgers_keeps_the_error_of_its_card(burgers_fields: tuple[Fields, Fields], model: str, points: int) -> None:
    inputs, truth = (fields[:, :: physics.burgers.POINTS // points] for fields in burgers_fields)
    assert error(model, inputs, truth) < MARGIN * on_card(model, (points,))


def test_plate_keeps_the_error_of_its_card_on_new_holes() -> None:
    released, errors = checkpoint.load(RELEASED / "plate"), []
    for number in range(6):
        plate = plates.sample(np.random.default_rng([SEED, number]))
        on_edge = np.bincount(plate.cells.ravel()) == 2  # nodes inside belong to four cells
        apart, _ = cKDTree(plate.points[on_edge]).query(plate.points)
        arrays = [plate.points, on_edge, apart, np.zeros(())]
        with torch.inference_mode():
            found = released.operator(*(torch.as_tensor(each, dtype=torch.float32)[None] for each in arrays))
        errors.append(np.linalg.norm(found[0].double().numpy() - plate.stress) / np.linalg.norm(plate.stress))
    # The mean of six plates varies by a fifth.
    assert np.mean(errors) < 1.5 * released.card.errors[0]["relative_l2"]


def test_listops_has_the_accuracy_of_its_card() -> None:
    released = checkpoint.load(RELEASED / "listops")
    [figures], rng = released.card.accuracy, Random(2**31)  # noqa: S311 - reproducible, not secret
    drawn = [listops.draw(rng, *released.recipe.data.length) for _ in range(400)]
    tokens = np.zeros((len(drawn), max(map(len, drawn))), np.int32)
    for row, expression in zip(tokens, drawn, strict=True):
        row[: len(expression)] = expression
    with torch.inference_mode():
        found = released.operator(torch.from_numpy(tokens)).argmax(dim=-1).tolist()
    accuracy = np.mean([value == listops.value(each) for value, each in zip(found, drawn, strict=True)])
    assert accuracy > figures["accuracy"] - 0.1  # four standard deviations
    assert accuracy > figures["majority"] + 0.1


def test_the_memoriser_recalls_every_sequence_of_its_card(tmp_path: Path) -> None:
    """The sequences are drawn again from the seed of the recipe, and one of them is written on the card."""
    released = checkpoint.load(RELEASED / "memoriser")
    problem, splits = load(released.recipe, tmp_path)
    assert problem == released.problem
    assert released.card.training["distribution"] == problem.distribution
    tokens, [labels], *_ = splits["train"].batch(range(len(splits["train"])))
    with torch.inference_mode():
        found = released.operator(*tokens).argmax(dim=-1)
    seen = labels != UNLABELLED
    assert (found == labels)[seen].double().mean().item() == released.card.accuracy[0]["accuracy"] == 1
    *_, listed = problem.distribution.split("; ")
    letters, colours = (part.split() for part in listed.split(" with "))
    with torch.inference_mode():
        [output] = released.operator(torch.tensor([problem.encode(" ".join(letters))], dtype=torch.int32))
    assert [problem.labels[label] for label in output.argmax(dim=-1)] == colours


@pytest.mark.parametrize("name", sorted(path.name for path in RELEASED.iterdir()))
def test_the_card_agrees_with_weights_and_recipe(name: str) -> None:
    found = checkpoint.load(RELEASED / name)
    assert found.card.checkpoint["parameters"] == sum(p.numel() for p in found.operator.parameters())
    rows, unit = ("errors", "fields") if found.card.errors else ("accuracy", "sequences")
    file = found.recipe.problem_file
    data = found.recipe.data if file is None else file.data
    assert {row[unit] for row in getattr(found.card, rows)} == {data.test}
