"""Another package adds a problem, an operator, a reader and a loss by entry points alone; what they train is served."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from export.__main__ import app as exporting
from petrov_client import Client
from tests.conftest import RunService
from tests.packages import installed
from tests.pipeline.conftest import command
from training import recipe as config
from training import recipes
from training.commands import app as training

PACKAGE = '''
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from training.data.readers import DataFile, LazyArray
from training.losses import Loss
from training.operators import Operator, OperatorKind
from schema.parts import Axis, Quantity
from schema.problem import Description, GridLimits
from training.problems.problem import Baseline, Problem

def solve(inputs, conditions):
    """Damp the k-th wave of a periodic field by exp(-4 pi^2 k^2 / 100)."""
    field = inputs["before"]
    k = np.fft.rfftfreq(len(field), 1 / len(field))
    return {"after": np.fft.irfft(np.fft.rfft(field) * np.exp(-0.04 * np.pi**2 * k**2), len(field))}

def sample(seed, mesh):
    x, waves = np.arange(mesh) / mesh, np.random.default_rng(seed).standard_normal((2, 6))
    k = np.arange(1, 7)[:, None]
    before = (waves[0][:, None] * np.cos(2 * np.pi * k * x) + waves[1][:, None] * np.sin(2 * np.pi * k * x)).sum(0)
    return {"before": before, **solve({"before": before}, None)}

PROBLEM = Problem(
    description=Description(
        name="heat_line",
        title="Heat on a ring",
        equation="u_t = u_xx",
        boundary="periodic on [0, 1)",
        inputs=(Quantity(name="before", meaning="temperature at the start", units="K"),),
        outputs=(Quantity(name="after", meaning="temperature at the end", units="K"),),
        axes=(Axis(name="point", boundary="periodic", points="left"),),
        points="x_i = i/n",
        grid=GridLimits(minimum=64, maximum=256, declared=(64, 128)),
        distribution="six waves with standard normal amplitudes",
        symmetries=("shift_point", "flip_point", "negate"),
    ),
    sampler=sample,
    baseline=Baseline("damping of Fourier coefficients", solve),
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
'''
ENTRY_POINTS = """
[petrov.problems]
heat_line = outside:PROBLEM
[petrov.operators]
scale = outside:OPERATOR
[petrov.readers]
rows = outside:open_text
[petrov.losses]
squares = outside:SQUARES
"""
RECIPE = """
model = "heat_line"
preset = "tiny"
problem = "heat_line"

[data]
mesh = 128
train = 40
validation = 8
test = 8
grids = [64, 128]

[operator]
kind = "grid-transformer"
dimensions = 1
channels = 16
heads = 2
layers = 1
feedforward = 16

[operator.decoder]
kind = "spectral"
channels = 8
modes = 8
layers = 1
hidden = 16

[fit]
epochs = 12
batch = 8
learning_rate = 1e-2
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


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Return a function that runs `python -m …` in this process, in which the package is installed for one test."""
    apps = {"training": training, "export": exporting}
    with installed(tmp_path / "outside", PACKAGE, ENTRY_POINTS):
        yield lambda module, *arguments: command(apps[module], *arguments)


@pytest.mark.deep
@pytest.mark.timeout(600)  # a training, an export and a start of Triton, on a busy machine
def test_a_problem_from_another_package_is_trained_exported_and_served(
    run: Callable[..., None],
    tmp_path: Path,
    run_service: RunService,
) -> None:
    recipe, folder, repository = tmp_path / "tiny.toml", tmp_path / "heat_line", tmp_path / "model_repository"
    recipe.write_text(RECIPE)
    run("training", "fit", recipe, "--out", folder, "--data", tmp_path / "data")
    run("export", folder, "--repository", repository)
    x = np.arange(100) / 100
    field = np.cos(2 * np.pi * x).astype(np.float32)[None]
    with run_service(repository) as gateway, Client(gateway.url) as client:
        [info] = client.models()
        assert (info.name, info.inputs[0].name, info.outputs[0].name) == ("heat_line", "before", "after")
        output = client.predict("heat_line", field)
    damped = np.exp(-0.04 * np.pi**2) * field
    assert np.linalg.norm(output - damped) < 0.5 * np.linalg.norm(damped)


@pytest.mark.deep
def test_an_operator_learns_a_file_of_a_format_and_by_a_loss_of_another_package(
    run: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "rows.toml").write_text(OWN)
    np.savetxt(tmp_path / "data.rows", np.random.default_rng(0).standard_normal((60, 16)))
    chosen = ("operator.start=1.5", "fit.loss=squares", "fit.epochs=40", "fit.learning_rate=0.1")
    sets = [part for change in chosen for part in ("--set", change)]
    own = ("--preset", "tiny", "--operator", "scale", "--no-amounts", *sets)
    run("training", "fit", tmp_path / "rows.toml", *own, "--out", tmp_path / "own", "--data", tmp_path / "data")
    config, card = (json.loads((tmp_path / "own" / name).read_text()) for name in ("config.json", "card.json"))
    assert config["recipe"]["problem"]["name"] == "rows"
    assert config["recipe"]["operator"]["kind"] == "scale"
    assert config["recipe"]["fit"]["loss"] == "squares"
    assert card["errors"][0]["relative_l2"] < 0.05


def test_the_problem_is_unknown_where_its_package_is_not_installed(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE.replace('loss = "squares"\n', ""))
    with pytest.raises(config.RecipeError, match=r"expected a problem among burgers, .* but got 'heat_line'"):
        recipes.read(path)
