"""Table 2, a training step of the paper recipes: takes nothing, gives what the reference's costs and ours.

A step is forward, the published loss, backward, clipping and the optimiser, on random fields. The reference's attention
dropout is always on, ours is off by the recipes; a second row takes the reference's out, so that what its random
numbers cost is told apart from the rest. The last row is a step of the network that we release, with its own loss.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.turns import Measured, Side, take_turns

if TYPE_CHECKING:
    from benchmarks.page import Table

#: The reference's examples, and their published batches.
EXAMPLES = {"darcy": 4, "darcy_inverse": 4, "burgers_galerkin": 8, "burgers_fourier": 8}
QUICK_EXAMPLES = ("darcy",)
TURNS, QUICK_TURNS = 3, 1
REFERENCE, QUIET, OURS, RELEASED = "reference", "reference, attention dropout out", "ours", "ours, the released network"
HEADER = ("recipe", "batch", "who", "s a step", "reference's time over it", "peak MiB", "of the reference's")


def measure(*, quick: bool) -> dict[str, list[Measured]]:
    """Let both sides take their steps in turns, example by example."""
    examples = {name: EXAMPLES[name] for name in (QUICK_EXAMPLES if quick else EXAMPLES)}
    with tempfile.TemporaryDirectory() as folder:
        return {
            name: take_turns(sides(name, batch), QUICK_TURNS if quick else TURNS, Path(folder))
            for name, batch in examples.items()
        }


def sides(example: str, batch: int) -> list[Side]:
    """Give the reference, the reference without its attention dropout, ours, and the network that we release."""
    common = {"example": example, "batch": batch}
    return [
        Side(REFERENCE, "benchmarks.baselines.reference:Step", "reference", common),
        Side(QUIET, "benchmarks.baselines.reference:Step", "reference", common | {"quiet": True}),
        Side(OURS, "benchmarks.baselines.ours:Step", arguments=common),
        Side(RELEASED, "benchmarks.baselines.ours:ReleasedStep", arguments=common),
    ]


def document(found: dict[str, list[Measured]]) -> dict[str, Any]:
    """Give everything that was measured."""
    return {"steps": {name: [side.document() for side in sides] for name, sides in found.items()}}


def tables(found: dict[str, list[Measured]]) -> dict[str, Table]:
    """Lay out the page's table."""
    return {"steps": (HEADER, [row for name, sides in found.items() for row in rows(name, sides)])}


def rows(example: str, found: list[Measured]) -> list[tuple[str, ...]]:
    """Give a row for each side of an example."""
    reference = found[0]
    return [
        (
            example,
            f"{EXAMPLES[example]}",
            side.name,
            f"{side.seconds:.2f}",
            f"{side.times(reference):.2f}",
            f"{side.memory:.0f}",
            f"{side.memory / reference.memory:.0%}",
        )
        for side in found
    ]
