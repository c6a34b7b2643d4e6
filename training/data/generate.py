"""Takes a request for samples, gives the HDF5 file that holds them: computed on all cores, completed if interrupted.

Sample i of a split is drawn from a stream of its own, spawned from (seed, problem, mesh, split, i): it is the same
whoever computes it, however often the work was interrupted, and however many samples were asked for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fcntl import LOCK_EX, flock
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from physics import burgers, darcy, poisson
from training.data import neuralop, published, store
from training.data.store import Array, Layout
from training.problems.problem import PROBLEMS

VERSION = 1
"""Raised whenever the same seed would give other samples."""

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]

SAMPLERS: dict[str, Callable[[np.random.SeedSequence, int], Pair]] = {
    "darcy": darcy.sample,
    "burgers": burgers.sample,
    "poisson": poisson.sample,
}
STREAMS = ("test", "train")  # the short one first: a file that is being filled can soon be used


@dataclass(frozen=True)
class Request:
    """Which samples are wanted.

    Attributes:
        problem: "darcy", "burgers", "poisson", or one that is served by the samples of another (`store.SOURCES`).
        mesh: Points per axis of the stored fields; the benchmarks have 421 and 8192.
        train: Training samples.
        test: Test samples, drawn from other streams.
        seed: Seed of all streams.
        validation: Validation samples. They follow the training samples in the same stream, so a stored file serves
            every way of dividing its stream.
    """

    problem: str
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
        known = (*SAMPLERS, neuralop.PROBLEM)
        if store.source(self.problem) not in known:
            raise ValueError(f"expected one of {', '.join(known)} but got {self.problem!r} for problem")
        if self.mesh < 2 or min(self.train, self.validation, self.test, self.seed) < 0:
            raise ValueError(f"expected at least 2 mesh points and no negative number but got {self}")


def prepare(request: Request, folder: Path, workers: int | None = None, progress: bool = True) -> Path:
    """Make or complete the file that holds the requested samples.

    The published files are used if the environment variable DATA_PATH names a folder that holds them with the wanted
    mesh. Otherwise samples are computed; a file is kept for each problem, mesh and seed, and extended when more are
    asked for.

    Args:
        request: The samples.
        folder: Where the file is, or is made.
        workers: Processes; by default one for each core. Each starts by importing the program's main module, which
            therefore has to be guarded by `if __name__ == "__main__"`.
        progress: Show a bar.

    Returns:
        The file's path.

    Raises:
        ValueError: a file of that name is from another seed, mesh or version, or a published one holds too little.
    """
    folder.mkdir(parents=True, exist_ok=True)
    request = replace(request, problem=store.source(request.problem))
    if request.problem == neuralop.PROBLEM:
        path = folder / f"{request.problem}-published.h5"
        with _alone(path):
            neuralop.convert(path)
        return path
    if files := published.find(request.problem, request.mesh):
        path = folder / f"{request.problem}-{request.mesh}-published.h5"
        with _alone(path):
            published.convert(files, request.mesh, request.stored, path)
        return path
    path = folder / f"{request.problem}-{request.mesh}-seed{request.seed}.h5"
    with _alone(path):
        _make_room(request, path)
        _fill(request, path, workers or os.cpu_count() or 1, progress)
    return path


def draw(request: Request, split: str, index: int) -> tuple[Array, Array]:
    """Compute one sample."""
    key = (*request.problem.encode(), request.mesh, STREAMS.index(split), index)
    inputs, outputs = SAMPLERS[request.problem](np.random.SeedSequence(request.seed, spawn_key=key), request.mesh)
    return inputs.astype(np.float32), outputs.astype(np.float32)


def _make_room(request: Request, path: Path) -> None:
    wanted = request.stored
    if not path.exists():
        with store.replacing(path) as aside:
            store.create(aside, _layout(request, wanted))
        return
    with store.opened(path) as file:
        _check(request, file, path)
        room = store.room(file)
        if any(room[split] < wanted[split] for split in wanted):
            larger = {split: max(room[split], wanted[split]) for split in wanted}
            with store.replacing(path) as aside:
                store.create(aside, _layout(request, larger), source=file)


def _layout(request: Request, counts: dict[str, int]) -> Layout:
    attributes: dict[str, str | int | float] = {"provenance": "regenerated", "seed": request.seed, "version": VERSION}
    match request.problem:
        case "burgers":
            attributes |= {"viscosity": burgers.VISCOSITY, "points": f"x_i = i/{request.mesh}"}
        case "poisson":
            attributes |= {"points": f"x_i = i/{request.mesh - 1} on each axis, walls included"}
        case _:
            attributes |= {"points": f"x_i = (i + 1/2)/{request.mesh} on each axis: cell centres"}
    return Layout(PROBLEMS[request.problem], request.mesh, counts, attributes)


def _check(request: Request, file: h5py.File, path: Path) -> None:
    expected = {"problem": request.problem, "mesh": request.mesh, "seed": request.seed, "version": VERSION}
    for name, value in expected.items():
        if (found := file.attrs.get(name)) != value:
            raise ValueError(f"expected {name} {value} but found {found} in {path}: move it away or use another folder")


def _fill(request: Request, path: Path, workers: int, progress: bool) -> None:
    with store.opened(path, "r+") as file:
        jobs = [(split, i) for split in STREAMS for i in store.missing(file, split, request.stored[split])]
        if not jobs:
            return
        bar = tqdm(total=len(jobs), desc=f"{request.problem} {request.mesh}", unit="field", disable=not progress)
        with bar, _pool(min(workers, len(jobs))) as pool:
            futures = {pool.submit(draw, request, *job): job for job in jobs}
            for future in as_completed(futures):
                split, index = futures.pop(future)
                store.write(file, split, index, future.result())
                bar.update()


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    # Fresh processes, because the threads of a forked one may hold locks; one thread each, so that they do not compete.
    with (
        _environment(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")),
        ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_follow_parent) as pool,
    ):
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _follow_parent() -> None:
    """End this worker when its parent does: one that is killed cannot tell its workers to stop."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process prepares the same file; the system frees the lock of one that is killed."""
    with path.with_name(path.name + ".lock").open("w") as lock:
        flock(lock, LOCK_EX)
        yield
