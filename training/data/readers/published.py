"""The layouts of published sets in HDF5: PDEBench and The Well.

PDEBench has two: one file of arrays (`.hdf5`), and one group per sample (`.h5`). The Well has scalars, and fields of
order 0, 1 and 2 with axes that are absent where nothing varies.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import DataFile, LazyArray, ReadError, natural, part
from training.data.readers.hdf5 import array, datasets, opened, sample_groups, stacked, text
from training.data.readers.layout import last_axis_at, unlike_samples

INCOMPRESSIBLE = ("force", "particles", "velocity")  # [sample, (time), *grid, component], PDEBench's, too


FLOW = ("density", "pressure", "Vx", "Vy", "Vz")


AXES, COORDINATE = ("x", "y", "z"), "-coordinate"  # of PDEBench


ORDERS = ("t0_fields", "t1_fields", "t2_fields")


LOOKED_AT = 8  # of the groups, to see whether all samples have the same times and grid


BOUNDARIES = {"WALL": "wall", "OPEN": "open", "PERIODIC": "periodic"}  # of The Well


@contextmanager
def open_pdebench(path: Path) -> Iterator[DataFile]:
    """Open a file of either layout, whichever it is."""
    with opened(path) as file:
        if is_per_sample(file):
            yield per_sample(path, file)
        elif is_single(file):
            yield single(path, file)
        else:
            raise ReadError(
                f"{path}: expected PDEBench's `tensor`, `density`, `velocity` or groups with `data` and `grid`, "
                f"but found {', '.join(file)}"
            )


def is_single(file: h5py.File) -> bool:
    """Return whether a file has the layout of arrays with an `x-coordinate` beside them, or that of `velocity`."""
    return ("x-coordinate" in file and ("tensor" in file or "density" in file)) or {*file} >= {*INCOMPRESSIBLE, "t"}


def is_per_sample(file: h5py.File) -> bool:
    """Return whether a file has the layout of one group per sample, with `data` and `grid` in each."""
    first = next((item for item in file.values() if isinstance(item, h5py.Group)), None)
    return first is not None and {*first} >= {"data", "grid"} and bool(sample_groups(file))


def single(path: Path, file: h5py.File) -> DataFile:
    """Describe a file of arrays: Darcy flow, a scalar in one dimension, compressible or incompressible flow."""
    if "velocity" in file:
        return incompressible(path, file)
    coordinates = {name: np.asarray(file[f"{name}-coordinate"]) for name in AXES if f"{name}-coordinate" in file}
    if "nu" in file and file["nu"].ndim > 2:
        return darcy(path, file, coordinates)
    # The number of times is often one more than that of the frames, so only the step means something.
    names = [name for name in ("tensor", *FLOW) if name in file]
    dimensions = ("time", *AXES[: file[names[0]].ndim - 2])
    arrays = {name: array(file[name], name, dimensions) for name in names}
    arrays |= {
        name: array(file[name], name) for name in datasets(file) if name not in arrays and name[1:] != COORDINATE
    }
    return DataFile(
        path,
        "pdebench",
        arrays,
        coordinates | ({"time": np.asarray(file["t-coordinate"])} if "t-coordinate" in file else {}),
        remarks=("trajectories [sample, time, *grid]",),
        samples="PDEBench",
    )


def darcy(path: Path, file: h5py.File, coordinates: dict[str, NDArray[Any]]) -> DataFile:
    """Describe Darcy flow: `nu` [sample, x, y] in, `tensor` [sample, 1, x, y] out."""
    tensor = file["tensor"]
    solution = LazyArray(
        "tensor", (len(tensor), *tensor.shape[2:]), tensor.dtype, lambda start, stop: tensor[start:stop, 0], AXES[:2]
    )
    beta = file.attrs.get("beta")
    source = () if beta is None else (f"the source is beta = {np.asarray(beta).item():g} everywhere in {path.name}",)
    found = {"nu": array(file["nu"], "nu", AXES[:2]), "tensor": solution}
    if beta is not None:  # other files may have another one
        strength = np.broadcast_to(np.asarray(beta).item(), len(tensor))
        found["beta"] = LazyArray.of("beta", strength, dimensions=(), meaning="strength of the source", shared=True)
    remarks = ("Darcy flow", *source)
    return DataFile(path, "pdebench", found, coordinates, remarks=remarks, samples="PDEBench", outputs=("tensor",))


def incompressible(path: Path, file: h5py.File) -> DataFile:
    """Describe incompressible flow: a force [sample, *grid, component] and trajectories with components last."""

    def field(name: str) -> LazyArray:
        lead = ("component",) if name == "force" else ("time", "component")
        axes = AXES[: file[name].ndim - 1 - len(lead)]
        return last_axis_at(LazyArray.of(name, file[name]), len(lead), (*lead, *axes))

    found = {name: field(name) for name in INCOMPRESSIBLE}
    times = np.asarray(file["t"]).reshape(-1, found["velocity"].shape[1])
    made = DataFile(path, "pdebench", found, {"time": times[0]}, remarks=("incompressible flow",), samples="PDEBench")
    return replace(made, doubts=unlike_samples({"time": times}))


def per_sample(path: Path, file: h5py.File) -> DataFile:
    """Describe a file of groups: `data` [time, *grid, component] in each, with its grid beside it."""
    groups = sorted(file, key=natural)
    grid, data = file[groups[0]]["grid"], stacked(file, groups, "data")
    axes = AXES[: len(data.shape) - 3]
    found = last_axis_at(data, 2, ("time", "component", *axes))
    remark = f"one group per sample: {groups[0]} … {groups[-1]}"
    looked_at = [groups[at] for at in np.unique(np.linspace(0, len(groups) - 1, LOOKED_AT).astype(int))]
    every = {
        axis: [np.asarray(file[group]["grid"][name]) for group in looked_at if name in file[group]["grid"]]
        for axis, name in {**dict(zip(axes, axes, strict=True)), "time": "t"}.items()
        if name in grid
    }
    doubts = unlike_samples(
        {axis: np.stack(each) for axis, each in every.items() if len({one.shape for one in each}) == 1}
    )
    coordinates = {axis: each[0] for axis, each in every.items()}
    made = DataFile(path, "pdebench", {"data": found}, coordinates, remarks=(remark,), samples="PDEBench")
    return replace(made, doubts=doubts)


@contextmanager
def open_the_well(path: Path) -> Iterator[DataFile]:
    """Open one HDF5 file of a data set of The Well."""
    with opened(path) as file:
        axes = tuple(map(text, file["dimensions"].attrs["spatial_dims"]))
        arrays = {one.name: one for one in fields(file, axes)}
        title = f"The Well: {text(file.attrs.get('dataset_name'))}, {text(file.attrs['grid_type'])} grid"
        every = positions(file, axes)
        first = {axis: values[0] if values.ndim > 1 else values for axis, values in every.items()}
        said = first, boundaries(file, axes), (title,)
        yield DataFile(path, "well", arrays | scalars(file), *said, samples="The Well", doubts=unlike_samples(every))


def is_the_well(file: h5py.File) -> bool:
    """Return whether an HDF5 file follows the layout."""
    return {"n_spatial_dims", "n_trajectories", "grid_type"} <= set(file.attrs) and "dimensions" in file


def field(file: h5py.File, dataset: h5py.Dataset, name: str, order: int, axes: tuple[str, ...]) -> LazyArray:
    """Describe one field as `[sample, time?, component?, *grid]`."""
    samples, moving = int(file.attrs["n_trajectories"]), bool(dataset.attrs["time_varying"])
    own, varying = bool(dataset.attrs["sample_varying"]), list(map(bool, dataset.attrs["dim_varying"]))
    sides = tuple(len(file["dimensions"][axis]) for axis in axes)
    lead = 1 if moving else 0  # the time axis
    components = int(np.prod(dataset.shape[len(dataset.shape) - order :], dtype=int)) if order else 1

    def rows(start: int, stop: int) -> NDArray[Any]:
        values = dataset[start:stop] if own else np.broadcast_to(dataset[()], (stop - start, *dataset.shape))
        values = values.reshape(*values.shape[: values.ndim - order], components)
        for position, (varies, side) in enumerate(zip(varying, sides, strict=True), start=1 + lead):
            if not varies:
                values = np.repeat(np.expand_dims(values, position), side, axis=position)
        return np.moveaxis(values, -1, 1 + lead) if order else values[..., 0]

    frames = (dataset.shape[1 if own else 0],) if moving else ()
    shape = (samples, *frames, *((components,) if order else ()), *sides)
    dimensions = (*(("time",) if moving else ()), *(("component",) if order else ()), *axes)
    return LazyArray(name, shape, dataset.dtype, rows, dimensions, text(dataset.attrs.get("units")), shared=not own)


def scalars(file: h5py.File) -> dict[str, LazyArray]:
    """Describe the scalars, one number per sample, or one per frame where they vary in time."""
    samples, found = int(file.attrs["n_trajectories"]), {}
    for name in map(text, file["scalars"].attrs.get("field_names", ())) if "scalars" in file else ():
        dataset = file["scalars"][name]
        own = bool(dataset.attrs["sample_varying"])
        rows = partial(part, dataset) if own else partial(repeated, dataset)
        axes = ("time",) if dataset.attrs["time_varying"] else ()
        shape = (samples, *dataset.shape[int(own) :])
        found[name] = LazyArray(name, shape, dataset.dtype, rows, axes, shared=not own)
    return found


def repeated(dataset: h5py.Dataset, start: int, stop: int) -> NDArray[Any]:
    """Return what is the same for all samples for each of some."""
    return np.broadcast_to(dataset[()], (stop - start, *dataset.shape))


def positions(file: h5py.File, axes: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return the positions of grid points and frames, `[sample, point]` where every sample has its own."""
    names = {axis: axis for axis in axes} | ({"time": "time"} if "time" in file["dimensions"] else {})
    return {axis: np.asarray(file["dimensions"][name]) for axis, name in names.items()}


def boundaries(file: h5py.File, axes: tuple[str, ...]) -> dict[str, str]:
    """Return each axis' boundary; where its two ends differ, the last one that the file lists."""
    found = {}
    for group in file.get("boundary_conditions", {}).values():
        dims = group.attrs["associated_dims"]
        named = [dims] if isinstance(dims, (str, bytes)) else list(dims)
        kind = BOUNDARIES.get(text(group.attrs["bc_type"]).upper())
        found.update({axis: kind for axis in map(text, named) if kind and axis in axes})
    return found


def fields(file: h5py.File, axes: tuple[str, ...]) -> Iterator[LazyArray]:
    """Describe the fields, tensors of order 2 with their components in one axis."""
    for order, group in enumerate(ORDERS):
        for name in map(text, file[group].attrs.get("field_names", ())) if group in file else ():
            yield field(file, file[group][name], name, order, axes)
