"""Splits of samples by the names of groups and files, and how those for training, validation and test become one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import DataFile, LazyArray

VALIDATION, TEST = 1, 2
SPLITS = {"train": 0, "training": 0, "test": TEST, "testing": TEST}
SPLITS |= dict.fromkeys(("valid", "val", "validation", "dev"), VALIDATION)
"""What groups and files of samples for training, validation and test are called."""
TIMES = frozenset({"t", "time", "times", "t_coordinate", "timesteps", "time_steps", "tspan", "sim_time"})
SPACE = frozenset({"x", "y", "z", "lat", "lon", "latitude", "longitude", "x_coordinate", "y_coordinate"})
"""Names of arrays that hold the times of frames, and the coordinates of an axis."""


def last_name(one: LazyArray) -> str:
    """Return the name of an array without those of its groups or structs, and without a hash, in small letters."""
    return re.sub(r"_hash_[0-9a-f]+$", "", re.split(r"[/.]", one.name.lower())[-1])  # as Dedalus names its axes


def split_of(name: str) -> int | None:
    """Return which split the name of a group or file is that of, in the order of training, validation and test."""
    found = {SPLITS[word] for word in re.split(r"[^a-z]+", name.lower()) if word in SPLITS}
    return found.pop() if len(found) == 1 else None


def without_split(name: str) -> str:
    """Return the name of a file without the word that says of which split it is."""
    return "_".join(word for word in re.split(r"[_\-. ]+", name) if word.lower() not in SPLITS)


def split_of_file(path: Path) -> int | None:
    """Return which split a file is that of, by its name or else by that of its folder."""
    found = split_of(path.stem)
    return split_of(path.parent.name) if found is None else found


def are_splits(files: Sequence[Path]) -> bool:
    """Return whether several files are those of different splits by their names, or those of their folders."""
    found = [split_of_file(path) for path in files]
    return len({*found}) > 1 and None not in found


def splits_last(files: Sequence[Path]) -> list[Path]:
    """Return files with those for validation and those for tests at the end, where their names tell which they are."""
    return sorted(files, key=lambda path: split_of_file(path) or 0) if are_splits(files) else [*files]


def folders_of_splits(folder: Path) -> list[Path]:
    """Return the folders in a folder, where each is that of a split by its name; none where it is another."""
    inner = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    splits = {split_of(path.name) for path in inner}
    return inner if len(splits) > 1 and None not in splits else []


def files_of_splits(files: Sequence[Path]) -> tuple[int, int]:
    """Return the numbers of files for validation and for tests, which are those of samples where each file is one."""
    found = Counter(map(split_of_file, files) if are_splits(files) else ())
    return found[VALIDATION], found[TEST]


def samples_of(arrays: Mapping[str, LazyArray], start: str = "", axis: int = 0) -> int:
    """Return the number of samples that most fields have whose names begin so, or most arrays where none is a field.

    Neither attributes, which are single numbers, nor coordinates of axes, which are lines of them, count samples.
    """
    found = [one for name, one in arrays.items() if name.startswith(start) and one.shape]
    fields = [one for one in found if len(one.shape) > 1 and np.prod(one.shape[1:]) > 1]
    counts = Counter(one.shape[axis] for one in fields or found)
    return max(counts, key=lambda count: (counts[count], count), default=0)


def joined(name: str, each: list[LazyArray]) -> LazyArray:
    """Return arrays one after the other along the samples' axis; of numbers without axes, the first."""
    if len(each) == 1 or not each[0].shape:
        return replace(each[0], name=name)

    def rows(start: int, stop: int) -> NDArray[Any]:
        found, first = [], 0
        for one in each:
            if start < first + one.samples and stop > first:
                found.append(one.read(max(0, start - first), stop - first))
            first += one.samples
        return np.concatenate(found) if found else each[0].read(0, 0)

    shape = (sum(one.samples for one in each), *each[0].shape[1:])
    return replace(each[0], name=name, shape=shape, dtype=np.result_type(*(one.dtype for one in each)), rows=rows)


def whole(name: str, each: list[LazyArray], counts: Sequence[int]) -> LazyArray:
    """Return the arrays of one name in splits of `counts` samples: one after the other, or one that all splits share.

    Those are lines of numbers that are the same in all of them, and are not as many as samples, or have the name of
    times or coordinates.
    """
    sampled = all(one.samples == count for one, count in zip(each, counts, strict=True))
    along = not sampled or last_name(each[0]) in TIMES | SPACE
    if along and all(len(one.shape) == 1 and one.shape == each[0].shape for one in each):
        first = each[0].read()
        if all(np.array_equal(one.read(), first) for one in each[1:]):
            return replace(each[0], name=name)
    return joined(name, each)


def of_splits(
    path: Path, groups: Sequence[str], arrays: Mapping[str, LazyArray], format_: str = "hdf5"
) -> DataFile | None:
    """Describe a file of a group for each split, such as `train/u` and `test/u`, one after the other as `u`.

    None where the groups are otherwise. The arrays of single groups keep their names, too.
    """
    ranks = {group: rank for group in groups if (rank := split_of(group)) is not None}
    ordered = sorted(ranks, key=lambda group: ranks[group])
    if len(ordered) < len(groups):
        return None
    names = [{name.partition("/")[2] for name in arrays if name.startswith(f"{group}/")} for group in ordered]
    if not groups or len({*ranks.values()}) < len(groups) or any(each != names[0] for each in names):
        return None
    found = {}
    for name in (name.partition("/")[2] for name in arrays if name.startswith(f"{ordered[0]}/")):
        each = [arrays[f"{group}/{name}"] for group in ordered]
        if len({(one.shape[1:], len(one.shape)) for one in each}) > 1:
            return None
        found[name] = whole(name, each, [samples_of(arrays, f"{group}/") for group in ordered])
    remarks = (f"the samples of {', '.join(ordered)} one after the other",) if len(ordered) > 1 else ()
    counts = {ranks[group]: samples_of(arrays, f"{group}/") for group in ordered if len(ordered) > 1}
    kept = counts.get(VALIDATION, 0), counts.get(TEST, 0)
    return DataFile(path, format_, found, remarks=remarks, parts=arrays, validation=kept[0], test=kept[1])
