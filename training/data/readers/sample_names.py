"""Which samples files are those of by their names, and whether other files or the rows of a table are of the same ones.

Files of one sample each are in the order of the numbers in their names, in which 10 follows 9. Programs list them by
their letters, where 10 follows 1, and write rows of tables in that order; and a file may lack on one side alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import DataFile, LazyArray, ReadError
from training.data.readers.tensor_files import counts_all, numbering, of_tensors, tells_apart

TENSORS = frozenset(
    {"input", "inputs", "output", "outputs", "target", "targets", "label", "labels", "solution", "solutions"}
    | {"x", "y", "coefficient", "coefficients", "permeability", "pressure", "temperature", "velocity"}
)
"""Words of the names of folders that have one tensor of all samples."""
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def labels(names: Sequence[str | Path]) -> list[str]:
    """Return what tells files apart: the last part of their paths that no two share, without a suffix of all.

    Example:
        >>> labels(["runs/0/u.npy", "runs/1/u.npy"]), labels(["run0.npz", "run10.npz"])
        (['0', '1'], ['run0', 'run10'])
    """
    parts = [str(name).replace("\\", "/").split("/") for name in names]
    ends = {PurePosixPath(each[-1]).suffix for each in parts}
    if len(ends) == 1 and not (suffix := ends.pop())[1:].isdigit():
        parts = [[*each[:-1], each[-1].removesuffix(suffix)] for each in parts]
    for depth in range(1, min(map(len, parts)) + 1):
        if len({each[-depth] for each in parts}) == len(parts):
            return [each[-depth] for each in parts]
    if len({*map(len, parts)}) > 1:
        return ["/".join(each) for each in parts]
    varying = [at for at, column in enumerate(zip(*parts, strict=True)) if len({*column}) > 1]
    return ["/".join(each[at] for at in varying) for each in parts]


def folders_of_tensors(files: Sequence[Path]) -> dict[Path, list[Path]]:
    """Return the files of folders that have one tensor each, by their names, and a file for every sample; or nothing.

    Such are `inputs/0001.npy` and `outputs/0001.npy`, but not runs of which each has a folder of its frames.
    """
    found: dict[Path, list[Path]] = {}
    for path in files:
        found.setdefault(path.parent, []).append(path)
    counted = all(len(each) > 1 == len({NUMBER.sub("#", path.stem) for path in each}) for each in found.values())
    words = {word for folder in found for word in re.split(r"[^a-z]+", folder.name.lower())}
    return found if counted and of_tensors([*found]) and not words.isdisjoint(TENSORS) else {}


def numbers(names: Sequence[str]) -> NDArray[np.float64]:
    """Return the numbers in names that differ between them, `[name, number]`; none where names have unequal counts."""
    found = [NUMBER.findall(name) for name in names]
    if len({*map(len, found)}) > 1:
        return np.empty((len(names), 0))
    values = np.array(found, float).reshape(len(names), -1)
    return values[:, (values != values[:1]).any(axis=0)]


def unlike_names(files: Sequence[Path], others: Sequence[Path]) -> NDArray[np.bool_] | None:
    """Return where files at one place are those of other samples, by the numbers in their names or else by these.

    None where names do not tell: they have other numbers of numbers, and none is in both. Names of files that have a
    folder for each sample say nothing of it: the folders do.
    """
    folders = [path.parent for path in files]
    if folders == [path.parent for path in others] and len({*folders}) == len(folders):
        return np.zeros(len(folders), np.bool_)
    first, second = labels(files), labels(others)
    known, found = numbers(first), numbers(second)
    if known.shape == found.shape and known.shape[1]:
        return np.asarray((known != found).any(axis=1))
    return unequal(first, second) if {*first} & {*second} else None


def unlike_texts(files: Sequence[str | Path], texts: Sequence[str]) -> NDArray[np.bool_] | None:
    """Return where texts are the names of other files than those at their places; None where they are no such names."""
    if len({*texts}) < len(texts):
        return None
    first, second = labels(files), labels(texts)
    known, found = numbers(first), numbers(second)
    if known.shape == found.shape and known.shape[1] and are_shared({*map(tuple, known)}, {*map(tuple, found)}):
        return np.asarray((known != found).any(axis=1))
    return unequal(first, second) if are_shared({*first}, {*second}) else None


def unlike_numbers(files: Sequence[str | Path], values: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Return where numbers of samples are not those in the names of the files at their places.

    None where they are no such numbers, and where they follow one another otherwise, as those of lines do.
    """
    known = numbers(labels(files)).T
    if not tells_apart(values):
        return None
    if any(np.ptp(values - each) == 0 for each in known):  # files may be counted from 1 on, and rows from 0
        return np.zeros(len(values), np.bool_)
    if (np.diff(values) == 1).all():
        return None
    likely = max(known, key=lambda each: len({*values} & {*each}), default=None)
    if likely is not None and are_shared({*values}, {*likely}):
        return np.asarray(values != likely)
    return np.asarray(values != np.sort(values)) if counts_all(values) else None


def are_shared(some: set[Any], others: set[Any]) -> bool:
    """Return whether at least half of some names are among others."""
    return 2 * len(some & others) >= len(some)


def unequal(some: Sequence[str], others: Sequence[str]) -> NDArray[np.bool_]:
    """Return where names differ."""
    return np.array([one != other for one, other in zip(some, others, strict=True)])


def naming(files: Sequence[DataFile]) -> dict[str, NDArray[Any]]:
    """Return what may name the samples of tables, in their order: numbers by their names, and all texts."""
    found = [
        {**file.texts, **{name: texts_in(one) for name, one in file.arrays.items() if is_text(one)}} for file in files
    ]
    texts = {name: np.concatenate([each[name] for each in found]) for name in set.intersection(*map(set, found))}
    return numbering(files) | texts


def is_text(one: LazyArray) -> bool:
    """Return whether an array is a line of texts."""
    metadata: Any = one.dtype.metadata or {}
    return len(one.shape) == 1 and (one.dtype.kind in "US" or metadata.get("vlen") in {str, bytes})


def texts_in(one: LazyArray) -> NDArray[Any]:
    """Return a line of texts as such, those of HDF5 decoded."""
    return np.array([each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in one.read()])


def doubt_of_rows(table: Path, files: Sequence[str | Path], columns: Mapping[str, NDArray[Any]]) -> str:
    """Refuse a table whose rows are in another order than files, or are those of others, by a column of it.

    Args:
        table: Its path, for the message.
        files: Of one sample each, or the names of groups, in their order.
        columns: What `naming` found in the table.

    Returns:
        Why rows may be those of other samples, where no column tells it and there are two orders of the names.

    Raises:
        ReadError: A row is that of another file than the one at its place.
    """
    whole = {name: values for name, values in columns.items() if len(values) == len(files)}
    texts = {name: unlike_texts(files, values.tolist()) for name, values in whole.items() if values.dtype.kind in "US"}
    found = {name: unlike for name, unlike in texts.items() if unlike is not None}
    if not found:  # numbers may be those of lines, beside names
        counts = {name: unlike_numbers(files, values) for name, values in whole.items() if values.dtype.kind in "fiu"}
        found = {name: unlike for name, unlike in counts.items() if unlike is not None}
    for name, unlike in found.items():
        if unlike.any():
            at = int(unlike.argmax())
            raise ReadError(
                f"{table}: {name!r} is {whole[name][at]} at sample {at}, and expected is that of {files[at]}: bring "
                "the rows into the order of the files, in which 10 follows 9, one for each"
            )
    natural, letters = labels(files), labels(sorted(map(str, files)))
    if found or natural == letters:
        return ""
    first = int(unequal(natural, letters).argmax())
    said = (", ".join(each[max(0, first - 1) : first + 2]) for each in (natural, letters))
    return (
        f"the rows of {table.name} are taken to be in the order {' …, and not in that of letters, '.join(said)} …: a "
        "column with the names of the files would tell"
    )


def with_doubts(whole: DataFile, files: Sequence[DataFile]) -> DataFile:
    """Return files that are one, with why rows of those that are tables may be of other groups of the one with samples.

    Raises:
        ReadError: A row is that of another group than the one at its place.
    """
    if not (names := next((file.names for file in files if file.names), ())):
        return whole
    tables = [file for file in files if {one.shape for one in file.arrays.values()} == {(len(names),)}]
    doubts = (doubt_of_rows(file.path, names, naming([file])) for file in tables)
    return replace(whole, doubts=tuple(filter(None, doubts)))
