"""The rows of a card as a table: the network's row, and below it the baseline's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from training.evaluation.rows import beside

HEADER = ("grid", "solver", "fields", "L2", "+-", "median", "95 %", "worst", "gradient", "energy", "ms", "of 8")
DETAILS = frozenset({"+-", "median", "gradient", "of 8"})  # are left out where the terminal is narrow
WIDTH = 100  # of all columns
NETWORK, CLASSICAL = "network", "classical"


def rich_table(card: Mapping[str, Any], title: str, width: int = WIDTH) -> Table:
    """Lay out a card for a terminal, one section per grid and noise."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=0, show_edge=False)
    shown = [name for name in HEADER if width >= WIDTH or name not in DETAILS]
    for name in shown:
        table.add_column(name, no_wrap=True, justify="left" if name in HEADER[:2] else "right")
    for network, baseline in beside(card):
        for case, *rest in cells(network, baseline):
            texts = dict(zip(HEADER, (case.replace(", ", "\n"), *rest), strict=True))
            table.add_row(*(texts[name] for name in shown))
        table.add_section()
    return table


def card_cells(card: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return all rows of a card as cells under `HEADER`."""
    return [row for pair in beside(card) for row in cells(*pair)]


def cells(network: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    """Return the rows of one case."""
    rows = [(case_name(network), network.get("solver", NETWORK), *figures(network))]
    return rows if baseline is None else [*rows, ("", CLASSICAL, *figures(baseline))]


def case_name(row: Mapping[str, Any]) -> str:
    """Name the grid a row was measured on, and the noise, the varied source or the conditions where there were any."""
    noise = f", {100 * row['noise']:g} % noise" if row.get("noise") else ""
    source = f", {row['source']} source" if "source" in row else ""
    conditions = f", {row['conditions']}" if "conditions" in row else ""
    return " x ".join(map(str, row["grid"])) + noise + source + conditions


def figures(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row's figures; a card of an earlier release, or another problem, may lack some."""
    names = (
        "relative_l2",
        "standard_error",
        "median",
        "percentile_95",
        "worst",
        "relative_h1",
        "relative_energy",
    )
    errors = tuple(scientific(row.get(name)) for name in names)
    times = (milliseconds(row.get(name)) for name in ("milliseconds", "milliseconds_of_8"))
    return (str(row["fields"]), *errors, *times)


def scientific(value: float | None) -> str:
    """Write an error with three digits."""
    return "" if value is None else f"{value:.2e}".replace("e-0", "e-") if value else "0"


def milliseconds(value: float | None) -> str:
    """Write a time with as many digits as mean something."""
    return "" if value is None else f"{value:.{0 if value >= 10 else 1}f}"


def label_table(card: dict[str, list[dict[str, Any]]], title: str) -> Table:
    """Lay a card's accuracies out for reading, that of the commonest label beside them."""
    table = Table("split", "sequences", "mean length", "accuracy", "commonest label", "cross-entropy", title=title)
    for row in card["accuracy"]:
        shares = (f"{row[key]:.2%}" for key in ("accuracy", "majority"))
        table.add_row(
            row["split"], str(row["sequences"]), str(row["mean_length"]), *shares, f"{row['cross_entropy']:.3f}"
        )
    return table
