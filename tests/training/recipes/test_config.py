"""Recipes: overrides land where they say, and mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from training import recipe as config
from training import recipes
from training.messages import UserError

TINY = recipes.find("darcy-tiny")


def test_overrides_and_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED", "7")
    recipe = recipes.read(TINY, ["fit.epochs=3", "operator.attention=fourier", "data.grids=[29]"])
    assert (recipe.seed, recipe.fit.epochs, recipe.operator.attention, recipe.data.grids) == (7, 3, "fourier", (29,))


@pytest.mark.parametrize("points", ["cells", "nodes"])
def test_an_operator_has_the_points_of_the_axes(points: str) -> None:
    with pytest.raises(config.RecipeError, match=f"operator.points is '{points}' but those of 'darcy' are strided"):
        recipes.read(recipes.find("darcy-quick"), [f"operator.points={points}"])


def test_an_operator_of_strided_points_has_a_mesh_that_no_grid_is_finer_than() -> None:
    """Between the points of a finer grid its corrections would leave the range of the coefficient."""
    with pytest.raises(config.RecipeError, match=r"operator\.mesh is 420 but grids of 'darcy' have up to 421 points"):
        recipes.read(recipes.find("darcy-quick"), ["operator.mesh=420"])
    assert recipes.read(recipes.find("darcy-quick"), ["operator.mesh=421"]).operator.mesh == 421


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("fit.epoch=3", r"fit\.epoch: the key is unknown \(found 3\)"),
        ("fit.epochs=none", r"fit\.epochs: .*found 'none'"),
        ("fit.epochs=true", r"fit: epochs: expected a number \(found true\)"),
        ("fit.noise=true", r"fit: noise: expected a number \(found true\)"),
        ("fit.learning_rate=inf", r"fit\.learning_rate: Input should be a finite number"),
        ("data.grids=[29, true]", r"data: grids: expected a number \(found \[29, true\]\)"),
        ("operator.layers=true", r"operator: layers: expected a number \(found true\)"),
        ("operator.gain=nan", r"operator\.gain: Input should be a finite number"),
        ("fitness.epochs=3", "no section 'fitness'"),
        ("fit.unroll=[1,2]", "fit.unroll and fit.through: expected them of trajectories alone"),
        ("fit.through=false", "fit.unroll and fit.through: expected them of trajectories alone"),
        ("fit.epochs", "expected an override a.b=c"),
        ("operator.attention=softmaxx", r"operator\.attention: .*galerkin, .*softmaxx"),
    ],
)
def test_a_mistake_is_named(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        recipes.read(TINY, [override])


def test_an_unknown_recipe_lists_the_known() -> None:
    with pytest.raises(config.RecipeError, match="darcy-tiny"):
        recipes.find("darcy-huge")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("model = ")
    with pytest.raises(UserError, match=r"broken\.toml"):
        recipes.read(tmp_path / "broken.toml")
