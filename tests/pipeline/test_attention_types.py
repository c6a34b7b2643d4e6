"""Every type of attention learns in a network, and the one with the most parts exports and proves its graphs.

Galerkin's, the default, does so in `test_pipeline.py` as `darcy`, and as `burgers` in `test_fit.py` and `tests/export`.
Graphs of the other types are those of a layer in `test_encoder.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from export.parity import TOLERANCE
from export.repository import publish
from schema.problem import GridLimits
from training import checkpoint, recipes
from training import recipe as config
from training.data.views import read
from training.fit.run import train
from training.metrics.fields import relative_l2
from training.nn.attention import kinds
from training.nn.encoder import EncoderConfig
from training.problems.problem import PROBLEMS

pytestmark = pytest.mark.deep

DATA = {"train": 40, "test": 16}
#: Kernels differ in the features of a head alone: the one with every part of the others stands for all.
KERNEL = "kernel-aoglu3"
ROUTES = {"darcy": ["softmax", KERNEL], "burgers": ["fourier", "linear", "causal"]}
#: Products of the same matrices as Galerkin's, with other factors or masks: they learn in the deep suite.
ALIKE = ("linear", "softmax", "causal", "fourier")
DEFAULT = EncoderConfig().attention
SETTINGS = {
    "darcy": {
        "data": {**DATA, "mesh": 43, "grids": [22]},
        "operator": {"working": 22, "middle": 15, "tokens": 9, "channels": 16, "stem": 8, "decoder": 8, "layers": 1},
        "fit": {"epochs": 14},
    },
    "burgers": {
        "data": {**DATA, "mesh": 128, "grids": [64]},
        "operator": {"tokens": 32, "band": 16, "channels": 16, "decoder": 12, "modes": 8, "layers": 1},
        "fit": {"epochs": 12},
    },
}
#: Grids that a graph is proven on: the problem's own reach so far that a proof takes longer than the training.
LIMITS = GridLimits(minimum=15, maximum=43, declared=(22,))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


def small(problem: str, attention: str) -> config.Recipe:
    """Return the tiny recipe of a problem, made smaller still, with another attention."""
    chosen = [f"{part}.{key}={value}" for part, keys in SETTINGS[problem].items() for key, value in keys.items()]
    return recipes.read(recipes.find(f"{problem}-tiny"), [*chosen, f"operator.attention={attention}"])


def mean_field_error(recipe: config.Recipe, data: Path) -> float:
    """Return the error on the test set of the training fields' mean as the only prediction."""
    [path], [points] = data.glob(f"{recipe.problem}-*.h5"), recipe.data.grids
    mean = torch.from_numpy(read(path, "train", recipe.data.train, points).outputs).mean(0)
    truth = torch.from_numpy(read(path, "test", recipe.data.test, points).outputs)
    return relative_l2(mean.expand_as(truth), truth).mean().item()


def test_no_type_is_left_out() -> None:
    tested = {kind for kind in kinds() if kind == KERNEL or not kind.startswith("kernel-")}
    assert tested == {DEFAULT, *(kind for route in ROUTES.values() for kind in route)}


@pytest.mark.parametrize(
    ("problem", "attention"),
    [
        pytest.param(problem, kind, marks=pytest.mark.deep if kind in ALIKE else ())
        for problem in ROUTES
        for kind in ROUTES[problem]
    ],
)
def test_a_type_learns_exports_and_proves_its_graphs(problem: str, attention: str, data: Path, tmp_path: Path) -> None:
    recipe, name = small(problem, attention), attention.replace("-", "_")
    run = train(recipe, tmp_path / name, data)
    found = checkpoint.load(run)
    [row] = [row for row in found.card.errors if row["grid"][0] == recipe.data.grids[0]]
    assert row["relative_l2"] < 0.9 * mean_field_error(recipe, data)
    if attention != KERNEL:
        return
    known = PROBLEMS[problem]
    narrow = replace(known, description=known.description.model_copy(update={"grid": LIMITS}))
    checkpoint.save(run, found.operator, recipe, narrow, found.card)
    published = publish(run, tmp_path / "model_repository")
    assert {one.model for one in published} == {name, f"{name}_torchscript"}
    assert all(0 <= one.certificate["worst"]["float32"] <= TOLERANCE for one in published)
