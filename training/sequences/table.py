"""Takes a card's accuracies, lays them out for reading."""

from __future__ import annotations

from typing import Any

from rich.table import Table


def rich_table(card: dict[str, list[dict[str, Any]]], title: str) -> Table:
    """Give the accuracy on each split, that of always saying the commonest label beside it."""
    table = Table("split", "sequences", "mean length", "accuracy", "commonest label", "cross-entropy", title=title)
    for row in card["accuracy"]:
        shares = (f"{row[key]:.2%}" for key in ("accuracy", "majority"))
        table.add_row(
            row["split"], str(row["sequences"]), str(row["mean_length"]), *shares, f"{row['cross_entropy']:.3f}"
        )
    return table
