"""Comparisons of attention types: shared samples, resumed rows, and the tables of the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import comparison
from benchmarks.commands import app
from benchmarks.comparison import Plan, Row
from benchmarks.report import research
from training.recipes import recipe as config

SHORT = ("data.train=40", "data.validation=10", "data.test=20", "fit.epochs=1", "fit.steps=2", "fit.batch=4")
FIELDS = ("data.mesh=128", "data.train=8", "data.test=4", "data.grids=[64]", "fit.epochs=1", "operator.layers=1")
PLAN = Plan(config.find("listops-tiny"), SHORT, ("softmax", "kernel-aoglu3"), seeds=2)


def row(attention: str, seed: int, score: float, metric: str = "accuracy") -> Row:
    return Row(
        attention=attention,
        seed=seed,
        metric=metric,
        score=score,
        floor=0.125 if metric == "accuracy" else None,
        parameters=12345,
        step_milliseconds=10.0 + seed,
        peak_megabytes=3.0,
        threads=1,
    )


def test_rows_differ_only_in_attention_and_seed() -> None:
    recipes = PLAN.recipes()
    assert [*recipes] == [(kind, seed) for seed in (1127802, 1127803) for kind in PLAN.attention]
    samples = {recipe.data for recipe in recipes.values()}
    assert [data.seed for data in samples] == [1127802]
    assert {recipe.operator.attention for recipe in recipes.values()} == {*PLAN.attention}


def test_an_unknown_type_is_refused_before_any_training(tmp_path: Path) -> None:
    plan = Plan(PLAN.recipe, SHORT, ("softmax", "kernel-none"))
    with pytest.raises(config.RecipeError, match=r"operator\.classifier\.attention"):
        next(comparison.compare(plan, [], tmp_path, tmp_path))


def test_the_command_trains_the_missing_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    plan = Plan(PLAN.recipe, SHORT, ("softmax", "kernel-aoglu3"))
    comparison.write(plan, [known := row("softmax", 1127802, 0.5)], file)
    arguments = ["compare", "listops-tiny", "--attention", "softmax,kernel-aoglu3", "--json", str(file)]
    folders = ["--out", str(tmp_path / "runs"), "--data", str(tmp_path)]
    done = CliRunner().invoke(app, [*arguments, *folders, *(part for each in SHORT for part in ("--set", each))])
    assert done.exit_code == 0, done.output
    kept, trained = comparison.load(file)
    assert kept == known
    assert (trained.attention, trained.seed, trained.metric) == ("kernel-aoglu3", 1127802, "accuracy")
    assert trained.step_milliseconds > 0
    assert trained.peak_megabytes > 0
    assert len(trained.curve) == 1
    assert 0 <= trained.curve[0] <= 1
    assert [folder.name for folder in (tmp_path / "runs").iterdir()] == ["listops-tiny-kernel-aoglu3-1127802"]


def test_operators_of_fields_are_compared_too(tmp_path: Path) -> None:
    plan = Plan(config.find("burgers-tiny"), FIELDS, ("kernel-elu",))
    [found] = comparison.compare(plan, [], tmp_path / "runs", tmp_path)
    assert (found.metric, found.floor) == ("relative_l2", None)
    assert 0 < found.score < 2


def test_rows_of_another_recipe_are_refused(tmp_path: Path) -> None:
    comparison.write(PLAN, [], tmp_path / "rows.json")
    with pytest.raises(config.RecipeError, match="expected rows of"):
        comparison.known(Plan(PLAN.recipe, (), PLAN.attention), tmp_path / "rows.json")


def test_a_row_has_mean_and_spread_of_its_seeds() -> None:
    rows = [row("softmax", 1, 0.5), row("softmax", 3, 0.6), row("kernel-elu", 1, 0.25)]
    first, second = comparison.cells(rows)
    assert first == ("softmax", "2", "55.0 %", "7.1 %", "12.5 %", "12,345", "12", "3")
    assert second[:5] == ("kernel-elu", "1", "25.0 %", "", "12.5 %")
    assert comparison.cells([row("softmax", 1, 0.0123, "relative_l2")])[0][2:5] == ("1.23e-02", "", "")


def test_a_type_with_fewer_seeds_is_left_out() -> None:
    rows = [row("softmax", 1, 0.5), row("kernel-elu", 1, 0.25), row("softmax", 2, 0.6)]
    assert comparison.complete(rows) == [rows[0], rows[2]]
    assert comparison.complete(rows[:2]) == rows[:2]


def test_the_page_holds_the_tables_of_its_files() -> None:
    page = research.PAGE.read_text()
    for header, rows in research.tables(research.FOLDER).values():
        for cells in (header, *rows):
            assert f"| {' | '.join(cells)} |" in page
