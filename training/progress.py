"""Progress on standard error: a bar in a terminal, and lines of text where there is none."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

LINE_SECONDS = 10.0  # between two lines where there is no terminal
DRAWN_SECONDS = 0.2  # between two drawings of a bar


def in_terminal() -> bool:
    """Return whether standard error is a terminal that can redraw a line, which `TERM=dumb` cannot."""
    return sys.stderr.isatty() and Console(stderr=True).is_interactive


class Bar:
    """A bar in the terminal, as wide as the terminal: a name, the bar, its share, a text and the time that is left.

    It is drawn by its caller's thread: processes that the caller forks meanwhile inherit no lock.
    """

    def __init__(self, name: str, total: float, done: float = 0.0) -> None:
        self.columns = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(None),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True, table_column=Column(min_width=5)),
            TextColumn("{task.fields[text]}", markup=False),
            console=Console(stderr=True),
            auto_refresh=False,
            expand=True,
        )
        self.task = self.columns.add_task(name, total=total, completed=done, text="")  # type: ignore[arg-type]
        self.drawn = 0.0
        self.columns.start()

    def show(self, *, force: bool = False, **changes: Any) -> None:
        """Change the keys of the bar (`completed`, `advance`, `text`), and draw it if it was not drawn just now."""
        now = time.monotonic()
        self.columns.update(self.task, **changes)
        if force or now - self.drawn > DRAWN_SECONDS:
            self.drawn = now
            self.columns.refresh()

    def close(self) -> None:
        """Draw the bar for the last time and leave it; the cursor is shown again."""
        self.columns.stop()


@contextmanager
def counted(name: str, total: int, unit: str, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Show how many of `total` units are done; call what is yielded with the number of those that were just done."""
    if not shown:
        yield lambda _: None
        return
    done, start = 0, time.monotonic()
    written = start
    bar = Bar(name, total) if in_terminal() else None

    def advance(count: int) -> None:
        nonlocal done, written
        done, now = done + count, time.monotonic()
        if bar is not None:
            bar.show(advance=count, text=f"{done} of {total} {unit}")
        elif done == total or now - written > LINE_SECONDS:
            written = now
            left = timedelta(seconds=round((now - start) * (total - done) / done))
            sys.stderr.write(f"{name}: {done} of {total} {unit}, {left} left\n")
            sys.stderr.flush()

    try:
        yield advance
    finally:
        if bar is not None:
            bar.close()
