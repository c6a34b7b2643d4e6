"""A report as an HTML file that holds its figures, as JSON beside it, and on a terminal."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from training.evaluation import pictures
from training.files import read_json, write_json, write_text
from training.fit.run_folder import RunFolder
from training.fit.search import WITH
from training.messages import ROOT, typed
from training.metrics import METRICS
from training.report import curves
from training.report.collect import Report, advise, sentence
from training.report.verdict import RULE, Worth, duration, percent

STYLES = {Worth.USABLE: "bold green", Worth.ROUGH: "bold yellow", Worth.NOT_USABLE: "bold red"}
NUMBERS = "report.json"
TEMPLATE = "page.html.jinja"
BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 60
MEASURES = ("mean of", "training", "validation", "test")
ERRORS = ("split", "samples", "mean", "of the deviation", "standard error", "median", "95th percentile", "worst")
KEYS = ("relative_l2", "vrmse", "standard_error", "median", "percentile_95", "worst")
RACE = ("network", "share of the budget", "validation error")
IN_DEVIATIONS = "mean_error_in_deviations"
SCALARS = ("number", "units", "deviation", "mean error", "worst error", "mean error in deviations")
SCALAR_KEYS = ("deviation", "mean_error", "worst_error")
DATA = ("array", "role", "shape", "units", "least", "greatest", "mean", "deviation")


def write(report: Report, folder: Path) -> Path:
    """Write the page and its numbers into a run's folder, and return the page."""
    page = RunFolder(folder).report
    write_json(folder / NUMBERS, numbers(report))
    write_text(page, render(report))
    return page


def render(report: Report) -> str:
    """Return the page."""
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["together"] = lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%")
    return environment.get_template(TEMPLATE).render(
        report=report,
        verdict=report.verdict,
        rule=RULE,
        bars=bars(report),
        run_next=next_command(report),
        again=report_command(report.folder, report.data),
        errors=(ERRORS, error_rows(report)),
        measures=(MEASURES, measure_rows(report)),
        data=(DATA, report.tensors),
        amount_rows=amount_rows(report),
        sentences=sentences(report),
        percent=percent,
        duration=duration,
        curve=image(curves.learning_curve(report)),
        distribution=image(curves.distribution(report)),
        amounts=image(curves.amounts(report)) if report.amounts else None,
        rollout=image(curves.rollout(report)) if report.rollout else None,
        race=image(curves.race(report.race)) if report.race else None,
        race_rows=(RACE, race_rows(report.race)) if report.race else None,
        choice=choice(report.race) if report.race else None,
        scalars=image(pictures.parity(report.scalars)) if report.scalars else None,
        scalar_rows=(SCALARS, scalar_rows(report)),
        samples={name: image(figure) for name, figure in pictures.figures(report.drawn, report.description).items()},
    )


def numbers(report: Report) -> dict[str, Any]:
    """Return the numbers of a report as a JSON document."""
    evidence, times = report.evidence, report.times
    return {
        "run": report.run,
        "samples": dict(zip(("training", "validation", "test"), report.counts, strict=True)),
        "errors": report.figures,
        "error_by_sample": {split: [*map(float, errors)] for split, errors in report.errors.items()},
        "worth": report.verdict.worth.value,
        "verdict": report.verdict.headline,
        "baselines": report.baselines,
        "scalars": [one.row for one in report.scalars],
        "problem_file": None if report.source is None else str(report.source.resolve()),
        "amounts": [{"samples": one.samples, "relative_l2": float(one.errors.mean())} for one in report.amounts],
        "rollout": [dict(row) for row in report.rollout],
        "race": report.race,
        "seconds": {"network": times.network, "solver": times.solver, "training": times.training},
        "evidence": {
            key: value if value is None or math.isfinite(value) else None
            for key, value in (("gap", evidence.gap), ("fall", evidence.fall), ("doubling", evidence.doubling))
        },
        "next": advise(evidence).value,
    }


def scalar_rows(report: Report) -> list[tuple[str, ...]]:
    """Return the errors of the outputs that are numbers, a row each."""
    return [
        (one.label, one.units, *(f"{one.row[key]:.3g}" for key in SCALAR_KEYS), percent(one.row[IN_DEVIATIONS]))
        for one in report.scalars
    ]


def show(report: Report, console: Console) -> None:
    """Print a report, its verdict first."""
    console.print(report.verdict.headline, style=STYLES[report.verdict.worth], markup=False, highlight=False)
    if run_next := next_command(report):
        console.print(run_next, soft_wrap=True, markup=False, highlight=False)
    console.print(RULE, style="dim", markup=False, highlight=False)
    console.print()
    train, validation, test = report.counts
    points = " x ".join(map(str, report.sides))
    heads = f"{train} training, {validation} validation and {test} test samples on {points} points"
    console.print(table(f"{report.problem.name}: {heads}", DATA, report.tensors))
    for remark in report.remarks:
        console.print(f"note: {remark}", markup=False)
    console.print(table("relative L2 error by sample", ERRORS, error_rows(report)))
    console.print(table("other error measures", MEASURES, measure_rows(report)))
    curve = [row["relative_l2"] for row in report.epochs]
    console.print(f"validation error by epoch, {curve[0]:.2g} to {curve[-1]:.2g}, logarithmic\n{sparkline(curve)}\n")
    if report.race:
        console.print(table("validation error in the race", RACE, race_rows(report.race)))
        console.print(choice(report.race), markup=False, highlight=False)
    ranks = ", ".join(f"{one.rank} {one.number} ({percent(one.error)})" for one in report.drawn)
    console.print(f"test samples: {ranks}", markup=False)
    if rows := amount_rows(report):
        console.print(table("amount of data", ("training samples", "mean error"), rows))
    for line in sentences(report):
        console.print(line, markup=False, highlight=False)


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Lay out a table for eighty columns; the first column is left-aligned."""
    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for index, name in enumerate(header):
        made.add_column(name, justify="right" if index else "left")
    for row in rows:
        made.add_row(*row)
    return made


def sparkline(values: Sequence[float]) -> str:
    """Draw values from zero on as blocks, on a logarithmic scale, at most `WIDTH` of them."""
    least = min((value for value in values if value > 0), default=1.0)
    parts = np.array_split(np.log(np.maximum(values, least)), min(WIDTH, len(values)))
    means = np.asarray([part.mean() for part in parts])
    span = float(np.ptp(means)) or 1.0
    return "".join(BLOCKS[int(level)] for level in np.rint((means - means.min()) / span * (len(BLOCKS) - 1)))


def sentences(report: Report) -> list[str]:
    """Say how large the error is, whether estimates of it hold, what a sample costs, and what to do next."""
    test, frames = report.figures["test"], report.frames
    over = f" over {frames} frames" if frames else ""
    accuracy = (
        f"On {report.counts[2]} test samples, which took part in no decision, the relative L2 error{over} is "
        f"{percent(test['relative_l2'])} on average (median {percent(test['median'])}, "
        f"worst {percent(test['worst'])})"
    )
    of_deviation = f", and {percent(test['vrmse'])} of the deviation from the mean" if "vrmse" in test else ""
    return [
        f"{accuracy}{of_deviation}.",
        trust(report.calibration),
        cost(report),
        sentence(report.evidence),
    ]


def bars(report: Report) -> list[tuple[str, str, float]]:
    """Return what the page draws as bars: a name, its error, and its length in per cent of the longest."""
    errors = {"this model": report.verdict.error, **report.baselines}
    most = max(errors.values()) or 1.0
    return [(name, percent(error), 100 * error / most) for name, error in errors.items()]


def data_option(data: Path) -> tuple[str | Path, ...]:
    """Return the option that names the folder of the samples, where it is another than that of the repository."""
    return () if data.resolve() == ROOT / "data" else ("--data", data)


def report_command(folder: Path, data: Path, *, amounts: bool = True) -> str:
    """Return the command that writes the report of a run once more, and with `amounts` trains on parts of the data."""
    return typed("report", folder, *data_option(data), *(() if amounts else ("--no-amounts",)))


def next_command(report: Report) -> str:
    """Return the command of the longer training that the verdict asks for; nothing where there is none."""
    if not report.verdict.preset_next or report.source is None:
        return ""
    return typed("fit", report.source, "--preset", report.verdict.preset_next, *data_option(report.data))


def is_missing(folder: Path, *, amounts: bool) -> bool:
    """Return whether a run has no report of its weights, or with `amounts` none with trainings on parts of the data."""
    if not RunFolder(folder).report.is_file():  # which is written last, and removed where weights are replaced
        return True
    return amounts and not read_json(folder / NUMBERS).get("amounts")


def source_of(folder: Path) -> Path | None:
    """Return the problem file that the report of a run names; None where there is none any more."""
    named = read_json(folder / NUMBERS).get("problem_file") if (folder / NUMBERS).is_file() else None
    return Path(named) if named and Path(named).is_file() else None


def trust(calibration: Mapping[str, Any] | None) -> str:
    """Say how well the model's own error estimates hold on test samples; of rollouts those of the first frame."""
    if calibration is None or "coverage" not in calibration:
        few = "training" if calibration is None else "validation"
        return f"There are too few {few} samples for error estimates in the responses."
    frame = f" of every frame, that of frame {calibration['frame']:g}" if "frame" in calibration else ""
    return (
        f"Responses estimate their error{frame}: on the test samples by {percent(calibration['mean_estimate'])} on "
        f"average, and by at least the true error for {100 * calibration['coverage']:.0f} % of them (aim: 90 %)."
    )


def cost(report: Report) -> str:
    """Say what the model and the user's solver cost; a model that is not usable saves nothing."""
    times = report.times
    network = f"One sample takes {duration(times.network)} on one core ({report.processor}), before the export"
    if times.solver is None:
        return f"{network}. The key solver_seconds of the problem file compares this with your solver."
    beside = f"{network}, and {duration(times.solver)} with your solver"
    if report.verdict.worth is Worth.NOT_USABLE:
        return f"{beside}: with this error it does not replace your solver."
    if times.repaid is None or times.speedup is None:
        return f"{beside}. Your solver is faster, so the model saves no time."
    often = f"{times.speedup:,.0f}" if times.speedup >= 100 else f"{times.speedup:.3g}"
    paid = f"The training of {duration(times.training)} takes as long as {math.ceil(times.repaid):,} samples with it"
    return f"{beside}: {often} times as long, but without this error. {paid}."


def error_rows(report: Report) -> list[tuple[str, ...]]:
    """Return the rows of the table of errors under `ERRORS`."""
    return [
        (split, str(len(report.errors[split])), *(percent(figures[key]) if key in figures else "" for key in KEYS))
        for split, figures in report.figures.items()
    ]


def measure_rows(report: Report) -> list[tuple[str, ...]]:
    """Return the rows of the table of the other error measures under `MEASURES`; empty where no truth has them."""
    by_split = [report.figures[split] for split in MEASURES[1:]]
    return [
        (measure.meaning, *(percent(figures[name]) if name in figures else "" for figures in by_split))
        for name, measure in METRICS.items.items()
        if name not in KEYS and any(name in figures for figures in by_split)
    ]


def race_rows(race: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the share of the budget that each network has used, and its last error; the winner first."""
    found: dict[str, tuple[float, float]] = {}
    for each in race["rounds"]:
        found |= {name: (each["share"], error) for name, error in each["validation_error"].items()}
    order = sorted(found, key=lambda name: (name != race["winner"], -found[name][0], found[name][1]))
    return [(name, f"{100 * found[name][0]:.2g} %", percent(found[name][1])) for name in order]


def choice(race: Mapping[str, Any]) -> str:
    """Say why this network was chosen, and which symmetries were tried."""
    winner, symmetries = race["winner"], race["symmetries"]
    name, _, moved = winner.partition(WITH)
    rounds = [each["validation_error"] for each in race["rounds"]]
    last = next(errors for errors in reversed(rounds[:-1] if symmetries["tried"] else rounds) if name in errors)
    weights = {other: race.get("handicaps", {}).get(other, 1.0) for other in last}
    _, rest = min((error * weights[other], other) for other, error in last.items() if other != name)
    counted = (
        f"; they count {weights[name]:.3g} and {weights[rest]:.3g} times" if weights[name] != weights[rest] else ""
    )
    why = (
        f"Network: {name}, the best of {len(rounds[0])} in the first {100 * race['share']:.0f} % of the training, "
        f"with a validation error of {percent(last[name])} beside {percent(last[rest])} of {rest}{counted}."
    )
    if not symmetries["tried"]:
        return why
    if symmetries["not_contradicted"] is None:
        return f"{why} No symmetry was tried, since no network had learned anything yet."
    if not symmetries["not_contradicted"]:
        return f"{why} No symmetry is used: the validation samples contradict {', '.join(symmetries['tried'])}."
    without, copied = rounds[-1][name], next(error for other, error in rounds[-1].items() if other != name)
    named, beside = ", ".join(symmetries["not_contradicted"]), f"{percent(copied)} beside {percent(without)} without"
    used = "The symmetries in use lower it" if moved else "No symmetry is used, since none lowers it"
    return f"{why} {used}: {beside} {named}."


def amount_rows(report: Report) -> list[tuple[str, str]]:
    """Return the validation error by number of training samples; nothing where it was not measured."""
    return [(str(samples), percent(figures["relative_l2"])) for samples, figures in report.by_amount]


def image(figure: Figure) -> str:
    """Return a figure as the address of an embedded SVG image."""
    target = BytesIO()
    with mpl.rc_context({"svg.hashsalt": "report", "savefig.transparent": True}):
        figure.savefig(target, format="svg", dpi=110, metadata={"Date": None, "Creator": None})
    return f"data:image/svg+xml;base64,{b64encode(target.getvalue()).decode()}"
