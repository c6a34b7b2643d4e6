"""Progress of a long batch: a bar, or a function of (fields done, fields in all)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

Progress = bool | Callable[[int, int], None]
Advance = Callable[[int], object]


@contextmanager
def reporting(progress: Progress, title: str, total: int) -> Iterator[Advance]:
    """Yield a function to call with the number of fields that were just computed.

    Args:
        progress: False for no report, True for a bar, or a function of (fields done, fields in all).
        title: The title of the bar.
        total: The number of fields in all.

    Raises:
        ModuleNotFoundError: A bar is requested, and neither tqdm nor rich is installed.
    """
    if progress is False:
        yield lambda _count: None
    elif callable(progress):
        yield _Counter(progress, total).advance
    else:
        with _bar(title, total) as advance:
            yield advance


class _Counter:
    def __init__(self, report: Callable[[int, int], None], total: int) -> None:
        self._report, self._total, self._done = report, total, 0

    def advance(self, count: int) -> None:
        self._done += count
        self._report(self._done, self._total)


@contextmanager
def _bar(title: str, total: int) -> Iterator[Advance]:
    if find_spec("tqdm"):
        from tqdm.auto import tqdm  # noqa: PLC0415  optional

        with tqdm(desc=title, total=total, unit="field") as bar:
            yield bar.update
    elif find_spec("rich"):
        from rich.console import Console  # noqa: PLC0415  optional
        from rich.progress import Progress as RichProgress  # noqa: PLC0415  optional

        with RichProgress(console=Console(stderr=True)) as display:
            task = display.add_task(title, total=total)
            yield lambda count: display.advance(task, count)
    else:
        raise ModuleNotFoundError("a progress bar needs tqdm or rich: pip install rich")
