"""The table of the training step: time and memory of the paper recipes, beside the reference implementation.

A step is forward, the published loss, backward, clipping and the optimiser, on random fields. The reference's attention
dropout is always on, while the recipes of this project switch it off. A second row removes it from the reference, which
shows the cost of its random numbers. The last row is a step of the released network, with its own loss.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.baselines.interleaving import Measured, Side, interleave

if TYPE_CHECKING:
    from benchmarks.report.page import Table

#: The reference's examples, and their published batches.
EXAMPLES = {"darcy": 4, "darcy_inverse": 4, "burgers_galerkin": 8, "burgers_fourier": 8}
QUICK_EXAMPLES = ("darcy",)
ROUNDS, QUICK_ROUNDS = 3, 1
REFERENCE, QUIET = "reference", "reference, without attention dropout"
PETROV, RELEASED = "Petrov", "Petrov, released network"
HEADER = (
    "recipe",
    "batch",
    "network",
    "s per step",
    "speed relative to the reference",
    "peak MiB",
    "share of the reference's",
)


def measure(*, quick: bool) -> dict[str, list[Measured]]:
    """Measure the steps of all sides, interleaved, example by example."""
    examples = {name: EXAMPLES[name] for name in (QUICK_EXAMPLES if quick else EXAMPLES)}
    with tempfile.TemporaryDirectory() as folder:
        return {
            name: interleave(sides(name, batch), QUICK_ROUNDS if quick else ROUNDS, Path(folder))
            for name, batch in examples.items()
        }


def sides(example: str, batch: int) -> list[Side]:
    """Return the sides: the reference, with and without its attention dropout, and the networks of this project."""
    common = {"example": example, "batch": batch}
    return [
        Side(REFERENCE, "benchmarks.baselines.subjects.reference:Step", "reference", common),
        Side(QUIET, "benchmarks.baselines.subjects.reference:Step", "reference", common | {"quiet": True}),
        Side(PETROV, "benchmarks.baselines.subjects.petrov:Step", arguments=common),
        Side(RELEASED, "benchmarks.baselines.subjects.petrov:ReleasedStep", arguments=common),
    ]


def document(found: dict[str, list[Measured]]) -> dict[str, Any]:
    """Return everything that was measured."""
    return {"steps": {name: [side.document() for side in sides] for name, sides in found.items()}}


def tables(found: dict[str, list[Measured]]) -> dict[str, Table]:
    """Return the page's table."""
    return {"steps": (HEADER, [row for name, sides in found.items() for row in rows(name, sides)])}


def rows(example: str, found: list[Measured]) -> list[tuple[str, ...]]:
    """Return a row per side of an example."""
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
