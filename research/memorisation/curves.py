"""Curves of an experiment: figures over the varied quantity, with the seeds of each point together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from research.memorisation.record import Record
from research.memorisation.trial import NamedEntities, Row

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
    """Return the points of each curve from left to right, by the label of the curve.

    Args:
        experiment: Name of the experiment.
        rows: Its rows.
        value: The ordinate.
        label: Label of a row's curve; the experiment's own by default.
    """
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
