"""What all parts of a command share with its user: errors to correct, names to look up, and progress.

Errors advise commands as they have to be typed. Objects are found by the names that users write: one per file of a
package of this project, and those that installed packages add by entry points. Progress on standard error is a bar in a
terminal, and lines of text where there is none.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

ROOT = Path(__file__).resolve().parents[1]


class UserError(ValueError):
    """A mistake in what the user passed: commands print its message as one line, without a traceback."""


def typed(*words: str | Path) -> str:
    """Write a command that can be pasted in the folder of the repository, whatever its paths hold."""
    ours = (ROOT / ".venv").is_dir() and Path(sys.prefix).samefile(ROOT / ".venv")
    python = ".venv/bin/python" if ours else sys.executable
    return shlex.join([python, "-m", "training", *(str(located(each)) for each in words)])


def located(word: str | Path) -> str | Path:
    """Return a path from the folder of the repository, absolute where it lies elsewhere; other words as they are."""
    if isinstance(word, str):
        return word
    found = word.resolve()
    return found.relative_to(ROOT) if found.is_relative_to(ROOT) else found


# Progress


LINE_SECONDS = 10.0  # between two lines where there is no terminal
DRAWN_SECONDS = 0.2  # between two drawings of a bar


def in_terminal() -> bool:
    """Return whether standard error is a terminal that can redraw a line, which `TERM=dumb` cannot."""
    from rich.console import Console  # noqa: PLC0415 -- as below

    return sys.stderr.isatty() and Console(stderr=True).is_interactive


class Bar:
    """A bar in the terminal, as wide as the terminal: a name, the bar, its share, a text and the time that is left.

    It is drawn by its caller's thread: processes that the caller forks meanwhile inherit no lock.
    """

    def __init__(self, name: str, total: float, done: float = 0.0) -> None:
        from rich.console import Console  # noqa: PLC0415 -- the environments of the benchmarks' networks have no rich
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.table import Column  # noqa: PLC0415

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


# Named objects


Item = TypeVar("Item")


class UnknownNameError(UserError):
    """No object has the requested name; the message lists the known names."""


def lookup(table: Mapping[str, Item], name: str, noun: str) -> Item:
    """Return the entry of a table of objects by name; `noun` says what one is called in the error message.

    Raises:
        UnknownNameError: The table has no such name.
    """
    if name not in table:
        raise UnknownNameError(f"expected a {noun} among {', '.join(table)} but got {name!r}")
    return table[name]


@dataclass(frozen=True)
class Registry(Generic[Item]):
    """Find objects by name; all modules and entry points are loaded when an object is not in a module of its name."""

    noun: str  # what one object is called in error messages, such as "problem"
    kind: type[Item]  # the class of the objects
    package: str  # its modules are searched; those without `attribute` are skipped
    # The module variable that holds the object, or a tuple of several. The attribute `name` of an object is the name it
    # is found by.
    attribute: str
    group: str  # the entry point group that other packages use

    def __getitem__(self, name: str) -> Item:
        """Return the object of that name; where a module of the package is called so, no other is imported.

        Raises:
            UnknownNameError: There is none.
        """
        found = self._called(name)
        return lookup(self.items, name, self.noun) if found is None else found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (self._called(name) is not None or name in self.items)

    def _called(self, name: str) -> Item | None:
        module = f"{self.package}.{name.replace('-', '_')}"
        if name.replace("-", "_").isidentifier():
            held = getattr(import_module(module), self.attribute, ()) if find_spec(module) is not None else ()
            for item in held if isinstance(held, tuple) else (held,):
                if isinstance(item, self.kind) and getattr(item, "name", None) == name:
                    return item
        return None

    def listed(self, name: str) -> bool:
        """Return whether another package has an entry point of that name; it is not imported."""
        return any(entry.name == name for entry in entry_points(group=self.group))

    def __iter__(self) -> Iterator[str]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def items(self) -> dict[str, Item]:
        """All objects by name: first those of the package, then those of other packages.

        Raises:
            TypeError: An object is not of the registry's class.
            ValueError: Two objects have one name.
        """
        found: dict[str, Item] = {}
        for source, item in (*self._built_in(), *self._installed()):
            if not isinstance(item, self.kind):
                raise TypeError(f"{source}: expected a {self.kind.__name__} but found {type(item).__name__}")
            name = str(getattr(item, "name"))  # noqa: B009 -- a protocol of one attribute would say no more
            if name in found:
                raise ValueError(f"{source}: there already is a {self.noun} named {name!r}")
            found[name] = item
        return found

    def _built_in(self) -> Iterator[tuple[str, object]]:
        for entry in iter_modules(import_module(self.package).__path__, f"{self.package}."):
            module = import_module(entry.name)
            found = getattr(module, self.attribute, ())
            yield from ((entry.name, item) for item in (found if isinstance(found, tuple) else (found,)))

    def _installed(self) -> Iterator[tuple[str, object]]:
        for entry in sorted(entry_points(group=self.group)):
            yield f"entry point {entry.name!r} of {self.group}", entry.load()
