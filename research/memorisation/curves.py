"""Curves and tables of an experiment: figures over the varied quantity, with the seeds of each point together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.table import Table

from research.memorisation.trials import NamedEntities, Record, Row

ALONE = "words without context"
FUNCTIONS = ("function", "universality", "order")  # experiments whose figure is the error of a function


class Point(NamedTuple):
    """Values of all seeds at one abscissa."""

    x: int
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean of all seeds."""
        return sum(self.values) / len(self.values)


class Axis(NamedTuple):
    """The varied quantity of an experiment: its name, its value in a row, and the label of the row's curve."""

    name: str
    x: Callable[[Row], int]
    label: Callable[[Row], str]


def data(name: str) -> Callable[[Row], int]:
    """Return a function that reads a number of the data."""
    return lambda row: int(getattr(row.trial.data, name))


def sizes(name: str) -> Callable[[Row], int]:
    """Return a function that reads a size of the network."""
    return lambda row: int(getattr(row.trial.network, name))


def form(row: Row) -> str:
    """Return the attention of a row."""
    return row.trial.form


def kind(row: Row) -> str:
    """Return the attention of a row without its rank."""
    return row.trial.form.partition(",")[0]


def kind_and_heads(row: Row) -> str:
    """Return the attention of a row without its rank, with its heads where there are several."""
    heads = row.trial.network.heads
    return f"{kind(row)}, {heads} heads" if heads > 1 else kind(row)


def positioned(row: Row) -> str:
    """Return whether a row's tokens hold their locations."""
    return f"{'with' if row.trial.positions else 'without'} positional encodings"


def corpus(row: Row) -> str:
    """Return the corpus of a row."""
    return row.trial.data.corpus if isinstance(row.trial.data, NamedEntities) else row.trial.data.kind


AXES = {
    "sequences": Axis("sequences", data("sequences"), form),
    "length": Axis("tokens of a sequence", data("length"), form),
    "words": Axis("words of the vocabulary", data("words"), form),
    "channels": Axis("features of a token", sizes("channels"), lambda row: f"{kind(row)}, rank 1"),
    "rank": Axis("rank", sizes("rank"), kind),
    "width": Axis("parameters", lambda row: row.parameters, lambda row: f"{row.pairs} pairs"),
    "counterexample": Axis("rank", sizes("rank"), kind_and_heads),
    "heads": Axis("heads", sizes("heads"), kind),
    "entities": Axis("sentences", data("sentences"), lambda row: f"{corpus(row)}: {form(row)}"),
    "context": Axis("sentences", data("sentences"), form),
    "function": Axis("width of the feed-forward nets", sizes("hidden"), form),
    "universality": Axis("heads", sizes("heads"), lambda row: f"nets of width {row.trial.network.hidden}"),
    "order": Axis("heads", sizes("heads"), positioned),
}


def curves(
    experiment: str, rows: Sequence[Row], value: Callable[[Row], float], label: Callable[[Row], str] | None = None
) -> dict[str, list[Point]]:
    """Return the points of each curve from left to right, by the label of the curve."""
    axis, found = AXES[experiment], dict[str, dict[int, list[float]]]()
    for row in rows:
        found.setdefault((label or axis.label)(row), {}).setdefault(axis.x(row), []).append(value(row))
    return {label: [Point(x, tuple(values)) for x, values in sorted(points.items())] for label, points in found.items()}


def floors(record: Record) -> dict[str, list[Point]]:
    """Return the accuracy without context; no curves where it does not depend on the abscissa."""
    if record.experiment in {*FUNCTIONS, "width"}:
        return {}
    return curves(record.experiment, record.rows, lambda row: row.alone, floor)


def floor(row: Row) -> str:
    """Return the label of the curve without context."""
    return f"{corpus(row)}: {ALONE}" if isinstance(row.trial.data, NamedEntities) else ALONE


def height(row: Row) -> float:
    """Return the figure of a row: the share of memorised labels, or the error of a function."""
    return row.tokens if row.error is None else row.error


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
    """Return curves as rows: means of all seeds in per cent, with least and greatest value where they differ."""
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
