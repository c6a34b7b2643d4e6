"""A package of the user's adds an error measure by an entry point alone: it is in the log, the card and the report."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.packages import installed
from training.commands import app
from training.messages import Registry
from training.metrics import METRICS

PACKAGE = """
from training.metrics import ErrorMeasure, relative
from training.metrics.fields import neighbours, norm


def energy(field, k, grid):
    slopes = [(before - after) / h for (after, before), h in zip([neighbours(field, 1, periodic=False)], grid.spacings)]
    return ((k[:, 1:] + k[:, :-1]) / 2 * slopes[0].square()).mean(dim=1).sqrt()


def compute(prediction, truth, grid):
    k = grid.inputs["k"]
    return relative(energy(prediction - truth, k, grid), energy(truth, k, grid), norm(truth))


ENERGY = ErrorMeasure("energy_norm", "relative error in the norm of k", compute, lambda grid: "k" in grid.inputs)
"""
ENTRY_POINTS = """
[petrov.metrics]
energy_norm = outside:ENERGY
"""
HEAT = """
name = "heat"
[data]
files = ["heat.npz"]
[inputs.k]
positive = true
[outputs.u]
[axes.x]
length = 2.0
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on a file by the command that a person types, while the package is installed."""
    folder = tmp_path_factory.mktemp("energy")
    rng = np.random.default_rng(0)
    k, x = 10 ** rng.uniform(-1, 1, (40, 16)), np.arange(16) / 16
    np.savez(folder / "heat.npz", k=k, u=np.cumsum(1 / k, axis=1) / 16 + x)
    (folder / "heat.toml").write_text(HEAT)
    fit = ("fit", folder / "heat.toml", "--preset", "tiny", "--set", "fit.epochs=3", "--no-amounts")
    with installed(folder / "outside", PACKAGE, ENTRY_POINTS):
        done = CliRunner().invoke(app, [*map(str, (*fit, "--data", folder / "data", "--out", folder / "run"))])
    assert done.exit_code == 0, (done.output, done.exception)
    (folder / "run" / "printed.txt").write_text(done.output)
    return folder / "run"


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("relative_h1", "relative H1 error, of the gradient"),
        ("energy_norm", "relative error in the norm of k"),
    ],
)
def test_a_measure_is_in_validation_card_and_report(run: Path, name: str, meaning: str) -> None:
    with (run / "metrics.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert all(0 < float(row[name]) < 10 for row in rows)
    assert len(rows) == 3
    card, report = (read(run / file) for file in ("card.json", "report.json"))
    assert card["measures"][name] == meaning
    assert card["errors"][0][name] == report["errors"]["test"][name] > 0
    best = min(rows, key=lambda row: float(row["relative_l2"]))
    assert report["errors"]["validation"][name] == pytest.approx(float(best[name]), rel=1e-3)
    for text in (run / "report.html", run / "printed.txt"):
        assert meaning in " ".join(text.read_text().split())


def test_the_energy_is_that_of_the_inputs_of_the_samples(run: Path) -> None:
    """Where k is one, the norm of k is that of the gradient; here it is not."""
    row = read(run / "card.json")["errors"][0]
    assert row["energy_norm"] != pytest.approx(row["relative_h1"], rel=0.01)


@pytest.mark.deep
def test_without_the_package_there_is_no_such_measure_and_its_card_is_read(run: Path) -> None:
    assert "energy_norm" not in METRICS
    done = CliRunner().invoke(app, ["report", str(run), "--data", str(run.parent / "data"), "--no-amounts"])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "energy_norm" not in read(run / "report.json")["errors"]["test"]


def test_what_is_no_measure_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "wrong-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[petrov.metrics]\nwrong = math:pi\n")
    monkeypatch.syspath_prepend(tmp_path)
    again = Registry(METRICS.noun, METRICS.kind, METRICS.package, METRICS.attribute, METRICS.group)
    with pytest.raises(
        TypeError, match=r"entry point .wrong. of petrov\.metrics: expected a ErrorMeasure but found float"
    ):
        _ = again.items
