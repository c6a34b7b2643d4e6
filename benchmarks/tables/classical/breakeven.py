"""The table of the break-even: the number of solves after which a model has repaid its cost, at equal accuracy.

The cost is the generation of the training fields, timed here on a few, and the training time of the card. The saving is
the difference between the network and the fastest classical method that is as accurate, one thread each. Where none is
on the network's input, the method sees a finer one. The inversion is the only method for its problem, and less exact.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import physics.burgers
import physics.darcy
from benchmarks.tables.classical.pareto import Point
from benchmarks.tables.classical.summary import INVERSION
from training.evaluation import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from benchmarks.report.page import Table

GENERATED = 3  # fields that are timed
SAMPLERS: dict[str, Callable[[int], object]] = {
    "darcy": physics.darcy.sample,
    "darcy_inverse": physics.darcy.sample,
    "burgers": physics.burgers.sample,
}
HEADER = (
    "model",
    "input",
    "network error",
    "solver",
    "solver error",
    "data, min",
    "training, min",
    "solver ms",
    "network ms",
    "solves to repay",
)


@dataclass(frozen=True)
class Pair:
    """The seconds of one field and the mean relative L2 errors, by solver and by network."""

    model: str
    solver_name: str
    input: str
    solver: float
    network: float
    solver_error: float
    network_error: float


@dataclass(frozen=True)
class Balance:
    """The cost of a model and its saving, in seconds."""

    pair: Pair
    data: float
    training: float

    @property
    def solves(self) -> float | None:
        """The number of solves that repay the cost; None if the network is not faster."""
        saved = self.pair.solver - self.pair.network
        return (self.data + self.training) / saved if saved > 0 else None


def measure(checkpoints: Path, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Balance]:
    """Return the balance of every pair of network and solver.

    Args:
        checkpoints: The released models.
        first: The results of `pareto`.
        second: The results of `solvers`.
    """
    spent = {
        model: (generation(checkpoints / model, sample), training(checkpoints / model))
        for model, sample in SAMPLERS.items()
    }
    return [Balance(pair, *spent[pair.model]) for pair in (*equals(first), *inversions(second))]


def generation(checkpoint: Path, sample: Callable[[int], object]) -> float:
    """Return the seconds for the generation of the training fields, estimated from a few."""
    begun = time.process_time()
    for seed in range(GENERATED):
        sample(seed)
    each = (time.process_time() - begun) / GENERATED
    return each * int(card(checkpoint)["training"]["fields"])


def training(checkpoint: Path) -> float:
    """Return the seconds of the training."""
    return float(card(checkpoint)["training"]["seconds"])


def card(checkpoint: Path) -> dict[str, Any]:
    """Return the card of a released model."""
    found: dict[str, Any] = json.loads((checkpoint / "card.json").read_text())
    return found


def equals(first: Mapping[str, Any]) -> Iterator[Pair]:
    """Yield each network beside the fastest method that is as accurate, on the same input or on another one.

    A network that no measured method equals is left out: a quick run measures few methods.
    """
    points = [Point(**each) for each in first["points"]]
    for network in (each for each in points if each.method == "network"):
        others = [each for each in points if each.model == network.model and each.method != "network"]
        same = [each for each in others if each.error <= network.error and each.input == network.input]
        enough = same or [each for each in others if each.error <= network.error]
        if not enough:
            continue
        best = min(enough, key=lambda each: each.seconds)
        name = best.method if best.input == network.input else f"{best.method}, {best.input}"
        yield Pair(network.model, name, network.input, best.seconds, network.seconds, best.error, network.error)


def inversions(second: Mapping[str, Any]) -> Iterator[Pair]:
    """Yield the inverse model beside the inversion."""
    for row in second["solvers"]:
        if row["model"] == "darcy_inverse":
            yield Pair(
                model=row["model"],
                solver_name=INVERSION,
                input=row["input"],
                solver=row["solver_seconds"],
                network=row["network_seconds"],
                solver_error=row["solver_error"],
                network_error=row["network_error"],
            )


def document(found: list[Balance]) -> dict[str, Any]:
    """Return everything that was computed."""
    return {"balances": [asdict(each) | {"solves": each.solves} for each in found]}


def tables(found: list[Balance]) -> dict[str, Table]:
    """Return the page's table."""
    return {"breakeven": (HEADER, [row(each) for each in found])}


def row(each: Balance) -> tuple[str, ...]:
    """Return one pair's row."""
    pair = each.pair
    return (
        pair.model,
        pair.input,
        table.scientific(pair.network_error),
        pair.solver_name,
        table.scientific(pair.solver_error),
        f"{each.data / 60:.0f}",
        f"{each.training / 60:.0f}",
        f"{1e3 * pair.solver:.2g}" if pair.solver < 0.01 else f"{1e3 * pair.solver:.0f}",
        f"{1e3 * pair.network:.2g}" if pair.network < 0.01 else f"{1e3 * pair.network:.0f}",
        "never" if each.solves is None else f"{each.solves:,.0f}",
    )
