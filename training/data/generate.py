"""Samplers of built-in problems write sample files: fields one by one per problem, mesh and seed, or trajectories.

`training.data.dataset` has the layout. The groups `train` and `test` of fields are streams, from which as many samples
are drawn as were requested; `done` is 1 where the sample is there. Attributes say what the numbers are. Published
samples are converted once.

Sample i of a stream is drawn from a random stream of its own, spawned from (seed, problem, mesh, stream, i). It is the
same whichever process computes it, however often the work was interrupted, and however many samples were requested.

The program may be killed at any time while it writes samples. So changes of a file's structure happen in a copy that
replaces the file when it is whole. Filling a file changes numbers only, in space that is already allocated (hence no
compression), and a sample is marked as done after its fields have been handed to the system.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    NonNegativeInt,
    PositiveInt,
)

from schema.parts import locations
from schema.problem import Description
from training.data.dataset import DONE
from training.data.pools import ALL_CORES, Pool, chosen
from training.data.prepare import named
from training.data.prepare import write as write_checked
from training.data.readers import DataFile, LazyArray
from training.files import locked, replacing
from training.messages import UserError, counted
from training.problems.problem import Array, Problem, Published, Stream, Trajectories

BLOCK = 32  # trajectories that are solved together
VERSION = 1  # raised whenever the same seed would give other samples


STREAMS: tuple[Stream, ...] = ("test", "train")  # the short one first: a file that is being filled can soon be used


class DataConfig(BaseModel):
    """Which samples to train on.

    `mesh` is the number of cells (points) per axis that the equation is solved on; `grids` are the points per axis of
    the strided fields the network is trained on, one grid per batch, drawn at random.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mesh: PositiveInt
    train: PositiveInt
    validation: NonNegativeInt  # samples for every decision, such as which epoch to keep
    test: PositiveInt  # samples that are read once, for the card
    grids: tuple[PositiveInt, ...]
    seed: int | None = None  # of the samples alone; the recipe's by default


class MeasuredSamples(BaseModel):
    """The samples that a closed form is measured on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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


def prepare(request: Request, folder: Path, pool: Pool | None = None, progress: bool = True) -> Path:
    """Make or complete the file that holds the requested samples.

    Published samples are used where the problem has some for the requested mesh. Otherwise samples are computed. A file
    is kept per problem, mesh and seed, and extended when more samples are requested. By default a Ray cluster computes
    them where RAY_ADDRESS names one, else all cores of this machine.

    Raises:
        MissingPartError: The problem has neither a sampler nor published samples.
        ValueError: A file of that name is from another seed, mesh or version, or published files hold too little.
    """
    problem, mesh = request.problem.source, request.mesh
    request = replace(request, problem=problem)
    published = problem.published if problem.published and problem.published.available(mesh) else None
    path = folder / f"{problem.name}-{mesh}-{'published' if published else f'seed{request.seed}'}.h5"
    if not published:
        problem.require_sampler()
    with locked(path):
        if published:
            convert(published, request, path)
        else:
            make_room(request, path)
            fill(request, path, pool or chosen(ALL_CORES), progress)
    return path


def make_room(request: Request, path: Path) -> None:
    """Make the file, or a larger copy of it; one of another seed, mesh or version is refused."""
    wanted = request.stored
    described: dict[str, str | int | float] = {
        "problem": request.problem.name,
        "mesh": request.mesh,
        "seed": request.seed,
        "version": VERSION,
    }
    where = request.problem.grid_points or locations(request.problem.description.axes)
    points = where.format(mesh=request.mesh, intervals=request.mesh - 1)
    attributes = {"provenance": "regenerated", **described, "points": points, **dict(request.problem.constants)}
    layout = Layout(request.problem.description, request.mesh, wanted, attributes)
    if not path.exists():
        with replacing(path) as aside:
            create(aside, layout)
        return
    with opened(path) as file:
        for name, value in described.items():
            if (found := file.attrs.get(name)) != value:
                raise UserError(
                    f"expected {name} {value} but found {found} in {path}: move it away or use another folder"
                )
        held = room(file)
        if any(held[stream] < wanted[stream] for stream in wanted):
            larger = {stream: max(held[stream], wanted[stream]) for stream in wanted}
            with replacing(path) as aside:
                create(aside, replace(layout, counts=larger), source=file)


def fill(request: Request, path: Path, pool: Pool, progress: bool) -> None:
    """Compute the samples that are missing."""
    with opened(path, "r+") as file:
        jobs = [(stream, i) for stream in STREAMS for i in missing(file, stream, request.stored[stream])]
        if not jobs:
            return
        name = f"{request.problem.name} {request.mesh}"
        with counted(name, len(jobs), "fields", shown=progress) as advance:
            for (stream, index), fields in pool.completed(partial(draw, request), jobs):
                write(file, stream, index, fields)
                advance(1)


def draw(request: Request, job: tuple[str, int]) -> dict[str, Array]:
    """Compute the sample of a stream and its number in it: inputs, parameters and outputs by name, float32."""
    stream, index = job
    key = (*request.problem.name.encode(), request.mesh, STREAMS.index(stream), index)
    fields = request.problem.sample(np.random.SeedSequence(request.seed, spawn_key=key), request.mesh)
    return {name: np.asarray(field, dtype=np.float32) for name, field in fields.items()}


def convert(published: Published, request: Request, path: Path) -> None:
    """Write published samples, unless the file holds these already."""
    description, counts = request.problem.description, request.stored
    if path.exists():
        with opened(path) as file:
            held = room(file)
        # The last test samples of a longer request are not the last of a shorter one.
        if held["test"] == counts["test"] and held["train"] >= counts["train"]:
            return
    attributes = {"provenance": "published", "points": published.points, "files": published.files}
    with replacing(path) as aside:
        create(aside, Layout(description, request.mesh, {}, attributes))
        with opened(aside, "r+") as file:
            for stream in reversed(STREAMS):
                for quantity in (*description.inputs, *description.outputs):
                    # One array at a time is in memory: the finest sets have hundreds of megabytes each.
                    fields = published.read(stream, quantity.name, counts)
                    if stream not in file:
                        layout = Layout(description, fields.shape[-1], counts, {})
                        allocate(file.create_group(stream), layout, counts[stream])
                    stored = file[stream][quantity.name]
                    if fields.shape != stored.shape:
                        raise UserError(
                            f"expected {stored.shape} but got {fields.shape} for {quantity.name}, {stream}, "
                            f"in {published.files}"
                        )
                    stored[:] = fields
                file[stream][DONE][:] = 1


def trajectories(made: Trajectories, data: Path, *, progress: bool = True) -> Path:
    """Draw, check and write trajectories, unless that was done before; return their file.

    They are solved in blocks, each of which is kept in a file of its own until all are there, so that an interrupted
    run goes on after its last whole block.
    """
    path = data / named(made.file, f"seed {made.file.seed}")
    folder = path.with_suffix(".blocks")
    with locked(path):
        if not path.exists():
            blocks = solved(made, folder, progress=progress)
            arrays = {key: LazyArray.of(key, np.concatenate([each[key] for each in blocks])) for key in blocks[0]}
            write_checked(made.file, [DataFile(path, "generated", arrays)], path)
        shutil.rmtree(folder, ignore_errors=True)  # of a run that ended before this, too
    return path


def solved(made: Trajectories, folder: Path, *, progress: bool) -> list[dict[str, Array]]:
    """Return all trajectories in blocks by key, solved where a folder does not hold them.

    No block is small, as the rounding of some would depend on their number.
    """
    starts = made.draw(made.file.seed)
    count = len(next(iter(starts.values())))
    ends = [*range(BLOCK, count - BLOCK + 1, BLOCK), count]
    blocks = [(slice(first, end), folder / f"{first:06}.npz") for first, end in zip([0, *ends], ends, strict=False)]
    jobs = [(rows, file) for rows, file in blocks if not file.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    total = sum(rows.stop - rows.start for rows, _ in jobs)
    with counted(made.file.name, total, "trajectories", shown=progress) as advance:
        for rows, file in jobs:
            found = made.follow({key: each[rows] for key, each in starts.items()})
            arrays: dict[str, Any] = {key: each.astype(np.float32) for key, each in found.items()}
            with replacing(file) as aside, aside.open("wb") as whole:
                np.savez(whole, **arrays)
            advance(rows.stop - rows.start)
    return [dict(np.load(file)) for _, file in blocks]


@dataclass(frozen=True)
class Layout:
    """What a file is made for: its problem, points per axis, samples of each stream, and its remaining attributes."""

    description: Description
    mesh: int
    counts: Mapping[str, int]
    attributes: Mapping[str, str | int | float]


def create(path: Path, layout: Layout, source: h5py.File | None = None) -> None:
    """Make a file with room for the layout's samples, and take over those of a smaller file of the same samples."""
    described = layout.description
    with opened(path, "w") as file:
        named = {name: getattr(described, name) for name in ("title", "equation", "boundary", "distribution")}
        file.attrs.update(problem=described.name, mesh=layout.mesh, **named)
        file.attrs.update(layout.attributes)
        for stream, count in layout.counts.items():
            group = file.create_group(stream)
            allocate(group, layout, count)
            if source is not None:
                copied = min(count, len(source[stream][DONE]))
                for name, index in product(group, range(copied)):
                    group[name][index] = source[stream][name][index]


def allocate(group: h5py.Group, layout: Layout, count: int) -> None:
    """Make a stream's datasets for `count` samples of the layout's grid, with their space on the disk."""
    described, shapes = layout.description, {DONE: ()}
    for one in described.tensors:
        components = getattr(one, "components", ())
        grid = () if one in described.parameters else (layout.mesh,) * len(described.axes)
        shapes[one.name] = (*((len(components),) if components else ()), *grid)
    for name, shape in shapes.items():
        kind = h5py.h5t.NATIVE_UINT8 if name == DONE else h5py.h5t.IEEE_F32LE
        early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        early.set_obj_track_times(False)
        if count > 0 and shape:
            early.set_chunk((1, *shape))
        h5py.h5d.create(group.id, name.encode(), kind, h5py.h5s.create_simple((count, *shape)), early)
    for tensor in described.tensors:
        group[tensor.name].attrs.update(units=tensor.units, meaning=tensor.meaning)


def write(file: h5py.File, stream: str, index: int, fields: Mapping[str, NDArray[Any]]) -> None:
    """Write one sample, and mark it as done only when its arrays have been handed to the system."""
    group = file[stream]
    for name, array in fields.items():
        group[name][index] = array
    file.flush()
    group[DONE][index] = 1
    file.flush()


def missing(file: h5py.File, stream: str, count: int) -> list[int]:
    """List those of the first `count` samples that are not there yet."""
    return [int(index) for index in np.flatnonzero(file[stream][DONE][:count] == 0)]


def room(file: h5py.File) -> dict[str, int]:
    """Return for how many samples of each stream the file was made."""
    return {stream: len(file[stream][DONE]) for stream in STREAMS}


def opened(path: Path, mode: Literal["r", "r+", "w"] = "r") -> h5py.File:
    """Open a file without HDF5's own lock, which would keep readers from a file that is being filled."""
    return h5py.File(path, mode, locking=False)
