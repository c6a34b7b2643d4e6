"""Generation of samples into an HDF5 file, on all cores or on a Ray cluster; an interrupted file is completed.

Sample i of a stream is drawn from a random stream of its own, spawned from (seed, problem, mesh, stream, i). It is the
same whichever process computes it, however often the work was interrupted, and however many samples were requested.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import h5py
import numpy as np
from filelock import FileLock
from tqdm import tqdm

from training.data import published, store
from training.data.pools import ALL_CORES, Pool
from training.data.store import Array, Layout
from training.files import replacing
from training.problems.problem import Problem
from training.user_error import UserError

VERSION = 1
"""Raised whenever the same seed would give other samples."""

LINE_SECONDS = 10.0
"""Between two lines of progress where there is no terminal."""

STREAMS = ("test", "train")  # the short one first: a file that is being filled can soon be used


@dataclass(frozen=True)
class Request:
    """Which samples are requested.

    Attributes:
        problem: The problem. Where it uses the samples of another one, that one's file is made.
        mesh: Points per axis of the stored fields; the benchmarks have 421 and 8192.
        train: Training samples.
        test: Test samples, drawn from other random streams.
        seed: Seed of all random streams.
        validation: Validation samples. They follow the training samples in the same stream, so a stored file serves
            every way of dividing its stream.
    """

    problem: Problem
    mesh: int
    train: int
    test: int
    seed: int
    validation: int = 0

    @property
    def stored(self) -> dict[str, int]:
        """How many samples of each stored stream are requested."""
        return {"train": self.train + self.validation, "test": self.test}

    def __post_init__(self) -> None:
        if self.mesh < 2 or min(self.train, self.validation, self.test, self.seed) < 0:
            raise UserError(
                f"expected at least 2 mesh points and no negative number but got {self.mesh} points, {self.stored}, "
                f"seed {self.seed}"
            )


def prepare(request: Request, folder: Path, pool: Pool = ALL_CORES, progress: bool = True) -> Path:
    """Make or complete the file that holds the requested samples.

    Published samples are used where the problem has some for the requested mesh. Otherwise samples are computed. A file
    is kept per problem, mesh and seed, and extended when more samples are requested.

    Args:
        request: The samples.
        folder: Where the file is, or is made.
        pool: Where samples are computed.
        progress: Show a bar.

    Returns:
        The file's path.

    Raises:
        MissingPartError: The problem has neither a sampler nor published samples.
        ValueError: A file of that name is from another seed, mesh or version, or published files hold too little.
    """
    folder.mkdir(parents=True, exist_ok=True)
    problem, mesh = request.problem.source, request.mesh
    request = replace(request, problem=problem)
    if problem.published is not None and problem.published.available(mesh):
        path = folder / f"{problem.name}-{mesh}-published.h5"
        with _alone(path):
            published.convert(problem, problem.published, mesh, request.stored, path)
        return path
    path = folder / f"{problem.name}-{mesh}-seed{request.seed}.h5"
    problem.require_sampler()
    with _alone(path):
        _make_room(request, path)
        _fill(request, path, pool, progress)
    return path


def draw(request: Request, stream: str, index: int) -> dict[str, Array]:
    """Compute one sample.

    Args:
        request: What is generated.
        stream: `train` or `test`.
        index: The sample's number in the stream.

    Returns:
        Inputs, parameters and outputs by name, float32.
    """
    key = (*request.problem.name.encode(), request.mesh, STREAMS.index(stream), index)
    fields = request.problem.sample(np.random.SeedSequence(request.seed, spawn_key=key), request.mesh)
    return {name: np.asarray(field, dtype=np.float32) for name, field in fields.items()}


def _make_room(request: Request, path: Path) -> None:
    wanted = request.stored
    if not path.exists():
        with replacing(path) as aside:
            store.create(aside, _layout(request, wanted))
        return
    with store.opened(path) as file:
        _check(request, file, path)
        room = store.room(file)
        if any(room[stream] < wanted[stream] for stream in wanted):
            larger = {stream: max(room[stream], wanted[stream]) for stream in wanted}
            with replacing(path) as aside:
                store.create(aside, _layout(request, larger), source=file)


def _layout(request: Request, counts: dict[str, int]) -> Layout:
    generated: dict[str, str | int | float] = {
        "provenance": "regenerated",
        "seed": request.seed,
        "version": VERSION,
    }
    attributes = generated | dict(request.problem.attributes(request.mesh))
    return Layout(request.problem.description, request.mesh, counts, attributes)


def _check(request: Request, file: h5py.File, path: Path) -> None:
    expected = {"problem": request.problem.name, "mesh": request.mesh, "seed": request.seed, "version": VERSION}
    for name, value in expected.items():
        if (found := file.attrs.get(name)) != value:
            raise UserError(f"expected {name} {value} but found {found} in {path}: move it away or use another folder")


def _fill(request: Request, path: Path, pool: Pool, progress: bool) -> None:
    with store.opened(path, "r+") as file:
        jobs = [(stream, i) for stream in STREAMS for i in store.missing(file, stream, request.stored[stream])]
        if not jobs:
            return
        name = f"{request.problem.name} {request.mesh}"
        pace = 0.1 if sys.stderr.isatty() else LINE_SECONDS
        bar = tqdm(total=len(jobs), desc=name, unit="field", mininterval=pace, disable=not progress)
        with bar:
            for (stream, index), fields in pool.completed(partial(_draw_job, request), jobs):
                store.write(file, stream, index, fields)
                bar.update()


def _draw_job(request: Request, job: tuple[str, int]) -> dict[str, Array]:
    return draw(request, *job)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process prepares the same file; the system frees the lock of one that is killed."""
    with FileLock(path.with_name(path.name + ".lock")):
        yield
