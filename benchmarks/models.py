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
    return [
        (
            path.parent.name,
            " x ".join(map(str, ours["grid"])),
            str(ours["fields"]),
            f"{ours['relative_l2']:.2e}",
            f"{ours['worst']:.2e}",
            f"{theirs['relative_l2']:.2e}",
            f"{theirs['milliseconds']:.0f}",
        )
        for ours, theirs in zip(card["errors"], card["classical"], strict=True)
    ]
