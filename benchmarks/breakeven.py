"""Table 6, break-even: takes cards and the figures of tables 1 and 5, gives how many solves repay a model.

What was spent is the generation of the training fields, timed here on a few, and the training, as the card tells it;
what is saved is the difference of solver and network on the same field, one thread each.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import physics.burgers
import physics.darcy
from benchmarks import forward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from benchmarks.page import Table

GENERATED = 3  # fields that are timed
MAKERS: dict[str, Callable[[int], object]] = {
    "darcy": physics.darcy.sample,
    "darcy_inverse": physics.darcy.sample,
    "burgers": physics.burgers.sample,
}
HEADER = ("model", "beside", "input", "data, min", "training, min", "solver ms", "network ms", "solves to repay")


@dataclass(frozen=True)
class Pair:
    """Seconds of one field, by solver and by network."""

    model: str
    beside: str
    asked: str
    solver: float
    network: float


@dataclass(frozen=True)
class Balance:
    """What a model cost and what it saves, in seconds."""

    pair: Pair
    data: float
    training: float

    @property
    def solves(self) -> float | None:
        """How many repay; none where nothing is saved."""
        saved = self.pair.solver - self.pair.network
        return (self.data + self.training) / saved if saved > 0 else None


def measure(checkpoints: Path, first: Mapping[str, Any], fifth: Mapping[str, Any]) -> list[Balance]:
    """Balance every pair of tables 1 and 5."""
    spent = {
        model: (generation(checkpoints / model, make), training(checkpoints / model)) for model, make in MAKERS.items()
    }
    return [Balance(pair, *spent[pair.model]) for pair in (*solved(first), *answered(fifth))]


def generation(checkpoint: Path, make: Callable[[int], object]) -> float:
    """Give the seconds that the training fields took, from the time of a few."""
    begun = time.process_time()
    for seed in range(GENERATED):
        make(seed)
    each = (time.process_time() - begun) / GENERATED
    return each * int(card(checkpoint)["training"]["fields"])


def training(checkpoint: Path) -> float:
    """Give the seconds of the training."""
    return float(card(checkpoint)["training"]["seconds"])


def card(checkpoint: Path) -> dict[str, Any]:
    """Read what is known of a released model."""
    found: dict[str, Any] = json.loads((checkpoint / "card.json").read_text())
    return found


def solved(first: Mapping[str, Any]) -> Iterator[Pair]:
    """Give the released `darcy` beside every solver, one field at a time, on every grid."""
    for cell in (cell for cell in first["cells"] if cell["batch"] == 1):
        seconds = {side["name"]: side["seconds"] for side in cell["sides"]}
        for solver in (forward.LU, forward.AMG, forward.GRADIENTS):
            asked = f"{cell['grid']} x {cell['grid']}"
            yield Pair("darcy", solver, asked, seconds[solver], seconds[forward.RELEASED])


def answered(fifth: Mapping[str, Any]) -> Iterator[Pair]:
    """Give the other models beside their solvers."""
    names = {"darcy_inverse": "adjoint inversion", "burgers": "spectral integration"}
    for row in fifth["solvers"]:
        yield Pair(row["model"], names[row["model"]], row["asked"], row["solver_seconds"], row["network_seconds"])


def document(found: list[Balance]) -> dict[str, Any]:
    """Give everything that was balanced."""
    return {"balances": [asdict(each) | {"solves": each.solves} for each in found]}


def tables(found: list[Balance]) -> dict[str, Table]:
    """Lay out the page's table."""
    return {"breakeven": (HEADER, [row(each) for each in found])}


def row(each: Balance) -> tuple[str, ...]:
    """Give one pair's row."""
    pair = each.pair
    return (
        pair.model,
        pair.beside,
        pair.asked,
        f"{each.data / 60:.0f}",
        f"{each.training / 60:.0f}",
        f"{1e3 * pair.solver:.0f}",
        f"{1e3 * pair.network:.0f}",
        "never" if each.solves is None else f"{each.solves:,.0f}",
    )
