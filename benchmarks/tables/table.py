"""What a table of the documentation is, how it is found by its name, and how its cells are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import Row
from training.evaluation.rows import case_name, scientific

ROOT = Path(__file__).parents[2]
DOCS, CHECKPOINTS = ROOT / "docs", ROOT / "checkpoints"
README = "summary"  # the table of the README, a part of another one

Cells = Iterable[Sequence[str]]
Make = Callable[[Any], Cells]


class Table(NamedTuple):
    """A table: its title, header and cells, made from a file of results or, without one, from the cards."""

    title: str
    file: str
    header: tuple[str, ...]
    cells: Make


TABLES: dict[str, Table] = {}


def made_of(name: str, file: str, title: str, header: str) -> Callable[[Make], Make]:
    """Add a table by its name: its cells are those that the function makes of the results in a file of `docs`."""

    def added(cells: Make) -> Make:
        TABLES[name] = Table(title, file, tuple(header.split(" | ")), cells)
        return cells

    return added


def markdown(header: Sequence[str], cells: Cells) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *cells]
    return "\n".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |" for line in lines) + "\n"


def uncertain(mean: float, error: float | None, digits: int = 1) -> str:
    """Return a mean with its standard error where it is known."""
    return f"{mean:.{digits}e}" + ("" if error is None else f" ± {error:.0e}")


def precise(mean: float, error: float | None) -> str:
    """Return a mean with three digits, as cards have it, and its standard error where it is known.

    Example:
        >>> precise(2.441e-3, 1.23e-4), precise(2.441e-3, None)
        ('2.44e-3 ± 1e-4', '2.44e-3')
    """
    return scientific(mean) + ("" if error is None else f" ± {error:.0e}".replace("e-0", "e-"))


def milliseconds(seconds: float) -> str:
    """Return milliseconds with two digits, or without decimals and with a separator of thousands."""
    return f"{1e3 * seconds:,.0f}" if seconds >= 0.01 else f"{1e3 * seconds:.2g}"


def square(points: int) -> str:
    """Return a grid of as many points along both axes."""
    return f"{points} x {points}"


def cards() -> dict[str, Any]:
    """Return the cards of the released models by name."""
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(CHECKPOINTS.glob("*/card.json"))}


def case(row: Row) -> str:
    """Return the grid of a card's row, and the noise, source or conditions where there were any."""
    found = case_name({name: value for name, value in row.items() if name != "frames"})
    return f"{found}, which is the worst" if "frame" in row else found
