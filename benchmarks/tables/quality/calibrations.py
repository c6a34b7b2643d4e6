"""The tables of docs/quality.md: how the calibrations of the released models do on test fields and foreign ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchmarks.report import markdown
from training.evaluation import table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HEADER = ("model", "grid", "fields", "error below estimate", "mean estimate", "mean error", "outside")


def write_page(page: Path, checkpoints: Path) -> None:
    """Write both tables.

    Args:
        page: The page.
        checkpoints: The released models; their cards hold the figures.
    """
    cards = {path.parent.name: json.loads(path.read_text()) for path in sorted(checkpoints.glob("*/card.json"))}
    calibrated = {name: card for name, card in cards.items() if "calibration" in card}
    markdown.write(page, "calibration", HEADER, [row for each in calibrated.items() for row in rows(*each)])
    families = list(next(iter(calibrated.values()))["calibration"]["foreign"]) if calibrated else []
    markdown.write(page, "foreign", ("model", *families), [foreign_row(*each) for each in calibrated.items()])


def rows(name: str, card: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row per grid of a model."""
    return [
        (
            name,
            table.case_name(row),
            str(row["fields"]),
            *estimates(row),
            f"{row['outside']:.2f}",
        )
        for row in card["calibration"]["test"]
    ]


def estimates(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return how a grid's error estimates do; nothing for models of trajectories, whose frames have estimates."""
    if "coverage" not in row:
        return "", "", ""
    return f"{row['coverage']:.2f}", table.scientific(row["mean_estimate"]), table.scientific(row["mean_error"])


def foreign_row(name: str, card: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the shares that a model finds outside, per foreign family."""
    return (name, *(f"{share:.2f}" for share in card["calibration"]["foreign"].values()))
