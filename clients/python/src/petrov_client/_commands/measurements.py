"""The measurements of a model's card as tables: errors of the model, by frame too, and of the solver; accuracies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

EDGES, GAP = 2, 2  # characters beside a table, and between two columns
#: Tables of a card, and what they are called here.
TITLES = {
    "errors": "Errors",
    "rollout": "Errors by frame",
    "classical": "Classical solver",
    "accuracy": "Accuracy",
}
#: Keys of a card whose column needs another heading.
HEADINGS = {"milliseconds": "ms", "milliseconds_of_8": "ms of 8"}
#: Keys of a card that say what a row was measured on.
MEASURED_ON = ("grid", "noise", "split", "frame", "time")
#: Keys of a card that are the same sentence in every row.
SENTENCES = frozenset({"solver", "method"})
CONDITIONS = "conditions"  # the key of a card that is the same sentence in some rows, which are a table of their own


def empty_table(*columns: str, **options: Any) -> Table:
    """Return a table in the style of all tables, with headings and without rows."""
    return Table(*columns, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False, **options)


def measured(card: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Yield the tables of a card: one for each of their conditions, and the sentences that hold for all rows."""
    for key, title in TITLES.items():
        rows = card.get(key) or []
        if rows and key == "rollout":
            rows = _doubling(rows)
        for conditions in dict.fromkeys(row.get(CONDITIONS, "") for row in rows):
            chosen = [row for row in rows if row.get(CONDITIONS, "") == conditions]
            yield Measurements(escape(f"{title}, {conditions}" if conditions else title), chosen)
        yield from (Text(f"{name}: {text}") for row in rows[:1] for name, text in row.items() if name in SENTENCES)


def _doubling(frames: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the first, second, fourth, eighth frame and so on, and the last one."""
    positions = {2**power - 1 for power in range(len(frames).bit_length())} | {len(frames) - 1}
    return [frames[position] for position in sorted(positions)]


class Measurements:
    """A table in as many parts as the console is too narrow for; each begins with what the rows were measured on.

    Args:
        title: Its title, as markup.
        rows: Its rows, of which each may have columns of its own.
    """

    def __init__(self, title: str, rows: list[Mapping[str, Any]]) -> None:
        keys = dict.fromkeys(key for row in rows for key in row if key not in {*SENTENCES, CONDITIONS})
        lead = [key for key in MEASURED_ON if key in keys]
        self._title, self._columns = title, _columns(rows, [*lead, *(key for key in keys if key not in lead)])
        self._lead, self._others = list(self._columns)[: len(lead)], list(self._columns)[len(lead) :]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the parts."""
        for position, part in enumerate(self._parts(options.max_width - EDGES)):
            table = empty_table(title=None if position else self._title, padding=(0, 1, 0, 0))
            for heading in part:
                table.add_column(escape(heading))
            for cells in zip(*(self._columns[heading] for heading in part), strict=True):
                table.add_row(*map(escape, cells))
            yield table

    def _parts(self, room: int) -> Iterable[list[str]]:
        """Yield the headings of each part."""
        widths = {heading: GAP + max(map(len, [*heading.split(), *cells])) for heading, cells in self._columns.items()}
        free = room - sum(widths[heading] for heading in self._lead)
        part, left = list[str](), free
        for heading in self._others:
            if widths[heading] > left and part:
                yield [*self._lead, *part]
                part, left = [], free
            part.append(heading)
            left -= widths[heading]
        yield [*self._lead, *part]


def _columns(rows: list[Mapping[str, Any]], keys: Iterable[str]) -> dict[str, list[str]]:
    """Return the cells of columns by their headings, which break at every space: rich might cut a word instead."""
    headings = {key: HEADINGS.get(key, key.replace("_", " ")).replace(" ", "\n") for key in keys}
    return {heading: [_text(row.get(key, "")) for row in rows] for key, heading in headings.items()}


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return " x ".join(map(str, value)) if isinstance(value, list) else str(value)
