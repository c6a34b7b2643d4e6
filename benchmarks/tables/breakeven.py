"""The table of the break-even: the number of solves after which a model has repaid its cost.

The cost is the generation of the training fields, timed here on a few, and the training time of the card. The saving is
the difference between solver and network on the same field, one thread each.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import physics.burgers
import physics.darcy
from benchmarks.tables import forward

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
HEADER = ("model", "solver", "input", "data, min", "training, min", "solver ms", "network ms", "solves to repay")


@dataclass(frozen=True)
class Pair:
    """The seconds of one field, by solver and by network."""

    model: str
    solver_name: str
    input: str
    solver: float
    network: float


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
        first: The results of `forward`.
        second: The results of `solvers`.
    """
    spent = {
        model: (generation(checkpoints / model, sample), training(checkpoints / model))
        for model, sample in SAMPLERS.items()
    }
    return [Balance(pair, *spent[pair.model]) for pair in (*darcy_pairs(first), *other_pairs(second))]


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


def darcy_pairs(first: Mapping[str, Any]) -> Iterator[Pair]:
    """Yield the released `darcy` beside every solver, one field at a time, on every grid."""
    for cell in (cell for cell in first["cells"] if cell["batch"] == 1):
        seconds = {side["name"]: side["seconds"] for side in cell["sides"]}
        for solver in (forward.LU, forward.AMG, forward.GRADIENTS):
            grid = f"{cell['grid']} x {cell['grid']}"
            yield Pair("darcy", solver, grid, seconds[solver], seconds[forward.RELEASED])


def other_pairs(second: Mapping[str, Any]) -> Iterator[Pair]:
    """Yield the other models beside their solvers."""
    names = {"darcy_inverse": "adjoint inversion", "burgers": "spectral integration"}
    for row in second["solvers"]:
        yield Pair(row["model"], names[row["model"]], row["input"], row["solver_seconds"], row["network_seconds"])


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
        pair.solver_name,
        pair.input,
        f"{each.data / 60:.0f}",
        f"{each.training / 60:.0f}",
        f"{1e3 * pair.solver:.0f}",
        f"{1e3 * pair.network:.0f}",
        "never" if each.solves is None else f"{each.solves:,.0f}",
    )
