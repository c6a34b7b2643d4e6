"""The published recipes: their networks' sizes and beginnings, and that they run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from training import checkpoint, recipes
from training import recipe as config
from training.fit import run_folder as runlog
from training.fit.run import train, workload
from training.operators import Operator, build
from training.recipes import folders

PARAMETERS = {
    "burgers-paper": 530_305,
    "burgers_galerkin-paper512": 530_305,
    "darcy-paper": 2_220_829,
    "darcy_galerkin-paper85": 2_220_829,
    "darcy_inverse_galerkin-paper": 2_383_873,
}
SMALL = ["data.train=4", "data.validation=8", "data.test=2", "fit.batch=2", "fit.epochs=1"]
PLANE = ["data.mesh=43", "data.grids=[22]", "operator.grid=[22, 22]", "operator.output=[22, 22]"]
SIDES = ["operator.down_middle=[13, 13]", "operator.tokens=[8, 8]", "operator.up_middle=[13, 13]"]
TINY = {  # the recipes for smaller grids are the same with these
    "burgers-paper": [*SMALL, "data.mesh=256", "data.grids=[64]"],
    "darcy-paper": [*SMALL, *PLANE, *SIDES],
    "darcy_inverse_galerkin-paper": [*SMALL, *SIDES, "data.mesh=141", "data.grids=[71]", "operator.grid=[22, 22]"],
}
#: The inverse problem is trained in `tests/training/fit/test_fit.py`, and Burgers' equation below.
RUN = [
    pytest.param("burgers-paper", marks=pytest.mark.deep),
    "darcy-paper",
    pytest.param("darcy_inverse_galerkin-paper", marks=pytest.mark.deep),
]


def network(name: str) -> Operator:
    torch.manual_seed(0)
    return build(recipes.read(recipes.find(name)).operator)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_network_has_the_published_size(name: str) -> None:
    assert sum(parameter.numel() for parameter in network(name).parameters()) == PARAMETERS[name]


def test_every_published_recipe_is_tested() -> None:
    files = [path for folder in folders() for path in folder.glob("*/paper*.toml")]
    published = {f"{path.parent.name}-{path.stem}": recipes.read(path) for path in files}
    assert {name for name, recipe in published.items() if isinstance(recipe, config.Recipe)} == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_all_layers_begin_alike_and_small_near_a_multiple_of_the_identity(name: str) -> None:
    operator = network(name)
    first, *others = (layer.state_dict() for layer in operator.encoder)
    assert len(others) == operator.config.layers - 1
    for other in others:
        assert all(torch.equal(other[key], tensor) for key, tensor in first.items())
    bound = 1e-2 * math.sqrt(3 / operator.config.channels)
    for projection in ("query", "key", "value"):
        weight = first[f"attention.{projection}.weight"]
        rest = weight - 1e-2 * torch.eye(len(weight))
        assert 0.9 * bound < rest.abs().max() <= bound * (1 + 1e-4)
        assert not first[f"attention.{projection}.bias"].any()


@pytest.mark.parametrize(
    ("name", "gain", "fan"), [("burgers-paper", 1 / 48**2, 96 * 2 * 16), ("darcy-paper", 8 / 32**2, 64 * 2 * 12**2)]
)
def test_spectral_layers_begin_with_the_published_deviation(name: str, gain: float, fan: int) -> None:
    weight = network(name).decoder.spectral[-1].weight
    assert weight.std().item() == pytest.approx(gain * math.sqrt(2 / fan), rel=0.02)


@pytest.mark.parametrize("name", RUN)
def test_a_published_recipe_runs(name: str, data: Path, tmp_path: Path) -> None:
    recipe = recipes.read(recipes.find(name), TINY[name])
    found = checkpoint.load(train(recipe, tmp_path, data))
    assert found.card.training["kept"] == "the last epoch"
    assert all(math.isfinite(row["relative_l2"]) for row in found.card.errors)


@pytest.mark.deep
def test_the_best_epoch_can_be_kept(data: Path, tmp_path: Path) -> None:
    # This rate breaks the network after the first epoch.
    chosen = ["fit.keep=best", "fit.epochs=4", "fit.learning_rate=0.02"]
    recipe = recipes.read(recipes.find("burgers-paper"), [*TINY["burgers-paper"], *chosen])
    card = checkpoint.load(train(recipe, tmp_path, data)).card
    work = workload(recipe, data)
    network = work.task(init=tmp_path).network.eval()
    errors = torch.stack([work.scores(network, batch)[0]["relative_l2"] for batch in work.validation()])
    logged = [float(row["relative_l2"]) for row in runlog.read_log(tmp_path / "metrics.csv")]
    assert min(logged) < logged[-1]
    assert errors.mean().item() == pytest.approx(min(logged), rel=1e-5)
    assert card.training["kept"] == "the epoch of the least error on the validation set"


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("burgers-paper", "fit.symmetries=true", "symmetries move fields, not the gradients"),
        ("darcy_inverse_galerkin-paper", "fit.gamma=0.1", "set fit.gamma = 0"),
        ("darcy-paper", "problem=darci", "expected a problem among burgers, .*darcy, "),
    ],
)
def test_what_cannot_be_trained_is_refused(name: str, override: str, message: str) -> None:
    with pytest.raises(config.RecipeError, match=message):
        recipes.read(recipes.find(name), [override])
