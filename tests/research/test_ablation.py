"""Rows differ in one key, are measured on fields that are neither trained nor tested on, and are trained once."""

from __future__ import annotations

from pathlib import Path

import pytest

from research import ablation
from training import recipe as config
from training import recipes

SHARED = ("data.train=8", "data.validation=4", "data.test=4", "data.grids=[29]", "fit.epochs=1")


def test_changes_are_made_one_at_a_time() -> None:
    plan = ablation.Plan(Path("x.toml"), (), ("operator.steps=0,4", "data.grids=[29,43],[85]"))
    assert plan.changes == ["nothing", "operator.steps=0", "operator.steps=4", "data.grids=[29,43]", "data.grids=[85]"]
    with pytest.raises(config.RecipeError, match=r"expected a variation a.b=c,d"):
        ablation.alternatives("operator.steps")


def test_a_wrong_change_is_told_before_anything_is_trained(tmp_path: Path) -> None:
    plan = ablation.Plan(recipes.find("darcy-tiny"), SHARED, ("operator.stepz=1",))
    with pytest.raises(config.RecipeError, match="stepz"):
        next(ablation.ablate(plan, tmp_path / "runs", tmp_path / "data"))
    assert not (tmp_path / "runs").exists()


@pytest.mark.deep
def test_rows_are_trained_once_and_written(tmp_path: Path) -> None:
    plan = ablation.Plan(recipes.find("darcy-tiny"), SHARED, ("operator.layers=1",))
    rows = list(ablation.ablate(plan, tmp_path / "runs", tmp_path / "data"))
    assert [row.change for row in rows] == ["nothing", "operator.layers=1"]
    assert rows[1].parameters < rows[0].parameters
    assert rows[0].relative_l2 != rows[1].relative_l2
    assert all(row.fields == 4 and row.relative_l2 <= row.worst for row in rows)
    assert list(ablation.ablate(plan, tmp_path / "runs", tmp_path / "data")) == rows  # with the times of the first
    ablation.write(plan, rows, tmp_path / "rows.json")
    assert ablation.load(tmp_path / "rows.json") == rows
    assert ablation.cells(rows)[0][3] == "1.00"
