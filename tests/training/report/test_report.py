"""The report of a run: the page, the numbers beside it, and the rule that chooses what to do next."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from matplotlib.figure import Figure
from typer.testing import CliRunner

from training import checkpoint
from training.commands import app
from training.evaluation.measures import processor
from training.evaluation.pictures import figures
from training.fit.operator_workload import OperatorWorkload
from training.fit.run_folder import RunError, RunFolder
from training.messages import typed
from training.report import collect, verdict
from training.report.collect import Amount, Evidence, NextStep, ReportError, Times, advise, sentence
from training.report.page import cost, is_missing, next_command, report_command, source_of, sparkline, trust
from training.report.verdict import MEAN, NEAREST, Verdict, percent

GRIDS = {"line": (24,), "plane": (12, 16), "box": (4, 6, 4)}
AXES = ("depth", "row", "column")


def problem_file(grid: str) -> str:
    axes = "".join(f"[axes.{name}]\n" for name in AXES[-len(GRIDS[grid]) :])
    return f"""
name = "heat"
title = "Heat & <flow>"
solver_seconds = 12.5
[data]
files = ["heat.npz"]
[inputs.k]
positive = true
[inputs.f]
components = ["x", "y"]
[parameters.wind]
[outputs.u]
components = ["x", "y"]
units = "K"
{axes}"""


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


#: A page of lines is also read in `tests/training/metrics/test_outside_measure.py`.
SHOWN = [name if name == "plane" else pytest.param(name, marks=pytest.mark.deep) for name in GRIDS]


@pytest.fixture(scope="module", params=SHOWN)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on a file by the commands that a person types."""
    folder, sides = tmp_path_factory.mktemp(request.param), GRIDS[request.param]
    rng = np.random.default_rng(0)
    k, f, wind = 10 ** rng.uniform(-2, 2, (40, *sides)), rng.standard_normal((40, 2, *sides)), rng.random(40)
    np.savez(folder / "heat.npz", k=k, f=f, wind=wind, u=f + np.log(k)[:, None] + 3)
    (folder / "heat.toml").write_text(problem_file(request.param))
    fit = ("fit", folder / "heat.toml", "--preset", "tiny", "--set", "fit.epochs=4")
    trained = command(*fit, "--data", folder / "data", "--out", folder / "run")
    assert trained.exit_code == 0, trained.output
    return folder / "run"


def test_training_ends_with_a_page_that_needs_no_other_file(run: Path) -> None:
    page = (run / "report.html").read_text()
    assert "Heat &amp; &lt;flow&gt;" in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert page.count('src="data:image/svg+xml;base64,') == 4  # two curves, and a figure per output component
    assert "12.5 s with your solver" in page
    assert page.index("nearest training sample") < page.index("Best, median and worst")


def test_the_numbers_are_those_of_the_card(run: Path) -> None:
    card, numbers = (json.loads((run / name).read_text()) for name in ("card.json", "report.json"))
    row = card["errors"][0]
    assert {key: row[key] for key in numbers["errors"]["test"]} == numbers["errors"]["test"]
    assert len(numbers["error_by_sample"]["test"]) == row["fields"] == 4
    assert np.mean(numbers["error_by_sample"]["validation"]) == pytest.approx(
        numbers["errors"]["validation"]["relative_l2"], rel=1e-3
    )
    assert min(map(float, (line.split(",")[2] for line in (run / "metrics.csv").read_text().splitlines()[1:]))) == (
        pytest.approx(numbers["errors"]["validation"]["relative_l2"], rel=1e-3)
    )


def test_parts_of_the_data_stand_beside_the_samples_that_the_run_has_used(run: Path) -> None:
    third = Amount(1 / 3, 11, np.ones(4))  # of 32, rounded
    assert [samples for samples, _ in collect(run, run.parent / "data", [third]).by_amount] == [11, 32]


@pytest.mark.deep
@pytest.mark.parametrize("run", ["plane"], indirect=True)
def test_amounts_of_data_are_measured_once(run: Path) -> None:
    arguments = ("report", run, "--data", run.parent / "data", "--amounts")
    first, second = command(*arguments), command(*arguments)
    assert first.exit_code == second.exit_code == 0, first.output
    assert "training on 25 % of the data" in first.stderr
    assert re.search(r"^epoch 4, 100%: loss ", first.stderr, re.MULTILINE)  # a line per epoch without a terminal
    assert "epoch 4, 100%" not in second.stderr
    numbers = json.loads((run / "report.json").read_text())
    assert [row["samples"] for row in numbers["amounts"]] == [8, 16]
    assert numbers["evidence"]["doubling"] is not None
    assert (run / "report.html").read_text().count('src="data:image/svg+xml;base64,') == 5


@pytest.mark.parametrize("run", ["plane"], indirect=True)
def test_pictures_show_the_best_the_median_and_the_worst_test_sample(run: Path) -> None:
    report = collect(run, run.parent / "data")
    assert [one.rank for one in report.drawn] == ["best", "median", "worst"]
    errors = report.errors["test"]
    assert [one.error for one in report.drawn] == [errors.min(), np.sort(errors)[2], errors.max()]
    with np.load(run.parent / "heat.npz") as file:
        for one in report.drawn:
            assert np.allclose(one.truth["u"], file["u"][one.number], rtol=1e-6)
            assert one.parameters["wind"] == pytest.approx(file["wind"][one.number])
    ends = {"ends": ((5 - 1 / 24, 4 + 1 / 24), ())}  # the middles of the outermost of 12 cells on an axis that falls
    known = report.description.model_copy(update={"grid": report.description.grid.model_copy(update=ends)})
    [panel, *_] = next(iter(figures(report.drawn, known).values())).axes
    assert (*panel.get_ylim(), *panel.get_xlim()) == pytest.approx((4, 5, 0, 1))
    assert panel.images[0].origin == "upper"  # the first row, which lies at 5


def test_the_model_s_error_estimates_are_judged() -> None:
    assert trust({"coverage": 0.875, "mean_estimate": 0.0421}) == (
        "Responses estimate their error: on the test samples by 4.21 % on average, and by at least the true error for "
        "88 % of them (aim: 90 %)."
    )
    of_frames = trust({"coverage": 0.875, "mean_estimate": 0.0421, "frame": 1.0})
    assert of_frames.startswith(
        "Responses estimate their error of every frame, that of frame 1: on the test samples by"
    )
    assert trust(None).startswith("There are too few training samples")
    assert trust({"outside": 0.0}).startswith("There are too few validation samples")


@pytest.mark.parametrize("run", SHOWN, indirect=True)
def test_the_report_begins_with_a_verdict_beside_predictions_without_a_network(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = json.loads((run / "report.json").read_text())
    with np.load(run.parent / "heat.npz") as file:
        k, f, wind, u = (file[name] for name in ("k", "f", "wind", "u"))
    test, train = slice(36, 40), slice(0, 32)
    columns = [(one - one[train].mean()) / one[train].std() for one in (f, wind[:, None])]
    columns.append(np.log(k))
    rows = np.concatenate([one.reshape(40, -1) / np.sqrt(one[0].size) for one in columns], axis=1)
    closest = [int(np.square(rows[train] - row).sum(axis=1).argmin()) for row in rows[test]]
    monkeypatch.setattr(verdict, "AT_ONCE", 3 * rows.shape[1])  # three samples
    assert [*verdict.nearest(OperatorWorkload(checkpoint.load(run).recipe, run.parent / "data"))] == closest
    for name, made in (
        ("predicting the mean", u[train].mean(axis=0)[None]),
        ("the nearest training sample", u[closest]),
    ):
        flat, truth = (made - u[test]).reshape(4, -1), u[test].reshape(4, -1)
        wanted = np.mean(np.linalg.norm(flat, axis=1) / np.linalg.norm(truth, axis=1))
        assert numbers["baselines"][name] == pytest.approx(wanted, rel=0.02)
    # The same digits as in the tables, which are rounded once.
    assert f"an error of {percent(numbers['errors']['test']['relative_l2'])} on test" in numbers["verdict"]
    page = (run / "report.html").read_text()
    assert numbers["verdict"].replace("`", "").replace(" %", "\N{NO-BREAK SPACE}%") in page
    assert "This was `tiny`: run `quick`." in numbers["verdict"]


@pytest.mark.deep
@pytest.mark.parametrize("run", ["plane"], indirect=True)
def test_its_commands_can_be_pasted(run: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    source = run.parent / "heat.toml"
    report = collect(run, run.parent / "data", source=source)
    words = shlex.split(next_command(report))
    assert words[1:] == [
        *("-m", "training", "fit", str(source), "--preset", "quick", "--data", str(run.parent / "data"))
    ]
    aside = tmp_path_factory.mktemp("a place") / "my run"
    shutil.copytree(run, aside)
    moved = collect(aside, run.parent / "data", source=source_of(aside))
    assert moved.source == source
    again = shlex.split(report_command(moved.folder, moved.data))
    assert again[4] == str(aside)
    done = command(*again[3:], "--no-amounts")
    assert done.exit_code == 0, done.output
    verdict = json.loads((aside / "report.json").read_text())["verdict"]
    assert verdict == json.loads((run / "report.json").read_text())["verdict"]
    assert " ".join(done.stderr.split()).startswith(verdict)


@pytest.mark.parametrize(
    ("error", "mean", "near", "preset", "begins", "ends"),
    [
        (0.01, 0.8, 0.6, "quick", "Usable: an error of 1 % on", "and 60 % of the nearest training sample."),
        (0.1, 0.8, 0.6, "tiny", "Rough: an error of 10 %", "This was `tiny`: run `quick`."),
        (0.43, 0.8, 1.2, "tiny", "Not usable yet: an error of 43 %", "This was `tiny`: run `quick`."),
        (0.1, 0.8, 0.6, "laptop", "Rough", "What would lower it: more data."),
        (0.04, 0.05, 0.6, "laptop", "Not usable yet", "What would lower it: more data."),  # the mean is as good
        (0.0, 0.0, 0.0, "quick", "Usable", "of the nearest training sample."),
        (float("nan"), 0.8, 0.6, "quick", "Not usable yet", "What would lower it: more data."),
    ],
)
def test_a_verdict_follows_from_the_error_and_its_baselines(
    error: float, mean: float, near: float, preset: str, begins: str, ends: str
) -> None:
    line = Verdict(error, {MEAN: mean, NEAREST: near}, preset, "more data", longer=False).headline
    assert line.startswith(begins)
    assert line.endswith(ends)


def test_errors_of_zero_divide_nothing() -> None:
    evidence = Evidence(training=0.0, validation=0.0, curve=[0.0, 0.0], half=0.0)
    assert (evidence.gap, evidence.doubling, evidence.fall) == (1, 0, 0)
    assert sentence(Evidence(training=0.0, validation=0.1, curve=[0.0])).startswith("Next: more data")
    assert sparkline([1.0, 0.5, 0.0]) == "█▁▁"


@pytest.mark.parametrize("run", ["plane"], indirect=True)
def test_a_model_that_is_not_usable_repays_nothing(run: Path, tmp_path: Path) -> None:
    of_another_machine = shutil.copytree(run, tmp_path / "run")
    card = json.loads((run / "card.json").read_text())
    card["training"]["processor"] = "an abacus"
    (of_another_machine / "card.json").write_text(json.dumps(card))
    report = replace(collect(of_another_machine, run.parent / "data"), baselines={MEAN: 0.0})
    assert "does not replace your solver" in cost(report)
    assert f"on one core ({processor()})" in cost(report)
    none = {split: {"relative_l2": 0 * errors} for split, errors in report.errors.items()}
    good = replace(report, measures=none, baselines={MEAN: 1.0})
    assert "takes as long as" in cost(good)


@pytest.mark.parametrize("run", ["plane"], indirect=True)
def test_no_report_is_of_a_run_that_another_command_changes_or_of_two_trainings(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    (folder.path / "report.html").unlink()
    reporting = ("report", folder.path, "--data", run.parent / "data", "--no-amounts")
    with folder.alone():
        refused = command(*reporting)
    assert isinstance(refused.exception, RunError)
    assert "expected no other command that writes there" in str(refused.exception)
    folder.recipe.touch()
    stopped = command(*reporting)
    assert isinstance(stopped.exception, RunError)
    assert "expected a training that has ended but found one that was stopped" in str(stopped.exception)
    assert not (folder.path / "report.html").exists()
    folder.recipe.unlink()
    assert command(*reporting).exit_code == 0
    assert (folder.path / "report.html").exists()


@pytest.mark.parametrize("run", ["plane"], indirect=True)
def test_a_report_that_was_stopped_is_written_when_the_run_goes_on(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = run / "report.html"
    fit = ("fit", run.parent / "heat.toml", "--preset", "tiny", "--set", "fit.epochs=4")
    again = (*fit, "--data", run.parent / "data", "--out", run, "--resume")
    before = page.stat().st_mtime_ns
    assert command(*again).exit_code == 0
    assert page.stat().st_mtime_ns == before
    page.unlink()

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Figure, "savefig", killed)
        stopped = command(*again, "--no-amounts")
    assert stopped.exit_code == 130
    assert not page.exists()
    advised = typed("report", run, "--data", run.parent / "data", "--no-amounts")
    assert f"stopped; the model is trained, and this writes its report: {advised}" in stopped.stderr
    assert command(*again).exit_code == 0
    assert page.is_file()
    assert is_missing(run, amounts=True)


@pytest.mark.parametrize("run", ["plane"], indirect=True)
def test_a_released_checkpoint_has_no_log_and_nothing_is_trained_for_its_report(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "heat", ignore=shutil.ignore_patterns("metrics.csv"))
    failed = command("report", tmp_path / "heat", "--data", run.parent / "data", "--amounts")
    assert isinstance(failed.exception, ReportError)
    assert "expected the log of the training" in str(failed.exception)
    assert "name the folder of the run, such as runs/heat-tiny" in str(failed.exception)
    assert not (tmp_path / "heat/amounts").exists()


def test_another_run_has_no_report() -> None:
    failed = command("report", "checkpoints/darcy")
    assert isinstance(failed.exception, ReportError)
    assert "expected a run on data of a problem file" in str(failed.exception)


FLAT, FALLING = [1.0] * 10, [10 / (1 + epoch) for epoch in range(10)]


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (Evidence(training=0.1, validation=0.3, curve=FLAT, half=0.4), NextStep.DATA),
        (Evidence(training=0.1, validation=0.3, curve=FLAT), NextStep.DATA),
        (Evidence(training=0.1, validation=0.3, curve=FALLING, half=0.301), NextStep.NONE),
        (Evidence(training=0.1, validation=0.11, curve=FLAT, half=0.2), NextStep.TRAINING),
        (Evidence(training=0.1, validation=0.11, curve=FALLING), NextStep.TRAINING),
        (Evidence(training=0.1, validation=0.11, curve=FALLING, half=0.111), NextStep.TRAINING),
        (Evidence(training=0.1, validation=0.11, curve=FLAT, half=0.111), NextStep.NETWORK),
        (Evidence(training=0.1, validation=0.11, curve=FLAT), NextStep.TRAINING_OR_NETWORK),
        (Evidence(training=0.1, validation=0.11, curve=[0.11]), NextStep.TRAINING_OR_NETWORK),
    ],
)
def test_the_next_thing_follows_from_gap_data_and_curve(evidence: Evidence, expected: NextStep) -> None:
    assert advise(evidence) is expected
    assert sentence(evidence).startswith(f"Next: {expected.value}. The validation error is ")


def test_a_training_is_repaid_by_what_each_sample_saves() -> None:
    assert Times(network=0.5, training=60.0, solver=2.5).repaid == 30
    assert Times(network=0.5, training=60.0, solver=0.5).repaid is None
    assert Times(network=0.5, training=60.0, solver=None).speedup is None


@pytest.mark.parametrize(("values", "expected"), [([8.0, 4.0, 2.0, 1.0], "█▆▃▁"), ([1.0, 1.0], "▁▁"), ([3.0], "▁")])
def test_a_curve_is_drawn_on_a_logarithmic_scale(values: list[float], expected: str) -> None:
    assert sparkline(values) == expected
