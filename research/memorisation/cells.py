"""Tables of an experiment, with one column per value of the varied quantity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.table import Table

from research.memorisation.curves import AXES, FUNCTIONS, Point, curves, floors, height
from research.memorisation.record import Record
from research.memorisation.trial import Row


class Cells(NamedTuple):
    """Title, header and rows of a table."""

    what: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def tables(record: Record) -> Iterator[Table]:
    """Return all tables of an experiment for a terminal."""
    for what, header, rows in cells(record):
        table = Table(*header, title=f"{record.experiment}: {what}")
        for row in rows:
            table.add_row(*row)
        yield table


def cells(record: Record) -> Iterator[Cells]:
    """Return all tables of an experiment."""
    function = record.experiment in FUNCTIONS
    yield lay_out(record, "error, %" if function else "labels memorised, %", height)
    if not function:
        yield lay_out(record, "sequences memorised whole, %", lambda row: row.sequences)
    if record.experiment == "entities":
        yield lay_out(record, "words inside entities memorised, %", lambda row: row.entities or 0.0)
    if record.experiment == "context":
        yield lay_out(record, "labels of new sentences, %", lambda row: row.unseen or 0.0)
    if record.experiment == "width":
        yield least(record.rows)


def lay_out(record: Record, what: str, value: Callable[[Row], float]) -> Cells:
    """Return curves as rows: means of all seeds in per cent, with least and greatest value where they differ.

    Args:
        record: The experiment.
        what: Title of the table.
        value: Figure of a row.
    """
    found = curves(record.experiment, record.rows, value) | (floors(record) if value is height else {})
    abscissae = sorted({point.x for points in found.values() for point in points})
    known = {(label, point.x): cell(point) for label, points in found.items() for point in points}
    rows = [(label, *(known.get((label, x), "") for x in abscissae)) for label in found]
    return Cells(what, (AXES[record.experiment].name, *map(str, abscissae)), rows)


def cell(point: Point) -> str:
    """Return mean and range of a point."""
    low, high = min(point.values), max(point.values)
    return f"{100 * point.mean:.1f}" + (f" ({100 * low:.0f}-{100 * high:.0f})" if low < high else "")


def least(rows: Sequence[Row]) -> Cells:
    """Return the smallest network by number of pairs: the theorem states that weights exist, so one seed suffices."""
    once, always = smallest(rows, any), smallest(rows, all)
    found = [
        (str(pairs), *(each for size in (once[pairs], always[pairs]) for each in shares(size, pairs))) for pairs in once
    ]
    header = ("pairs", "parameters, with some seed", "a pair", "parameters, with every seed", "a pair")
    return Cells("smallest network that memorises all pairs", header, found)


def shares(parameters: int | None, pairs: int) -> tuple[str, str]:
    """Return the number of parameters, and that per pair."""
    return (f"{parameters:,}", f"{parameters / pairs:.0f}") if parameters else ("-", "-")


def smallest(rows: Sequence[Row], enough: Callable[[Iterable[bool]], bool]) -> dict[int, int | None]:
    """Return the parameters of the smallest network that memorised all pairs with enough seeds, by number of pairs."""
    whole: dict[int, dict[int, list[bool]]] = {}
    for row in rows:
        whole.setdefault(row.pairs, {}).setdefault(row.parameters, []).append(row.tokens == 1)
    return {
        pairs: min((size for size, seeds in found.items() if enough(seeds)), default=None)
        for pairs, found in sorted(whole.items())
    }
