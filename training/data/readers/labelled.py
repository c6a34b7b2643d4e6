"""netCDF and zarr: named variables with named dimensions, read by xarray and zarr."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import h5py
import numpy as np
import xarray
from numpy.typing import NDArray

from training.data.readers.conventions import AS_STORED, bounds, counts_time, decoded, in_seconds, without_default_fills
from training.data.readers.data_file import DataFile, LazyArray, ReadError, damage_named, part
from training.data.readers.dimensions import (
    INITIAL,
    KEPT,
    LEAD,
    MEMBERS,
    SAMPLE,
    TIME,
    axis,
    components_of,
    lead_dimension,
    sample_dimension,
    starts_of,
    two_counts,
)
from training.data.readers.guards import cut_chunk
from training.data.readers.hdf5 import (
    MISSING,
    array,
    as_stored,
    describe,
    is_netcdf4,
    numbers,
    of_file,
    opened,
    packing,
    says_missing,
    stored_type,
    text,
    valid,
)
from training.data.readers.layout import side_by_side
from training.data.readers.splits import of_splits

if TYPE_CHECKING:
    import zarr

EAST, NORTH = re.compile(r"(?i)longitude|lon|(?<![a-z])x(?![a-z])"), {"longitude": "latitude", "lon": "lat", "x": "y"}
"""The word of a coordinate in its name, and that of the other one."""


@contextmanager
def open_netcdf(path: Path) -> Iterator[DataFile]:
    """Open a netCDF file of version 3 or 4, with its groups."""
    nested = False
    if is_netcdf4(path):
        with opened(path) as file:  # it refuses what lies in other files
            if not has_dimensions(file):  # of another program that calls its HDF5 so
                yield describe(path, file)
                return
            nested = any(isinstance(item, h5py.Group) for item in file.values())
    with ExitStack() as stack:
        with damage_named(path, "a netCDF file"), quiet():
            if nested:
                groups = xarray.open_groups(path, engine="h5netcdf", cache=False, **AS_STORED)
            else:
                groups = {"/": xarray.open_dataset(path, cache=False, **AS_STORED)}
        for data in groups.values():
            stack.enter_context(data)
        yield of_groups(path, "netcdf", groups)


@contextmanager
def quiet() -> Iterator[None]:
    """Let xarray not warn of dimensions that repeat, which `named_apart` changes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Duplicate dimension names")
        yield


def has_dimensions(file: h5py.File) -> bool:
    """Return whether a file of HDF5 has dimensions with names, as one of netCDF has in its groups."""
    return bool(file.visititems(lambda _, item: item.attrs.get("CLASS") == b"DIMENSION_SCALE" or None))


@contextmanager
def open_zarr(path: Path) -> Iterator[DataFile]:
    """Open a zarr store of version 2 or 3, written by xarray or by zarr itself."""
    import zarr  # noqa: PLC0415 -- half of the time that describing a netCDF file would take

    with damage_named(path, "a zarr store"):
        store: Any = zarr.storage.ZipStore(path, mode="r") if path.is_file() else path
        group = zarr.open(store, mode="r")
        every = {"": group} if isinstance(group, zarr.Array) else dict(group.members(max_depth=None))
        arrays = {name: item for name, item in every.items() if isinstance(item, zarr.Array)}
        for each in arrays.values() if path.is_dir() else ():
            if (cut := cut_chunk(path, each)) is not None:
                file, size, said = cut
                raise ReadError(
                    f"{path}: expected {said} bytes in {file.relative_to(path)}, a chunk of {each.path!r}, but found "
                    f"{size}: copy the store again"
                )
        named = all(dimension_names(item) for item in arrays.values())
    if isinstance(group, zarr.Array):
        yield DataFile(path, "zarr", {"array": array(group, "array")})
        return
    if not named:
        left_out = {name: fault for name, item in arrays.items() if (fault := packing(item.attrs)[1])}
        found = {name: array(item, name) for name, item in arrays.items() if name not in left_out}
        whole = of_splits(path, [*group.keys()], found, "zarr") or DataFile(path, "zarr", found)
        yield replace(whole, left_out={**whole.left_out, **left_out})
        return
    with ExitStack() as stack:
        with damage_named(path, "a zarr store of xarray"):
            if any("/" in name for name in arrays):
                groups = xarray.open_groups(store, engine="zarr", consolidated=False, **AS_STORED)
            else:
                groups = {"/": xarray.open_zarr(store, chunks=None, consolidated=False, **AS_STORED)}
        for data in groups.values():
            stack.enter_context(data)
        fills = without_default_fills(groups, arrays)
        made = of_groups(path, "zarr", groups)
        yield replace(made, remarks=(*made.remarks, *fills))


def of_groups(path: Path, format_: str, groups: Mapping[str, xarray.Dataset]) -> DataFile:
    """Describe the variables of a file's groups, as of a tree of xarray, by `group/name`; those of splits joined."""
    with quiet():
        files = {name.strip("/"): labelled(path, format_, data) for name, data in groups.items()}
    holding = {name: file for name, file in files.items() if file.arrays or file.left_out}
    if len(files) == 1 or {*holding} == {""}:
        return files[""]

    def every(part: Callable[[DataFile], Mapping[str, Any]]) -> dict[str, Any]:
        return {
            f"{name}/{key}" if name else key: one for name, file in holding.items() for key, one in part(file).items()
        }

    arrays = {name: replace(one, name=name) for name, one in every(lambda file: file.arrays).items()}
    whole = of_splits(path, sorted({name.partition("/")[0] for name in arrays}), arrays, format_)
    coordinates: dict[str, NDArray[Any]] = {}
    for file in files.values():
        coordinates = {**file.coordinates, **coordinates}
    return replace(
        whole or DataFile(path, format_, arrays),
        coordinates=coordinates,
        samples=next(file.samples for file in holding.values()),
        remarks=(
            *(whole.remarks if whole else ()),
            *dict.fromkeys(each for file in holding.values() for each in file.remarks),
            *unlike_groups(path, files),
        ),
        left_out=every(lambda file: file.left_out),
        parts={**(whole.parts if whole else {}), **every(lambda file: file.parts)},
    )


def unlike_groups(path: Path, groups: Mapping[str, DataFile]) -> Iterator[str]:
    """Say of axes that groups have other positions along them than the first one.

    Raises:
        ReadError: An axis runs in the opposite direction, so that fields of one group would be mirrored in another.
    """
    known: dict[str, tuple[str, NDArray[Any]]] = {}
    for group, file in sorted(groups.items()):
        for name, found in file.coordinates.items():
            first, lead = known.setdefault(name, (group, found))
            if first == group or min(len(found), len(lead)) < 2:
                continue
            said, is_reversed, differs = side_by_side(name, found, group, lead, first or "the file itself")
            if is_reversed:
                raise ReadError(
                    f"{path}: {said}; expected one direction in all groups: turn one, as xarray's sortby('{name}') does"
                )
            if differs:
                yield f"{said}: the model takes all fields to lie on one grid"


def dimension_names(array: zarr.Array[Any]) -> Any:
    """Return the names of an array's axes as version 3 or xarray's convention for version 2 keeps them."""
    return getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")


def labelled(path: Path, format_: str, data: xarray.Dataset) -> DataFile:
    """Describe variables with named dimensions; the sample axis is the one with a known name, else the first."""
    data, left_out = decoded(path, f"variables of {format_}", data)
    ends = bounds(data)
    parts = {name: variable(name, data[name]) for name in ends}
    left_out |= ends | {str(name): two_counts(value) for name, value in data.data_vars.items() if two_counts(value)}
    data = data.drop_vars([*left_out], errors="ignore")
    data, single = without_single_points(named_apart(data))
    arrays = {str(name): variable(str(name), value) for name, value in data.data_vars.items()}
    arrays |= of_file(data.attrs, {*arrays, *map(str, data.variables)})
    forecasts = [value for value in data.data_vars.values() if lead_dimension(value)]
    # Beside forecasts, what has no starts is the same for all of them, as a mask of land.
    counted = [value for value in data.data_vars.values() if value.ndim > 1 and (not forecasts or starts_of(value))]
    # Nor does what has no dimension of samples beside variables that have one, as the depth of a sea.
    counted = [value for value in counted if {str(dim).lower() for dim in value.dims} & {*SAMPLE}] or counted
    samples = {sample_dimension(value) for value in counted}
    leads = {lead_dimension(value) for value in forecasts}
    coordinates = {str(name): in_seconds(value) for name, value in data.coords.items() if value.ndim == 1}
    counts = {*SAMPLE, *INITIAL} | {dim.lower() for value in forecasts for dim in starts_of(value)}
    numeric = {
        axis(name, leads): value
        for name, value in coordinates.items()
        if value.dtype.kind in "fiu" and name.lower() not in counts
    }
    said = all(dimension is not None and dimension.lower() in counts for dimension in samples)
    named = f"the dimension {', '.join(sorted(map(str, samples)))}" if samples and said else ""
    remarks = tuple(f"{name} has one point, and is no axis" for name in single)
    remarks += tuple(
        f"{name} is in {text(value.attrs['units'])}: here in seconds"
        for name, value in data.coords.items()
        if axis(str(name), leads) == "time" and name not in samples and value.size > 1 and counts_time(value)
    )
    remarks += tuple(scattered(data))
    remarks += tuple(
        f"{lead_dimension(value)} is the time of forecasts, which {sample_dimension(value)} counts"
        for value in forecasts[:1]
    )
    found = beside_positions(data.drop_vars(single, errors="ignore"), samples, counts)
    return DataFile(
        path,
        format_,
        found.numbers | arrays,
        numeric,
        samples=named,
        remarks=remarks,
        left_out=left_out | found.left_out,
        parts=parts | found.parts,
        numbering={str(dim): in_seconds(data[dim]) for dim in samples if dim in data.coords and data[dim].ndim == 1},
    )


class Beside(NamedTuple):
    """Coordinates of a file that are no positions along an axis."""

    numbers: dict[str, LazyArray]  # of every sample, or of all of them
    parts: dict[str, LazyArray]  # which may be inputs
    left_out: dict[str, str]


def beside_positions(data: xarray.Dataset, samples: Collection[str | None], counts: Collection[str]) -> Beside:
    """Return the coordinates that are no positions: numbers of samples, numbers of a file, and those on a grid.

    A user of xarray keeps there what a run was made with, as its viscosity.

    Args:
        data: The variables.
        samples: The dimensions that may count samples.
        counts: The names by which these are known.
    """
    found = Beside({}, {}, {})
    for name, value in ((str(name), value) for name, value in data.coords.items()):
        own, along = value.dims == (name,), str(value.dims[0]) if value.ndim == 1 else ""
        if name.lower() in {*TIME, *INITIAL, *LEAD} or " since " in text(value.attrs.get("units")):
            continue
        if value.ndim == 0 or (along in samples and not own):
            found.numbers[name] = replace(variable(name, value), setting=True)
        elif value.ndim == 1 and own and along in samples and not numbers_only(value):
            known = found.numbers if name.lower() in counts else found.parts
            known[name] = replace(variable(name, value), setting=True)
        elif value.ndim > 1 and value.dtype.kind in "fiub":
            found.parts[name] = variable(name, value)
            said = "" if {*map(str, value.dims)} & {*samples} else " and static = true"
            found.left_out[name] = (
                f"a coordinate of {', '.join(map(str, value.dims))}: if the outputs depend on it, write a table of "
                f"[inputs] with key = {name!r}{said}"
            )
    return found


def numbers_only(value: xarray.DataArray) -> bool:
    """Return whether the coordinate of a dimension only numbers what it counts, or is no number."""
    values = np.asarray(value)
    if values.dtype.kind not in "fiu":
        return True
    counting = bool(values.size and values[0] in {0, 1} and (np.diff(values) == 1).all())
    return counting or (values.dtype.kind != "f" and str(value.name).lower() in MEMBERS)


def named_apart(data: xarray.Dataset) -> xarray.Dataset:
    """Return variables whose dimensions have names of their own: `x` and `x_2` where netCDF has `x` twice.

    Both have the coordinates of `x`.
    """
    repeated: dict[str, xarray.Variable] = {}
    again: dict[str, str] = {}
    for name, value in data.data_vars.items():
        dims = list(map(str, value.dims))
        own = [
            dim if (before := dims[:place].count(dim)) == 0 else f"{dim}_{before + 1}" for place, dim in enumerate(dims)
        ]
        if own != dims:
            repeated[str(name)] = value.variable.copy(deep=False)
            repeated[str(name)].dims = own
            again |= {new: old for new, old in zip(own, dims, strict=True) if new != old and old in data.coords}
    coordinates = {new: (new, data[old].values) for new, old in again.items()}
    return data.drop_vars([*repeated]).assign(repeated).assign_coords(coordinates) if repeated else data


def without_single_points(data: xarray.Dataset) -> tuple[xarray.Dataset, list[str]]:
    """Return variables without dimensions of one point, such as the level of a field, and which these are.

    The first dimension of a variable may count samples, and stays.
    """
    first = {value.dims[0] for value in data.data_vars.values() if value.dims}
    single = [str(dim) for dim, size in data.sizes.items() if size == 1 and dim not in first]
    single = [dim for dim in single if dim.lower() not in KEPT]
    return data.isel(dict.fromkeys(single, 0)), single


def scattered(data: xarray.Dataset) -> Iterator[str]:
    """Say that points of a dimension have two coordinates each, as cells of ICON and nodes of UGRID: it is no line."""
    lines = {str(name): value.dims[0] for name, value in data.variables.items() if value.ndim == 1}
    for name, dim in lines.items():
        other = EAST.sub(lambda word: NORTH[word[0].lower()], name)
        if other != name and lines.get(other) == dim and dim not in {name, other}:
            yield (
                f"{name} and {other} have a number for each {dim}: if these are points of a mesh, and on no line, save "
                f"np.savez('data.npz', coordinates=np.stack([ds.{name}, ds.{other}], -1), u=ds.u), u [sample, point]"
            )


def variable(name: str, value: xarray.DataArray) -> LazyArray:
    """Describe one variable."""
    dims, sample = list(map(str, value.dims)), sample_dimension(value)
    leads = {lead_dimension(value)} - {None}
    ahead = [dim for dim in dims if dim == sample]
    components = components_of(value)
    for kind in (leads or TIME, components):
        ahead += [dim for dim in dims if (dim in kind or dim.lower() in kind) and dim not in ahead]
    order = [*ahead, *(dim for dim in dims if dim not in ahead)]
    turned = value.transpose(*order)

    attributes, packed = value.attrs, value.encoding
    scaling, _ = packing(packed)
    low, high = valid(
        attributes, stored_type({**attributes, **packed}, np.dtype(packed.get("dtype", value.dtype))), scaling
    )
    limited = value.dtype.kind in "fiu" and not (np.isneginf(low) and np.isposinf(high))
    # xarray does not find 1e20 in double precision among numbers in single precision.
    said = [each for key in MISSING if key in packed and not scaling for each in np.ravel(packed[key])]
    other = [attributes[key] for key in attributes if key not in MISSING and says_missing(key) and not scaling]
    said += [each for values in other for each in numbers(values, value.dtype)]
    absent = as_stored(said, value.dtype) if value.dtype.kind == "f" or (other and value.dtype.kind in "iu") else []
    # Only floating numbers can be NaN, as missing ones become.
    held = np.dtype(np.float64) if (limited or absent) and value.dtype.kind != "f" else value.dtype

    def rows(start: int, stop: int) -> NDArray[Any]:
        values = np.asarray(part(turned, start, stop).values)
        if absent:
            values = np.where(np.isin(values, absent), held.type(np.nan), values.astype(held))
        if not limited:
            return values
        return np.where((values < low) | (values > high), held.type(np.nan), values.astype(held))

    return LazyArray(
        name,
        turned.shape,
        held,
        rows,
        tuple(axis(dim, leads, components) for dim in order[1:]) if dims else None,
        text(attributes.get("units")),
        text(attributes.get("long_name", attributes.get("description"))),
        first=axis(order[0]) if dims else "",
    )
