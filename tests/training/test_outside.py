"""A package outside adds a problem, an operator, a reader and a loss by entry points alone, and trains with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PACKAGE = """
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from training.data.readers import DataFile, LazyArray
from training.losses import Loss
from training.operators import Operator, OperatorKind
from training.problems.problem import Problem
from training.problems.schema import Axis, Description, GridLimits, Quantity


def sample(seed, mesh):
    source = np.random.default_rng(seed).standard_normal(mesh)
    return {"source": source, "double": 2 * source}


PROBLEM = Problem(
    description=Description(
        name="doubling",
        title="Twice a field",
        equation="v = 2 u",
        boundary="periodic",
        inputs=(Quantity(name="source"),),
        outputs=(Quantity(name="double"),),
        axes=(Axis(name="x", boundary="periodic", points="left"),),
        points="x_i = i/n",
        grid=GridLimits(minimum=4, maximum=64, declared=(8, 16)),
        distribution="white noise",
    ),
    sampler=sample,
)


class ScaleConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["scale"] = "scale"
    start: float = 1.0


class Scale(Operator):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.factor = torch.nn.Parameter(torch.tensor(config.start))

    def forward(self, *inputs):
        return self.factor * sum(inputs)


OPERATOR = OperatorKind("scale", ScaleConfig, Scale)


@contextmanager
def open_text(path):
    u = np.loadtxt(path)
    yield DataFile(path, "rows", {"u": LazyArray.of("u", u), "v": LazyArray.of("v", 2 * u)})


def compute(predictions, batch, fit):
    return sum((one - truth).square().mean() for one, truth in zip(predictions, batch.outputs))


SQUARES = Loss("squares", compute)
"""
ENTRY_POINTS = """
[petrov.problems]
doubling = outside:PROBLEM
[petrov.operators]
scale = outside:OPERATOR
[petrov.readers]
rows = outside:open_text
[petrov.losses]
squares = outside:SQUARES
"""
RECIPE = """
model = "doubling"
preset = "tiny"
problem = "doubling"
[data]
mesh = 16
train = 32
validation = 12
test = 4
grids = [16]
[operator]
kind = "scale"
[fit]
epochs = 40
batch = 8
learning_rate = 0.1
loss = "squares"
"""
OWN = """
name = "rows"
[data]
files = ["data.rows"]
[inputs.u]
[outputs.v]
[axes.x]
"""
RUN = """
import sys
from training.commands import app

app(["fit", sys.argv[1], "--out", "run", "--data", "data"], standalone_mode=False)
own = ["--preset", "tiny", "--operator", "scale", "--set", "operator.start=1.5", "--set", "fit.loss=squares"]
own += ["--set", "fit.epochs=40", "--set", "fit.learning_rate=0.1", "--no-amounts"]
app(["fit", sys.argv[2], *own, "--out", "own", "--data", "data"], standalone_mode=False)
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a folder with an installed package, a recipe, and a data file that only its reader knows."""
    (tmp_path / "outside.py").write_text(PACKAGE)
    info = tmp_path / "outside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "doubling.toml").write_text(RECIPE)
    (tmp_path / "rows.toml").write_text(OWN)
    np.savetxt(tmp_path / "data.rows", np.random.default_rng(0).standard_normal((60, 16)))
    return tmp_path


def test_a_problem_an_operator_a_reader_and_a_loss_of_another_package_train(outside: Path) -> None:
    path = os.pathsep.join([str(outside), str(Path(__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-c", RUN, outside / "doubling.toml", outside / "rows.toml"],
        capture_output=True,
        text=True,
        check=False,
        cwd=outside,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    for run, kind in (("run", "fields"), ("own", "own")):
        config, card = (json.loads((outside / run / name).read_text()) for name in ("config.json", "card.json"))
        assert config["recipe"]["kind"] == kind
        assert config["recipe"]["operator"]["kind"] == "scale"
        assert config["recipe"]["fit"]["loss"] == "squares"
        assert card["errors"][0]["relative_l2"] < 0.05
