"""A problem with parameters: its samples, and a run that trains, measures and calibrates with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from physics import burgers
from physics.numerics.grid import relative_l2
from training import checkpoint, recipes
from training.calibration import Calibration
from training.fit.run import train
from training.problems.problem import PROBLEMS, Conditions

PROBLEM = PROBLEMS["burgers_flow"]
SMALL = (
    "data.mesh=128",
    "data.train=32",
    "data.validation=20",
    "data.test=6",
    "data.grids=[128]",
    "operator.keys=8",
    "operator.tokens=64",
    "operator.channels=8",
    "operator.layers=1",
    "operator.modes=8",
    "fit.epochs=2",
)


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_solves_the_equation_at_its_own_viscosity_and_time(seed: int) -> None:
    sample = PROBLEM.sample(np.random.SeedSequence(seed), 512)
    viscosity, time = float(sample["viscosity"]), float(sample["time"])
    assert 0.003 <= viscosity <= 0.03
    assert 0.1 <= time <= 2
    truth = burgers.solve(sample["initial"], time=time, viscosity=viscosity)
    for found in (sample["final"], PROBLEM.solve(sample, Conditions(512))["final"]):
        assert relative_l2(found[None], truth[None])[0] < 1e-5


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = recipes.read(recipes.find("burgers-quick"), list(SMALL))
    return train(recipe, tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("data"))


def test_errors_are_those_of_the_defaults_and_of_the_range(run: Path) -> None:
    card = checkpoint.load(run).card
    assert [row.get("conditions") for row in card.errors] == [None, "viscosity 0.003 to 0.03, time 0.1 to 2"]
    assert [row["relative_l2"] for row in card.classical] == pytest.approx([0, 0], abs=1e-6)
    assert card.errors[0]["relative_l2"] != card.errors[1]["relative_l2"]
    assert [row.get("conditions") for row in card.calibration["test"]] == [row.get("conditions") for row in card.errors]


def test_the_calibration_knows_the_parameters(run: Path) -> None:
    found = checkpoint.load(run).calibration
    assert isinstance(found, Calibration)
    channels = {channel.name: channel.logarithm for channel in found.layout.channels}
    assert channels == {"initial": False, "viscosity": True, "time": True}


def test_examples_hold_the_parameters(run: Path) -> None:
    examples = load_file(run / checkpoint.EXAMPLES)
    shapes = {name: array.shape for name, array in examples.items()}
    assert shapes == {"initial": (6, 128), "viscosity": (6,), "time": (6,), "final": (6, 128)}
    truth = burgers.solve(
        examples["initial"][2].astype(float),
        time=float(examples["time"][2]),
        viscosity=float(examples["viscosity"][2]),
    )
    assert relative_l2(examples["final"][2:3], truth[None])[0] < 1e-5
