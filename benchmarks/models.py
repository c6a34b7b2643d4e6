"""What the released models are worth: takes the committed cards, gives errors by grid and the classical solver's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

HEADER = ("model", "grid", "test fields", "relative L2", "worst", "classical relative L2", "classical ms")


def rows(checkpoints: Path) -> list[tuple[str, ...]]:
    """Give a row for every released model and measured grid."""
    return [row for card in sorted(checkpoints.glob("*/card.json")) for row in card_rows(card)]


def card_rows(path: Path) -> list[tuple[str, ...]]:
    """Give the rows of one card."""
    card: dict[str, list[dict[str, Any]]] = json.loads(path.read_text())
    rivals = {place(row): row for row in card["classical"]}
    return [
        (
            path.parent.name,
            place(ours),
            str(ours["fields"]),
            f"{ours['relative_l2']:.2e}",
            f"{ours['worst']:.2e}",
            *rival(rivals.get(place(ours))),
        )
        for ours in card["errors"]
    ]


def place(row: dict[str, Any]) -> str:
    """Say on which grid a row was measured, and with how much noise if there was some."""
    noise = f", {100 * row['noise']:g} % noise" if row.get("noise") else ""
    return " x ".join(map(str, row["grid"])) + noise


def rival(row: dict[str, Any] | None) -> tuple[str, str]:
    """Give the classical solver's error and milliseconds, if it was asked."""
    return (f"{row['relative_l2']:.2e}", f"{row['milliseconds']:.0f}") if row else ("", "")
