"""Files of a tensor each: which files are, how they become one, and in which order each has the samples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import DataFile
from training.data.readers.splits import last_name
from training.data.readers.wide import fields_in

COUNTING = frozenset({"sample", "sample_id", "case", "case_id", "run", "run_id", "simulation", "sim", "sim_id", "id"})
"""Names of columns that tell which rows of a table are those of one sample."""
NUMBERS = COUNTING | {"ids", "uid", "idx", "index", "indices", "number"}
NUMBERS |= {"column 1"}  # as tables without a name for it have the index of pandas
"""Names of arrays that number samples."""
UNNAMED = "array"  # what readers call the one array of a file that has no names
NUMERAL = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
MOST_TENSORS = 16  # the most files that are taken for one tensor each


def of_tensors(files: Sequence[Path]) -> bool:
    """Return whether several files are those of one tensor each by their names, which differ by more than numbers.

    Example:
        >>> of_tensors([Path("x_1.npy"), Path("y_1.npy")]), of_tensors([Path("u_Nu1e-3_a.npy"), Path("u_Nu0.5_a.npy")])
        (True, False)
    """
    stems = {NUMERAL.sub("#", path.stem) for path in files}
    return 1 < len(files) == len(stems) <= MOST_TENSORS


def merged(files: Sequence[DataFile]) -> DataFile:
    """Return open files of one tensor each as one file, its arrays named by the files where theirs are alike.

    Files that hold several arrays of the same names are parts of one set, and the first one of them is returned.
    """
    alone = len({file.format for file in files}) == 1
    files = without_labels(files if alone else [with_columns(file) for file in files])
    names = [name for file in files for name in file.arrays if name != UNNAMED]
    alike = len({*names}) < len(names)
    if alike and any(len(file.arrays) > 1 for file in files):
        return files[0]
    labels = [
        (file, name, file.path.stem if alike or name == UNNAMED else name) for file in files for name in file.arrays
    ]
    arrays = {label: replace(file.arrays[name], name=label) for file, name, label in labels}
    sources = {label: ((file.path,), name) for file, name, label in labels}
    formats = {file.format for file in files}
    left_out = {
        name if file is files[0] else f"{file.path.name}: {name}": reason
        for file in files
        for name, reason in file.left_out.items()
    }
    kind = formats.pop() if len(formats) == 1 else "auto"
    return replace(files[0], format=kind, arrays=arrays, sources=sources, left_out=left_out)


def with_columns(table: DataFile) -> DataFile:
    """Return a table with the columns of its fields as numbers of their own: fields are in other files than these."""
    fields = fields_in(table.parts)
    columns = {name: table.parts[name] for _, names in fields.values() for name in names}
    arrays = {name: one for name, one in table.arrays.items() if name not in fields}
    return replace(table, arrays={**arrays, **columns})


def without_labels(files: Sequence[DataFile]) -> list[DataFile]:
    """Return files without the numbers of samples, and what their runs were made with, that an earlier one has."""
    found: list[DataFile] = []
    for file in files:
        known = {name for each in found for name in each.arrays}
        again = {
            name for name, one in file.arrays.items() if name in known and (one.setting or name.lower() in NUMBERS)
        }
        found.append(replace(file, arrays={name: one for name, one in file.arrays.items() if name not in again}))
    return found


def counts_all(values: NDArray[Any]) -> bool:
    """Return whether numbers follow one another, in whatever order they are."""
    return values.dtype.kind in "fiu" and bool((np.diff(np.sort(values)) == 1).all())


def tells_apart(values: NDArray[Any]) -> bool:
    """Return whether every number is a whole one of its own, as those of the runs that are left of a campaign are."""
    whole = values.dtype.kind in "fiu" and bool((values == np.round(values)).all())
    return whole and len(np.unique(values)) == len(values)


def numbering(files: Sequence[DataFile]) -> dict[str, NDArray[Any]]:
    """Return what tells the samples of some files apart, in their order: what all of them have, by its name."""
    found: list[dict[str, NDArray[Any]]] = []
    for file in files:
        arrays = {last_name(one): one for one in file.arrays.values() if len(one.shape) == 1}
        found.append({**{name: arrays[name].read() for name in arrays.keys() & NUMBERS}, **file.numbering})
    return {name: np.concatenate([each[name] for each in found]) for name in set.intersection(*map(set, found))}
