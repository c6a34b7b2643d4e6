"""Tables of the released models: accuracy, training, rollouts, and inversion with them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks.harness import Row, grouped, mean
from benchmarks.tables.table import Cells, case, made_of, precise
from training.evaluation.rows import scientific

GRID = "grid | fields | relative L2 | standard error | median | worst | solver's L2 | its fields"
ROLLOUT = "method | milliseconds per frame | frame 1 | frame 5 | frame 10 | frame 20"


@made_of("accuracy", "", "Accuracy of the released models", f"model | {GRID}")
def accuracy(found: Row) -> Cells:
    """Return a row per released model of fields and grid, beside the classical solver."""
    for name, card in found.items():
        if "errors" in card and "rollout" not in card:
            for network, solver in paired(card):
                yield (name, *network, *solver)


def paired(card: Row) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield the figures of a network on each grid, and those of the solver, which may have fewer of the same fields."""
    classical = {case(row): row for row in card.get("classical", ())}
    for row in card["errors"]:
        other = classical.get(case(row), {})
        spread, median, worst = (scientific(row.get(key)) for key in ("standard_error", "median", "worst"))
        own = (case(row), str(row["fields"]), scientific(row["relative_l2"]), spread, median, worst)
        solver = (
            (precise(other["relative_l2"], other.get("standard_error")), str(other["fields"])) if other else ("", "")
        )
        yield own, solver


@made_of("neuralop", "neuralop.json", "neuraloperator's data set", GRID)
def neuralop(found: Row) -> Cells:
    """Return the card of a model of neuraloperator's data set."""
    for network, solver in paired(found):
        yield (*network, *solver)


@made_of(
    "training",
    "",
    "Trainings of the released models",
    "model | parameters | samples | epochs | minutes on the clock | one core, or a card",
)
def training(found: Row) -> Cells:
    """Return what the training of each released model of fields and trajectories took."""
    for name, card in found.items():
        run = card["training"]
        if run["epochs"] and "fields" in run:
            parameters = f"{card['checkpoint']['parameters']:,}"
            minutes = f"{run['seconds'] / 60:.0f}"
            device = run.get("accelerator", run.get("processor", ""))
            yield name, parameters, f"{run['fields']:,}", str(run["epochs"]), minutes, device


def rollouts(name: str) -> Callable[[Row], Cells]:
    """Return the table of a released model: of its solver's settings those that no cheaper one beats."""

    def cells(found: Row) -> Cells:
        def is_setting(row: Row) -> bool:
            return str(row["method"]).startswith("solver,")

        rows = [row for row in found[name] if not is_setting(row)]
        best = 1.0  # a solver that overflows is not shown
        for row in sorted(filter(is_setting, found[name]), key=lambda row: float(row["milliseconds"])):
            if row["errors"][0] < best:
                best = row["errors"][0]
                rows.append(row)
        for row in rows:
            errors = (f"{row['errors'][n - 1]:.2g} ± {row['standard_errors'][n - 1]:.1g}" for n in (1, 5, 10, 20))
            yield (row["method"], f"{row['milliseconds']:.3g}" if row["milliseconds"] else "", *errors)

    return cells


@made_of(
    "inversion",
    "inversion.json",
    "Inversion from sensors",
    "permeability | forward model | cases | error of the mean | of the optimum | coverage of 90 % | steps | s",
)
def inversion(found: Row) -> Cells:
    """Return means over the cases, a row per prior and method."""
    for names, rows in grouped(found["rows"], lambda row: (row["prior"], row["method"])).items():
        measured = (mean(np.array([row[key] for row in rows])) for key in ("error", "optimum", "coverage"))
        steps, seconds = (statistics.fmean(row[key] for row in rows) for key in ("iterations", "seconds"))
        figures = (f"{each:.3f}" + ("" if spread is None else f" ± {spread:.3f}") for each, spread in measured)
        yield (*names, str(len(rows)), *figures, f"{steps:.0f}", f"{seconds:.1f}")


made_of("kuramoto_sivashinsky", "trajectories.json", "Kuramoto-Sivashinsky", ROLLOUT)(rollouts("kuramoto_sivashinsky"))

made_of("navier_stokes", "trajectories.json", "Navier-Stokes", ROLLOUT)(rollouts("navier_stokes"))
