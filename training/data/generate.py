"""Samples that solvers of built-in problems make: a file is filled block by block, of one sample or of many.

`training.data.dataset` has the layout: an array per tensor, and `done`, which is 1 where the sample is there. A block
is what is computed at once and marked as done at once, so an interrupted run goes on after its last whole block.
Processes compute blocks in any order, and a sample is the same whichever of them does.

- Fields are drawn one by one. A file per problem, mesh and seed has the groups `train` and `test`. These are streams,
  from which as many samples are drawn as were requested: sample i of a stream has a random stream of its own, spawned
  from (seed, problem, mesh, stream, i), and is the same however many were requested. Published samples are converted
  once.
- Trajectories are followed `BLOCK` at a time from first states that are drawn together. Their file takes the place of a
  user's: it is checked and copied into prepared samples, and removed.

The program may be killed at any time while it writes samples. So changes of a file's structure happen in a copy that
replaces the file when it is whole. Filling a file changes numbers only, in space that is already allocated (hence no
compression), and samples are marked as done after their arrays have been handed to the system.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise, product
from math import prod
from pathlib import Path
from typing import Literal, NamedTuple

import h5py
import numpy as np
from pydantic import (
    NonNegativeInt,
    PositiveInt,
)

from schema.parts import Frozen, locations
from training.data.dataset import DONE
from training.data.new_file import new_hdf5
from training.data.pools import ALL_CORES, Pool, chosen
from training.data.prepare import named
from training.data.prepare import write as write_checked
from training.data.readers import DataFile, LazyArray
from training.files import expect_room, locked
from training.messages import UserError, counted
from training.problems.problem import Array, Problem, Published, Starts, Stream, Trajectories

BLOCK = 32  # trajectories that are solved together
VERSION = 1  # raised whenever the same seed would give other samples
WHOLE = "/"  # the group of samples that are divided by their numbers
STREAMS: tuple[Stream, ...] = ("test", "train")  # the short one first: a file that is being filled can soon be used


class DataConfig(Frozen):
    """Which samples to train on.

    `mesh` is the number of cells (points) per axis that the equation is solved on; `grids` are the points per axis of
    the strided fields the network is trained on, one grid per batch, drawn at random.
    """

    mesh: PositiveInt
    train: PositiveInt
    validation: NonNegativeInt  # samples for every decision, such as which epoch to keep
    test: PositiveInt  # samples that are read once, for the card
    grids: tuple[PositiveInt, ...]
    seed: int | None = None  # of the samples alone; the recipe's by default


class MeasuredSamples(Frozen):
    """The samples that a closed form is measured on."""

    mesh: PositiveInt  # points per axis of the reference solutions
    test: PositiveInt  # how many samples
    grids: tuple[PositiveInt, ...]  # points per axis of the inputs
    seed: int  # of the first sample; each of the others has the next one


@dataclass(frozen=True)
class Request:
    """Which samples are requested."""

    problem: Problem  # where it uses the samples of another one, that one's file is made
    mesh: int  # points per axis of the stored fields; the benchmarks have 421 and 8192
    train: int
    test: int  # test samples, drawn from other random streams
    seed: int  # seed of all random streams
    # Validation samples. They follow the training samples in the same stream, so a stored file serves every way of
    # dividing its stream.
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


class Block(NamedTuple):
    """Samples of a group that are computed together, by their numbers: from `start` up to `stop`."""

    group: str
    start: int
    stop: int


@dataclass(frozen=True)
class Store:
    """A file that is filled: where it lies, the samples that its groups have room for, and what it says of them."""

    name: str  # as progress is shown
    path: Path
    counts: Mapping[str, int]
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    tensors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # the attributes of each


def prepare(request: Request, folder: Path, pool: Pool | None = None, progress: bool = True) -> Path:
    """Make or complete the file that holds the requested samples.

    Published samples are used where the problem has some for the requested mesh. Otherwise samples are computed. A file
    is kept per problem, mesh and seed, and extended when more samples are requested. By default a Ray cluster computes
    them where RAY_ADDRESS names one, else all cores of this machine.

    Raises:
        MissingPartError: The problem has neither a sampler nor published samples.
        UserError: No samples are requested, or a file of that name is from another seed, mesh or version.
        ValueError: Published files hold too little.
    """
    if not any(request.stored.values()):
        raise UserError(f"expected samples of {request.problem.name} to be requested but got {request.stored}")
    problem, mesh = request.problem.source, request.mesh
    request = replace(request, problem=problem)
    published = problem.published if problem.published and problem.published.available(mesh) else None
    path = folder / f"{problem.name}-{mesh}-{'published' if published else f'seed{request.seed}'}.h5"
    if not published:
        problem.require_sampler()
    with locked(path):
        if published:
            convert(published, request, path)
            return path
        points = (problem.grid_points or locations(problem.description.axes)).format(mesh=mesh, intervals=mesh - 1)
        regenerated = {**identity(request), "provenance": "regenerated", "points": points, **dict(problem.constants)}
        store = store_of(request, path, regenerated)
        if path.exists():
            make_room(request, store)
        jobs = [block for stream in STREAMS for block in blocks(stream, request.stored[stream], 1)]
        fill(store, jobs, partial(draw, request), pool, unit="fields", progress=progress)
    return path


def trajectories(made: Trajectories, data: Path, pool: Pool | None = None, *, progress: bool = True) -> Path:
    """Compute, check and write trajectories, unless that was done before; return their file.

    What computes them by default is as for fields.
    """
    path = data / named(made.file, f"seed {made.file.seed}")
    solved = path.with_suffix(".solved")
    with locked(path):
        if not path.exists():
            starts = made.draw(made.file.seed)
            count = len(next(iter(starts.values())))
            if solved.exists() and not holds(solved, count):
                solved.unlink()
            store, jobs = Store(made.file.name, solved, {WHOLE: count}), blocks(WHOLE, count, BLOCK)
            fill(store, jobs, partial(follow, made.follow, starts), pool, unit="trajectories", progress=progress)
            with opened(solved) as file:
                arrays = {key: LazyArray.of(key, file[key]) for key in shapes(file)}
                write_checked(made.file, [DataFile(path, "generated", arrays)], path)
        solved.unlink(missing_ok=True)  # of a run that ended before this, too
        if (earlier := path.with_suffix(".blocks")).is_dir():
            warnings.warn(f"{earlier} is of an earlier version, and no longer read: remove it", stacklevel=2)
    return path


def holds(path: Path, count: int) -> bool:
    """Return whether a file that is being filled has room for just so many trajectories, and can be read."""
    try:
        with opened(path) as file:
            return DONE in file and len(file[DONE]) == count
    except OSError:  # it was cut off
        return False


# Blocks of samples


def blocks(group: str, count: int, size: int) -> list[Block]:
    """Divide the samples of a group into blocks.

    None is smaller than `size`, as the rounding of samples may depend on how many are computed together.
    """
    ends = [*range(size, count - size + 1, size), count] if count else []
    return [Block(group, start, stop) for start, stop in pairwise([0, *ends])]


def draw(request: Request, block: Block) -> dict[str, Array]:
    """Compute samples `[sample, ...]` of a stream, each from its own seed: inputs, parameters and outputs by name."""
    stream, problem = STREAMS.index(block.group), request.problem
    keys = [(*problem.name.encode(), request.mesh, stream, index) for index in range(block.start, block.stop)]
    found = [problem.sample(np.random.SeedSequence(request.seed, spawn_key=key), request.mesh) for key in keys]
    return {name: np.stack([np.asarray(each[name], dtype=np.float32) for each in found]) for name in found[0]}


def follow(solver: Callable[[Starts], Starts], starts: Starts, block: Block) -> dict[str, Array]:
    """Compute the trajectories `[sample, frame, ...]` of some first states, by the keys of their problem file."""
    found = solver({key: each[block.start : block.stop] for key, each in starts.items()})
    return {key: np.asarray(each, dtype=np.float32) for key, each in found.items()}


def fill(
    store: Store,
    jobs: Sequence[Block],
    work: Callable[[Block], Mapping[str, Array]],
    pool: Pool | None = None,
    *,
    unit: str = "samples",
    progress: bool = True,
) -> None:
    """Compute the blocks that a file misses. The first one says which arrays of which shapes a new file has."""
    left = missing(store.path, jobs)
    if not left:
        return
    with counted(store.name, sum(stop - start for _, start, stop in left), unit, shown=progress) as advance:
        for block, arrays in (pool or chosen(ALL_CORES)).completed(work, left):
            if not store.path.exists():
                create(store, {name: array.shape[1:] for name, array in arrays.items()})
            with opened(store.path, "r+") as file:
                write(file[block.group], slice(block.start, block.stop), arrays)
            advance(block.stop - block.start)


def missing(path: Path, jobs: Sequence[Block]) -> list[Block]:
    """Return the blocks that are not in a file."""
    if not path.exists():
        return [*jobs]
    with opened(path) as file:
        done = {group: file[group][DONE][:] for group in {block.group for block in jobs}}
    return [each for each in jobs if done[each.group][each.start : each.stop].sum() < each.stop - each.start]


def write(group: h5py.Group, rows: slice, arrays: Mapping[str, Array]) -> None:
    """Write samples, and mark them as done only when their arrays have been handed to the system."""
    for name, array in arrays.items():
        group[name][rows] = array
    group.file.flush()
    group[DONE][rows] = 1


# Files of fields


def store_of(request: Request, path: Path, attributes: Mapping[str, str | int | float]) -> Store:
    """Return the file of the fields of a request; it says what the problem says of them, and some attributes."""
    found = request.problem.description
    texts = {name: getattr(found, name) for name in ("title", "equation", "boundary", "distribution")}
    named = {"problem": found.name, "mesh": request.mesh, **texts, **attributes}
    tensors = {one.name: {"units": one.units, "meaning": one.meaning} for one in found.tensors}
    return Store(f"{found.name} {request.mesh}", path, request.stored, named, tensors)


def identity(request: Request) -> dict[str, str | int]:
    """Return what makes the fields of two requests the same."""
    return {"problem": request.problem.name, "mesh": request.mesh, "seed": request.seed, "version": VERSION}


def make_room(request: Request, store: Store) -> None:
    """Replace a file that is too small by a larger copy; one of another seed, mesh or version is refused."""
    with opened(store.path) as file:
        for name, value in identity(request).items():
            if (found := file.attrs.get(name)) != value:
                raise UserError(
                    f"expected {name} {value} but found {found} in {store.path}: move it away or use another folder"
                )
        held = room(file)
        larger = {stream: max(count, held[stream]) for stream, count in store.counts.items()}
        if larger != held:
            create(replace(store, counts=larger), shapes(file[STREAMS[0]]), source=file)


def convert(published: Published, request: Request, path: Path) -> None:
    """Write published samples, unless the file holds these already, from the files as they are now."""
    description, counts = request.problem.description, request.stored
    state = published.state()
    if path.exists():
        with opened(path) as file:
            held, known = room(file), file.attrs.get("state")
        # The last test samples of a longer request are not the last of a shorter one.
        if known == state and held["test"] == counts["test"] and held["train"] >= counts["train"]:
            return
    attributes = {"provenance": "published", "points": published.points, "files": published.files, "state": state}
    store = store_of(request, path, attributes)
    names = [one.name for one in (*description.inputs, *description.outputs)]
    with new_hdf5(path) as file:
        file.attrs.update(store.attributes)
        for stream, name in product(reversed(STREAMS), names):
            # One array at a time is in memory: the finest sets have hundreds of megabytes each.
            fields = published.read(stream, name, counts)
            if stream not in file:
                allocate(file, store, stream, dict.fromkeys(names, fields.shape[1:]))
            stored = file[stream][name]
            if fields.shape != stored.shape:
                raise UserError(
                    f"expected {stored.shape} but got {fields.shape} for {name}, {stream}, in {published.files}"
                )
            write(file[stream], slice(None), {name: fields})


def room(file: h5py.File) -> dict[str, int]:
    """Return for how many samples of each stream the file was made."""
    return {stream: len(file[stream][DONE]) for stream in STREAMS}


# Arrays of a file


def create(store: Store, shapes: Mapping[str, tuple[int, ...]], source: h5py.File | None = None) -> None:
    """Make a file with room for samples, and take over those of a smaller file of the same samples."""
    size = sum(4 * prod(shape) for shape in shapes.values())
    expect_room(store.path.parent, size * sum(store.counts.values()))
    with new_hdf5(store.path) as file:
        file.attrs.update(store.attributes)
        for name, count in store.counts.items():
            allocate(file, store, name, shapes)
            if source is not None:
                copied = min(count, len(source[name][DONE]))
                for tensor, index in product(file[name], range(copied)):
                    file[name][tensor][index] = source[name][tensor][index]


def allocate(file: h5py.File, store: Store, group: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Make the arrays of a group's samples, each `[sample, *shape]`, with their space on the disk."""
    into, count = file.require_group(group), store.counts[group]
    for name, shape in {**shapes, DONE: ()}.items():
        kind = h5py.h5t.NATIVE_UINT8 if name == DONE else h5py.h5t.IEEE_F32LE
        early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        early.set_obj_track_times(False)
        if count > 0 and shape:
            early.set_chunk((1, *shape))
        h5py.h5d.create(into.id, name.encode(), kind, h5py.h5s.create_simple((count, *shape)), early)
        into[name].attrs.update(store.tensors.get(name, {}))


def shapes(group: h5py.Group) -> dict[str, tuple[int, ...]]:
    """Return the shape of a sample by array."""
    return {name: array.shape[1:] for name, array in group.items() if name != DONE}


def opened(path: Path, mode: Literal["r", "r+"] = "r") -> h5py.File:
    """Open a file without HDF5's own lock, which would keep readers from a file that is being filled."""
    return h5py.File(path, mode, locking=False)
