"""The turns of a race: trainings of its candidates to a share of their budget, in this process or on other machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from training.data.pools import Pool
from training.files import replacing
from training.fit.operator_workload import OperatorWorkload
from training.fit.processes import is_first
from training.fit.run_folder import RunFolder
from training.recipe import Recipe

Files = Mapping[str, bytes]
"""Contents of files by their paths in a folder."""


@dataclass(frozen=True)
class Turn:
    """What is trained, where, and how far."""

    name: str  # of the candidate
    recipe: Recipe
    run: RunFolder  # from whose state the training goes on
    until: float  # the share of the budget at which it pauses


@dataclass(frozen=True)
class TurnResult:
    """A turn that is over."""

    error: float  # on validation samples
    seconds: float


@dataclass(frozen=True)
class Trainer:
    """Train a candidate for a turn.

    Attributes:
        advance: Trains with the samples of a folder, and from the weights of another one if it is not None; returns
            the error on validation samples.
        data: The folder of the samples.
        init: The folder of an earlier model, instead of the one that the recipe names.
    """

    advance: Callable[[Turn, Path, Path | None], float]
    data: Path
    init: Path | None = None

    def __call__(self, turn: Turn) -> TurnResult:
        """Train, and return how it went."""
        began = time.perf_counter()
        error = self.advance(turn, self.data, self.init)
        return TurnResult(error, time.perf_counter() - began)


@dataclass(frozen=True)
class RemoteTurns(Pool):
    """Turns on machines that do not see the folders of this one: files travel with every turn, and come back."""

    pool: Pool

    def completed(self, work: Any, jobs: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Train all turns of `jobs` with the `Trainer` `work`, and yield each when its files are in its run."""
        if not jobs:
            return
        paths = sorted({path for turn in jobs for path in samples_of(turn.recipe, work.data)})
        samples = {path.name: path.read_bytes() for path in paths}
        packed = [(turn, contents(turn.run.path), warm_start_files(turn.recipe)) for turn in jobs]
        for (turn, *_), (ended, found) in self.pool.completed(partial(train_remotely, work, samples), packed):
            unpack(found, turn.run.path)
            for gone in contents(turn.run.path).keys() - found.keys():  # states that newer ones have replaced
                (turn.run.path / gone).unlink()
            yield turn, ended


def train_remotely(work: Trainer, samples: Files, job: tuple[Turn, Files, Files]) -> tuple[TurnResult, Files]:
    """Train in a folder of this machine; return how it went, and the files of the candidate."""
    turn, files, start = job
    with TemporaryDirectory() as folder:
        data, run, init = (Path(folder) / name for name in ("data", "run", "start"))
        for found, path in ((samples, data), (files, run), (start, init)):
            unpack(found, path)
        work = replace(work, data=data, init=init if start else None)
        return work(replace(turn, run=RunFolder(run))), contents(run)


def samples_of(recipe: Recipe, data: Path) -> list[Path]:
    """Return the files of samples that a training reads, made again where they are missing."""
    work = OperatorWorkload(recipe, data, progress=False)
    return [work.samples.path, *([work.coarse.path] if work.coarse else [])]


def warm_start_files(recipe: Recipe) -> Files:
    """Return the files of the earlier model that a training starts from; none where it starts anew."""
    return contents(Path(recipe.start.folder), "*") if recipe.start else {}


def contents(folder: Path, pattern: str = "**/*") -> dict[str, bytes]:
    """Return the files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob(pattern) if path.is_file()}


def unpack(files: Files, folder: Path) -> None:
    """Write files into a folder, each in one step, and those of a run in an order in which it can go on from some.

    The log is the first, as a training drops its rows of epochs that it repeats, and the recipe of a run that has begun
    the last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    run = RunFolder(folder)
    order = {run.metrics: 0, run.recipe: 2}
    for name, content in sorted(files.items(), key=lambda pair: order.get(folder / pair[0], 1)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with replacing(folder / name) as aside:
            aside.write_bytes(content)


def begin_copy(copy: RunFolder, recipe: Recipe, state: Path) -> None:
    """Have a candidate begin with the state and the log of another one, unless it has begun."""
    if not is_first() or copy.recipe.exists():
        return
    original = RunFolder(state.parent.parent)
    files = {f"{copy.state.name}/{state.name}": state.read_bytes(), copy.recipe.name: recipe.model_dump_json().encode()}
    unpack(files | ({copy.metrics.name: original.metrics.read_bytes()} if original.metrics.exists() else {}), copy.path)
