"""For the eye: takes a record, gives rich tables of what is memorised, a column for everything that is varied."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.table import Table

from training.memorisation.curves import AXES, Point, curves, floors, height
from training.memorisation.record import Record
from training.memorisation.trial import Row


def tables(record: Record) -> Iterator[Table]:
    """Give the labels and whole sequences that are right, or the errors; and what memory costs in parameters."""
    yield lay_out(record, "error" if record.experiment == "function" else "labels memorised", height)
    if record.experiment != "function":
        yield lay_out(record, "sequences memorised whole", lambda row: row.sequences)
    if record.experiment == "entities":
        yield lay_out(record, "words inside entities memorised", lambda row: row.entities or 0.0)
    if record.experiment == "width":
        yield smallest_table(record.rows)


def lay_out(record: Record, title: str, value: Callable[[Row], float]) -> Table:
    """Give curves as rows: means of all seeds in percent, with the least and the largest where they differ."""
    found = curves(record.experiment, record.rows, value) | (floors(record) if value is height else {})
    places = sorted({point.x for points in found.values() for point in points})
    table = Table(AXES[record.experiment].name, *map(str, places), title=f"{record.experiment}: {title}, %")
    for label, points in found.items():
        known = {point.x: cell(point) for point in points}
        table.add_row(label, *(known.get(x, "") for x in places))
    return table


def cell(point: Point) -> str:
    """Give the mean and the range."""
    low, high = min(point.values), max(point.values)
    return f"{100 * point.mean:.1f}" + (f" ({100 * low:.0f}-{100 * high:.0f})" if low < high else "")


def smallest_table(rows: Sequence[Row]) -> Table:
    """Give the smallest network by pairs."""
    table = Table("pairs", "parameters", "parameters a pair", title="width: smallest network that memorises all pairs")
    for pairs, parameters in smallest(rows).items():
        table.add_row(str(pairs), *((str(parameters), f"{parameters / pairs:.1f}") if parameters else ("-", "-")))
    return table


def smallest(rows: Sequence[Row]) -> dict[int, int | None]:
    """Give the parameters of the smallest network that memorised all pairs with every seed, by their number."""
    lost = {(row.pairs, row.parameters) for row in rows if row.tokens < 1}
    kept = sorted({(row.pairs, row.parameters) for row in rows} - lost)
    return {pairs: next((p for n, p in kept if n == pairs), None) for pairs in sorted({row.pairs for row in rows})}
