"""HDF5: arrays under any names, one group per sample, and the packing of their numbers.

Numbers may not yet be values: conventions of netCDF (`scale_factor`, `add_offset`, `_FillValue`, `missing_value`) are
met in HDF5 files of other programs, too. Values that are missing become NaN. Layouts of published sets are in
`published`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import (
    DataFile,
    LazyArray,
    ReadError,
    Rows,
    beginning_of,
    damage_named,
    each_way,
    natural,
    without_records,
)
from training.data.readers.guards import check_heaps
from training.data.readers.splits import TEST, VALIDATION, joined, of_splits, split_of

MISSING = ("_FillValue", "missing_value")
ABSENT = ("fillvalue", "missingvalue", "nodata", "nodatavalue")
"""How attributes of other programs end that say which values are missing, in letters alone."""
PACKING = ("scale_factor", "add_offset")
VALID = ("valid_range", "valid_min", "valid_max")


@contextmanager
def open_hdf5(path: Path) -> Iterator[DataFile]:
    """Open an HDF5 file that follows no known layout."""
    with opened(path) as file:
        yield describe(path, file)


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """Open a file for reading, without HDF5's own lock.

    Raises:
        ReadError: It is no HDF5 file, or a damaged one.
    """
    with damage_named(path, "an HDF5 file"):
        file = h5py.File(path, "r", locking=False)
    with file:
        with damage_named(path, "an HDF5 file"):
            refuse_other_files(path, file)
            check_heaps(path, file)
        yield file


def is_netcdf4(path: Path) -> bool:
    """Return whether a file of netCDF is HDF5, and not of its classic format.

    Raises:
        ReadError: It is neither, or has offsets of 64 bits, which no installed library reads.
    """
    if h5py.is_hdf5(path):
        return True
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"CDF\5":
        raise ReadError(f"{path}: its format is CDF-5, which is not read: convert it, nccopy -k nc4 FILE NEW")
    if start not in {b"CDF\1", b"CDF\2"}:
        raise ReadError(
            f"{path}: expected a netCDF file, which is HDF5 or netCDF, but it is neither{beginning_of(path)}"
        )
    return False


def refuse_other_files(path: Path, file: h5py.File) -> None:
    """Refuse what would read another file than the user's: its bytes would become training data.

    Raises:
        ReadError: There is an external link, a virtual data set, or one with external storage.
    """

    def kind(name: str | bytes, link: object) -> tuple[str | bytes, str] | None:
        if isinstance(link, h5py.ExternalLink):
            return name, "a link to another file"
        item = file[name] if isinstance(link, h5py.HardLink) else None
        if isinstance(item, h5py.Dataset) and (item.is_virtual or item.external):
            return name, "a virtual data set" if item.is_virtual else "external storage"
        return None

    if found := file.visititems_links(kind):
        raise ReadError(f"{path}: {found[0]!r} is {found[1]}, which is not read: copy its numbers into the file")


def describe(path: Path, file: h5py.Group) -> DataFile:
    """Describe the arrays of an open file, or of a group of it."""
    groups, alike = samples_in(file)
    if not groups and (split := samples_of_splits(path, file)):
        return split
    if not groups:
        arrays = without_records({name: array(file[name], name) for name in datasets(file)})
        whole = of_splits(path, [*file], arrays) or DataFile(path, "hdf5", of_file(file.attrs, arrays) | arrays)
        return replace(whole, left_out={**unread(file), **links(file)})
    said = (f"one group per sample: {groups[0]} … {groups[-1]}",), f"one group per sample, {groups[0]} …"
    numbers, left_out = attributes(file, groups)
    beside = {f"/{name}" if name in file[groups[0]] else name: file[name] for name in file if name not in groups}
    counted = {name: one for name, one in beside.items() if is_array(one) and one.shape[:1] == (len(groups),)}
    numbers |= {name: array(one, name) for name, one in counted.items()}
    left_out |= dict.fromkeys([name for name in beside if name not in numbers], "it is in no sample's group")
    unlike = ((name, why_not(one)) for name, one in beside.items() if isinstance(one, h5py.Dataset))
    left_out |= unread(file[groups[0]]) | {name: reason for name, reason in unlike if reason}
    if alike:
        found = without_records({name: stacked(file, groups, name) for name in datasets(file[groups[0]])})
        whole = DataFile(path, "hdf5", found | numbers, remarks=said[0], samples=said[1], left_out=left_out)
        return replace(whole, names=tuple(groups))
    pieces = []
    for index, group in enumerate(groups):
        of_group = without_records({name: stacked(file, [group], name) for name in datasets(file[group])})
        of_group |= {name: LazyArray.of(name, one.read(index, index + 1)) for name, one in numbers.items()}
        pieces.append(DataFile(path, "hdf5", of_group, samples=said[1]))
    whole = DataFile(path, "hdf5", pieces[0].arrays, remarks=said[0], samples=said[1], left_out=left_out)
    return replace(whole, names=tuple(groups), pieces=tuple(pieces))


def samples_of_splits(path: Path, file: h5py.Group) -> DataFile | None:
    """Describe a file of a group for each split that has a group for each sample; None of others."""
    ranks = {name: rank for name in file if (rank := split_of(name)) is not None and isinstance(file[name], h5py.Group)}
    ordered = sorted(ranks, key=lambda name: ranks[name])
    if len({*ranks.values()}) < len(file) or not all(sample_groups(file[name]) for name in ordered):
        return None
    parts = [describe(path, file[name]) for name in ordered]
    first = parts[0]
    if any(part.arrays.keys() != first.arrays.keys() or bool(part.pieces) != bool(first.pieces) for part in parts):
        return None
    counts = {ranks[name]: len(sample_groups(file[name])) for name in ordered}
    return replace(
        first,
        arrays={name: joined(name, [part.arrays[name] for part in parts]) for name in first.arrays},
        pieces=tuple(piece for part in parts for piece in part.pieces),
        names=tuple(f"{split}/{name}" for split, part in zip(ordered, parts, strict=True) for name in part.names),
        remarks=(f"the samples of {', '.join(ordered)} one after the other, a group for each",),
        validation=counts.get(VALIDATION, 0),
        test=counts.get(TEST, 0),
    )


def attributes(file: h5py.Group, groups: list[str]) -> tuple[dict[str, LazyArray], dict[str, str]]:
    """Return the attributes of the samples' groups that are numbers, and which are left out and why."""
    found, left_out = {}, {}
    for name in file[groups[0]].attrs:
        values = [np.asarray(file[group].attrs[name]) for group in groups if name in file[group].attrs]
        label = f"{name} (attribute)" if name in file[groups[0]] else name
        if values[0].dtype.kind not in "fiub":
            left_out[label] = "an attribute of each group that is no number"
        elif len(values) < len(groups) or len({each.shape for each in values}) > 1:
            left_out[label] = "an attribute that not every group has in the same shape"
        else:
            one = LazyArray.of(label, np.stack(values), setting=True)
            found[label] = one if one.shape[1:] else replace(one, dimensions=())  # a number of each sample, for certain
    return found, left_out


def of_file(attributes: Mapping[str, Any], arrays: Collection[str]) -> dict[str, LazyArray]:
    """Return the attributes of a file that are numbers as arrays, which are parameters where every file is a sample."""
    found = {str(name): np.asarray(value) for name, value in attributes.items() if name not in arrays}
    return {
        name: LazyArray.of(name, value, setting=True) for name, value in found.items() if value.dtype.kind in "fiub"
    }


def datasets(group: h5py.Group) -> list[str]:
    """List the paths of all datasets below a group, in the file's order."""
    return [name for name, _ in shapes_in(group)]


def unread(group: h5py.Group) -> dict[str, str]:
    """Return the paths of the datasets below a group that are no arrays, and why."""
    found: dict[str, str] = {}

    def note(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and (reason := why_not(item)):
            found[name] = reason

    group.visititems(note)
    return found


def links(group: h5py.Group) -> dict[str, str]:
    """Say of the links below a group that no data set is listed by which one they name, or that it is not there."""
    listed = {group[name]: name for name in datasets(group)}
    found: dict[str, str] = {}

    def note(name: str, link: object) -> None:
        item = group.get(name)
        if isinstance(link, h5py.SoftLink) and item is None:
            found[name] = f"a link to {link.path!r}, which is not there"
        elif is_array(item) and listed.get(item) != name:
            found[name] = f"another name of {listed.get(item, item.name)!r}"

    group.visititems_links(note)
    return found


def is_array(item: Any) -> bool:
    """Return whether an item of a file is an array whose values can be known."""
    return isinstance(item, h5py.Dataset) and not why_not(item)


def why_not(dataset: h5py.Dataset) -> str:
    """Say why a dataset is no array: it has no values, and no shape, or is packed in an unknown way; empty if it is."""
    return "it is empty" if dataset.shape is None else packing(dataset.attrs)[1]


def array(dataset: Any, name: str, dimensions: tuple[str, ...] | None = None) -> LazyArray:
    """Describe a dataset, or an array of zarr, whose first axis counts samples.

    Raises:
        ReadError: It is packed in a way that is not known.
    """
    if fault := packing(dataset.attrs)[1]:
        source = dataset.file.filename if isinstance(dataset, h5py.Dataset) else dataset.store_path
        raise ReadError(f"{source}: {name!r} cannot be read: {fault}")
    found = LazyArray.of(
        name,
        dataset,
        dimensions=dimensions,
        units=text(dataset.attrs.get("units")),
        meaning=text(dataset.attrs.get("long_name", dataset.attrs.get("meaning"))),
    )
    return unpacked(found, dataset.attrs)


def sample_groups(file: h5py.Group) -> list[str]:
    """List the groups that hold one sample each, in the order of their numbers; none where the file is otherwise.

    They are groups with a number in their names, at least two, that hold datasets of the same names and numbers of
    axes, and there are no other groups beside them.
    """
    return samples_in(file)[0]


def samples_in(file: h5py.Group) -> tuple[list[str], bool]:
    """Return the groups that hold one sample each, and whether all of them have the same shapes."""
    every = [name for name, item in file.items() if isinstance(item, h5py.Group)]
    groups = [name for name in every if re.search(r"\d", name)]
    if len(groups) < max(2, len(every)):
        return [], False
    shapes = {frozenset(shapes_in(file[group])) for group in groups}
    ranks = {frozenset((name, len(shape)) for name, shape in each) for each in shapes}
    alike = len(ranks) == 1 and ranks != {frozenset()}
    return (sorted(groups, key=natural) if alike else []), len(shapes) == 1


def shapes_in(group: h5py.Group) -> list[tuple[str, tuple[int, ...]]]:
    """Return the names and shapes of the datasets below a group."""
    found: list[tuple[str, tuple[int, ...]]] = []
    group.visititems(lambda name, item: found.append((name, item.shape)) if is_array(item) else None)
    return found


def stacked(file: h5py.Group, groups: list[str], name: str) -> LazyArray:
    """Describe one dataset of every sample's group as an array over the samples."""
    first = array(file[groups[0]][name], name)

    def rows(start: int, stop: int) -> NDArray[Any]:
        return np.stack([array(file[group][name], name).read() for group in groups[start:stop]])

    axes = first.dimensions if first.shape else ()  # a number is that of each sample, for certain
    return replace(first, shape=(len(groups), *first.shape), rows=rows, dimensions=axes)


def text(value: Any) -> str:
    """Return an attribute as text, several with commas; empty where there is none.

    What is not in UTF-8, such as the sign of degrees of an older program, is in Latin-1.
    """
    if value is None or isinstance(value, h5py.Empty):
        return ""
    if isinstance(value, np.ndarray):
        return ", ".join(map(text, value.ravel().tolist()))
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


# Packed numbers


def unpacked(one: LazyArray, attributes: Mapping[str, Any]) -> LazyArray:
    """Return an array of values by what its attributes say of the stored numbers."""
    if one.dtype.kind not in "fiu":
        return one
    stored_as = stored_type(attributes, one.dtype)
    said = [value for name in attributes if says_missing(name) for value in numbers(attributes[name], stored_as)]
    scaling, _ = packing(attributes)
    absent = np.array(as_stored(said, stored_as), stored_as)
    low, high = valid(attributes, stored_as, scaling)
    if stored_as == one.dtype and not scaling and not len(absent) and np.isneginf(low) and np.isposinf(high):
        return one
    kind = one.dtype if one.dtype.kind == "f" and not scaling else np.dtype(np.float64)

    def values_of(read: Rows, start: int, stop: int) -> NDArray[Any]:
        stored = np.asarray(read(start, stop)).astype(stored_as, copy=False)
        values = stored.astype(kind) * scaling.get("scale_factor", 1) + scaling.get("add_offset", 0)
        missing = np.isin(stored, absent) | (values < low) | (values > high)
        return np.where(missing, kind.type(np.nan), values.astype(kind))

    return replace(one, dtype=kind, rows=each_way(one.rows, partial(partial, values_of)))


def says_missing(name: object) -> bool:
    """Return whether an attribute says which values are missing, as `_FillValue`, `NoData` and `Missing value` do."""
    return re.sub("[^a-z]", "", str(name).lower()).endswith(ABSENT)


def packing(attributes: Mapping[str, Any]) -> tuple[dict[str, float], str]:
    """Return the numbers by which stored ones become values, and why these cannot be known; a text may be a number."""
    found: dict[str, float] = {}
    for name in PACKING:
        if name not in attributes:
            continue
        said, line = text(attributes[name]), np.ravel(np.asarray(attributes[name]))
        if said and line.size > 1:
            return {}, f"its {name} has {line.size} numbers, and one is expected: save the values themselves"
        if said:
            try:
                found[name] = float(said if line.dtype.kind not in "fiu" else line[0])
            except ValueError:
                return {}, f"its {name} is {said!r}, which is no number: save the values themselves"
    return found, ""


def valid(attributes: Mapping[str, Any], kind: np.dtype[Any], scaling: Mapping[str, float]) -> tuple[float, float]:
    """Return the least and the greatest value that an array may have, beyond which values are missing.

    Of packed numbers, limits in their type are those of the numbers as stored, as netCDF's conventions say.
    """
    said = {name: numbers(attributes[name], kind) for name in VALID if name in attributes}
    both = said.get("valid_range", np.empty(0))
    limits = [both[:1], both[1:2]] if len(both) == 2 else [said.get(name, both) for name in VALID[1:]]
    found = [
        float(limit[0]) if limit.size == 1 else none for limit, none in zip(limits, (-np.inf, np.inf), strict=True)
    ]
    if scaling and kind.kind in "iu" and all(limit.dtype.kind in "iu" for limit in limits if limit.size):
        factor, offset = (scaling.get(name, none) for name, none in zip(PACKING, (1.0, 0.0), strict=True))
        # Halfway to the next whole number, since a value at the limit may be rounded beyond it in float32.
        found = [(limit + half) * factor + offset for limit, half in zip(found, (-0.5, 0.5), strict=True)]
    return min(found), max(found)  # a negative factor turns them


def as_stored(values: Iterable[Any], kind: np.dtype[Any]) -> list[Any]:
    """Return numbers in the type of an array, without those that no number of it can equal, such as NaN."""
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            return [one for value in values if (one := kind.type(value)) == value or np.isfinite(one)]
    limits = np.iinfo(kind)
    return [
        int(value)
        for value in values
        if np.isfinite(value) and limits.min <= value <= limits.max and value == int(value)
    ]


def numbers(value: Any, kind: np.dtype[Any]) -> NDArray[Any]:
    """Return an attribute of an array of a type that holds numbers as a line of them; an empty one for another."""
    found = np.ravel(np.asarray(value))
    if found.dtype.kind in "USO":
        try:
            found = np.array([float(text(each)) for each in found.tolist()])
        except ValueError:
            return np.empty(0)
    if found.dtype.kind == "i" and kind.kind == "u" and found.dtype.itemsize == kind.itemsize:
        return found.view(kind)
    return found if found.dtype.kind in "fiu" else np.empty(0)


def stored_type(attributes: Mapping[str, Any], kind: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of stored numbers, without a sign where `_Unsigned` says so: netCDF's classic format has none."""
    unsigned = kind.kind == "i" and text(attributes.get("_Unsigned", "")).lower() == "true"
    return np.dtype(f"u{kind.itemsize}") if unsigned else kind
