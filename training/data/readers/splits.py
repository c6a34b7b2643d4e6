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

from schema.problem import TIMES
from training.data.readers.data_file import DataFile, LazyArray
from training.data.readers.layout import samples_last

VALIDATION, TEST = 1, 2
SPLITS = {"train": 0, "training": 0, "test": TEST, "testing": TEST}
SPLITS |= dict.fromkeys(("valid", "val", "validation", "dev"), VALIDATION)
"""What groups and files of samples for training, validation and test are called."""
LOOKED_AT_BYTES = 1 << 24  # of an array, to see how much neighbours have in common
SPACE = frozenset({"x", "y", "z", "lat", "lon", "latitude", "longitude", "x_coordinate", "y_coordinate"})
"""Names of arrays that hold the coordinates of an axis."""


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


# Arrays of splits in one file, by their names


WORD = re.compile(rf"(?i)(?<![a-z])(?:{'|'.join(sorted(SPLITS, key=len, reverse=True))})(?![a-z])")


def rank_and_stem(name: str) -> tuple[int, str] | None:
    """Return which split an array is that of, and its name without the word that says it; None of others.

    Example:
        >>> rank_and_stem("x_train"), rank_and_stem("test.y"), rank_and_stem("X_train0"), rank_and_stem("ytest")
        ((0, 'x'), (2, 'y'), (0, 'X0'), (2, 'y'))
        >>> rank_and_stem("strain"), rank_and_stem("u")
        ((0, 's'), None)
    """
    if len(found := WORD.findall(name)) == 1:
        before, after = WORD.split(name)
        before, after = before.rstrip("_-./ "), after.lstrip("_-./ ")
        return SPLITS[found[0].lower()], f"{before}{'_' if before and after and not after.isdigit() else ''}{after}"
    for word, rank in SPLITS.items():  # xtrain, which `strain` may be, too: another split of the same name decides
        if name.lower().endswith(word) and len(name) > len(word):
            return rank, name[: -len(word)]
    return None


def with_splits_joined(file: DataFile) -> DataFile:
    """Return a file of arrays of splits, such as `x_train` and `x_test`, with one array `x` in the order of the splits.

    Samples are on the first axis of it, whichever axis is longer in one split than in another. A file that is itself
    that of one split has its arrays without the word. The arrays of single splits keep their names, too.
    """
    every: dict[str, dict[int, LazyArray]] = {}
    for name, one in file.arrays.items():
        if found := rank_and_stem(name):
            every.setdefault(found[1] or "data", {})[found[0]] = one
    own = split_of(file.path.stem)
    single = {stem: each[own].name for stem, each in every.items() if own is not None and {*each} == {own}}
    alone = {stem for stem, name in single.items() if is_of_split(name, file)}
    parts = {
        stem: each
        for stem, each in every.items()
        if stem not in file.arrays and ((0 in each and len(each) > 1) or stem in alone)
    }
    if file.pieces or not parts or len({frozenset(each) for each in parts.values()}) > 1:
        return file
    ordered = {stem: [each[rank] for rank in sorted(each)] for stem, each in parts.items()}
    axes = {stem: axis_of_splits(each) for stem, each in ordered.items()}
    fields = [stem for stem, each in ordered.items() if len(each[0].shape) > 1 and axes[stem] is not None]
    if not fields or None in axes.values():
        return file
    turned = {stem: [along_first(one, axes[stem]) for one in each] for stem, each in ordered.items()}
    counts = [one.samples for one in turned[fields[0]]]
    arrays = {stem: whole(stem, each, counts) for stem, each in turned.items()}
    named = {one.name for each in parts.values() for one in each.values()}
    ranks = dict(zip(sorted(parts[fields[0]]), counts, strict=True)) if len(counts) > 1 else {}
    example = " and ".join(one.name for one in ordered[fields[0]])
    return replace(
        file,
        arrays={**arrays, **{name: one for name, one in file.arrays.items() if name not in named}},
        parts={**file.parts, **file.arrays},
        validation=ranks.get(VALIDATION, file.validation),
        test=ranks.get(TEST, file.test),
        samples=file.samples or ("the splits" if len({*counts}) > 1 else ""),
        remarks=(*file.remarks, f"{fields[0]} has the samples of {example}"),
    )


def is_of_split(name: str, file: DataFile) -> bool:
    """Return whether the name of an array in a file of one split says the split, too: by a word, or as all names do.

    A `strain` beside other arrays is no `s` of the training.
    """
    sampled = [key for key, one in file.arrays.items() if one.shape and last_name(one) not in TIMES | SPACE]
    return bool(WORD.search(name)) or (len(sampled) > 1 and None not in map(rank_and_stem, sampled))


def axis_of_splits(each: Sequence[LazyArray]) -> int | None:
    """Return the axis that counts samples in the arrays of splits, which is longer in one of them than in others.

    Of arrays of one shape it is the first, or the last one where neighbours along that alone have little in common.
    None where several axes differ.
    """
    shapes = [one.shape for one in each]
    if len({len(shape) for shape in shapes}) > 1 or not shapes[0]:
        return None
    differ = [axis for axis, sides in enumerate(zip(*shapes, strict=True)) if len({*sides}) > 1]
    named = any(one.dimensions is not None for one in each)
    if differ:
        return differ[0] if len(differ) == 1 and differ[0] in ({0} if named else {0, len(shapes[0]) - 1}) else None
    if len(shapes[0]) < 2 or named or each[0].dtype.kind != "f":
        return 0
    values = each[0].read(0, int(np.clip(LOOKED_AT_BYTES // max(1, each[0].sample_bytes), 2, 64))).astype(np.float64)
    values[~np.isfinite(values)] = np.nan
    if not np.isfinite(values).any():
        return 0
    return len(shapes[0]) - 1 if 3 * roughness(values, 0) < roughness(values, -1) else 0


def along_first(one: LazyArray, axis: int | None) -> LazyArray:
    """Return an array with an axis first, which is that or the last one."""
    return one if not axis else samples_last(one)


def roughness(values: NDArray[np.float64], axis: int) -> float:
    """Compute the mean squared difference of neighbours along an axis in units of that of any two values.

    It is 1 for independent neighbours and near 0 for a smooth change; NaN, as outside a domain, is left out.
    """
    spread = 2 * float(np.nanvar(values))
    if values.shape[axis] < 2 or not spread > 0:
        return 1.0
    return float(np.nanmean(np.square(np.diff(values, axis=axis)))) / spread


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
