"""Numbers beside several files or folders: tables with a row for each of them, and files of settings of each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from glob import escape, glob
from itertools import chain, takewhile
from pathlib import Path

import numpy as np

from training.data.readers.data_file import MESHES, DataFile, LazyArray, natural
from training.data.readers.formats import SUFFIXES, is_store, open_file
from training.data.readers.sample_names import doubt_of_rows, naming
from training.data.readers.splits import are_splits, last_name
from training.data.readers.tensor_files import NUMBERS, of_tensors, tells_apart, with_columns

LOOKED_AT = 8  # of several files, first, to see whether numbers are the same in all of them
MOST_LOOKED_AT = 1_000  # of them, where numbers are the same in these


@dataclass(frozen=True)
class DataSet:
    """What `describe` is called with: the first file, or one of all tensors, and all files in their order."""

    file: DataFile
    files: list[Path]
    folder: Path | None = None  # of meshes, all of which are samples
    runs: Path | None = None  # a folder of folders, each of which is one sample; `files` are then a pattern
    count: int = 1  # of files or, where they are runs, of folders


def is_table(path: Path) -> bool:
    """Return whether a file is a table, or of numbers by their names, by its suffix."""
    return path.is_file() and SUFFIXES.get(path.suffix.lower()) in {"csv", "json"}


def tables_in(folder: Path) -> list[Path]:
    """Return the tables of a folder."""
    return [path for path in sorted(folder.iterdir(), key=natural) if is_table(path)]


def without_tables(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return files of one sample each, or a folder of them, and the tables beside; no tables where they are others."""
    tables = [path for path in files if is_table(path)]
    others = [path for path in files if path not in tables]
    folder = any(path.is_dir() and not is_store(path) for path in others)
    return (others, tables) if folder or (len(others) > 1 and not of_tensors(files)) else ([*files], [])


def with_tables(stack: ExitStack, found: DataSet, tables: Sequence[Path]) -> DataSet:
    """Return a set whose files, or folders, are samples, with the numbers of tables that have a row for each of them.

    Those of other tables are left out by name.

    Raises:
        ReadError: A column of a table says that its rows are in another order than the files.
    """
    axes = (1,) if found.runs is not None or found.file.format in MESHES else ()
    if settings := of_each(found, tables):
        found = replace(found, file=with_settings(found.file, settings, axes))
        tables = [path for path in tables if path not in settings]
    file = found.file
    arrays, sources, left_out = dict(file.arrays), dict(file.sources), dict(file.left_out)
    remarks, doubts = [*file.remarks], [*file.doubts]
    known = {path.resolve() for paths, _ in sources.values() for path in paths}
    samples = files_of(found)
    for path in tables:
        if path.resolve() in known:
            continue
        table = with_columns(stack.enter_context(open_file(path)))
        if {one.shape for one in table.arrays.values()} != {(found.count,)}:
            left_out[path.name] = f"a table, but not of numbers in a row for each of {found.count} samples"
            continue
        remarks.append(f"{path.name} has a row for each of {found.count} samples, in the order of their names")
        doubt = doubt_of_rows(path, samples, naming([table])) if len(samples) == found.count else ""
        left_out |= {f"{path.name}: {name}": reason for name, reason in table.left_out.items()}
        for name, one in table.arrays.items():
            values = one.read()
            if last_name(one) in NUMBERS and tells_apart(values):
                left_out[f"{path.name}: {name}"] = "it numbers the samples"
            elif name in arrays:
                left_out[f"{path.name}: {name}"] = "its name is that of an array of the samples"
            else:
                least = np.fmin.reduce(values)  # which tells whether all are positive
                arrays[name] = replace(LazyArray.of(name, np.full(axes, least)), units=one.units)
                sources[name] = ((path,), name)
        doubts += [doubt] if doubt and any(paths == (path,) for paths, _ in sources.values()) else []
    file = replace(file, arrays=arrays, sources=sources, left_out=left_out)
    return replace(found, file=replace(file, remarks=tuple(remarks), doubts=tuple(doubts)))


def files_of(found: DataSet) -> list[Path]:
    """Return the files of a set, of runs those of one array, in the order in which its problem file will name them."""
    if found.runs is not None:
        return [Path(name) for name in sorted(glob(str(found.files[0])), key=natural)]  # noqa: PTH207 -- as they are read
    pattern = not are_splits(found.files) and common_pattern(found.files)  # and a shell lists them by letters
    return sorted(found.files, key=natural) if pattern else found.files


def common_pattern(files: Sequence[Path]) -> str:
    """Return a pattern that fits several files and no other in their folder; nothing where there is none."""
    start = "".join(
        letters[0]
        for letters in takewhile(lambda each: len({*each}) == 1, zip(*(path.name for path in files), strict=False))
    )
    ends = {path.suffix for path in files}
    pattern = f"{escape(start.rstrip('0123456789'))}*{ends.pop()}"
    fitting = {*files[0].parent.glob(pattern)}  # files in other folders have names of their own
    return pattern if len(files) > 1 and not ends and start and fitting == {*files} else ""


def of_each(found: DataSet, files: Sequence[Path]) -> list[Path]:
    """Return the file of settings beside each file of a set, `run1.json` of `run1.vtu`; none where one has none."""
    named = {path.stem: path for path in files if SUFFIXES[path.suffix.lower()] == "json"}
    alike = found.runs is None and found.count > 1 and {path.stem for path in found.files} <= named.keys()
    return [named[path.stem] for path in found.files] if alike else []


def with_settings(file: DataFile, settings: Sequence[Path], axes: tuple[int, ...]) -> DataFile:
    """Return the first of several files with the numbers of its settings, but those that are the same in all."""
    every = []
    for path in (settings[0], *others_of(settings)):
        with open_file(path) as opened:
            numbers = {name: one for name, one in opened.arrays.items() if one.shape == () and name not in file.arrays}
            every.append({name: np.asarray(one.rows(0, 1)) for name, one in numbers.items()})
    first, *others = every
    same = {
        name: one for name, one in first.items() if all(np.array_equal(one, each.get(name, np.nan)) for each in others)
    }
    changing = {name: one for name, one in first.items() if name not in same and all(name in each for each in others)}
    folder = settings[0].parent
    whole = {path for path in folder.iterdir() if path.suffix == settings[0].suffix} == {*settings}
    places = (Path(escape(str(folder))) / f"*{settings[0].suffix}",) if whole else tuple(settings)
    said = f"in {settings[0].name} and in {settings[-1].name}"
    return replace(
        file,
        arrays={
            **file.arrays,
            **{name: LazyArray.of(name, one.reshape(axes), setting=True) for name, one in changing.items()},
        },
        sources={**file.sources, **{name: (places, name) for name in changing}},
        left_out={**file.left_out, **{name: f"it is {one} {said}" for name, one in same.items()}},
        constants={**file.constants, **{name: float(one) for name, one in same.items()}},
    )


def others_of(items: Sequence[Path]) -> list[Path]:
    """Return files or folders behind the first: a few up to the last, which mostly tell, and then the others."""
    last = len(items) - 1
    numbers = [np.linspace(1, last, min(count, last), dtype=int).tolist() for count in (LOOKED_AT, MOST_LOOKED_AT)]
    return [items[number] for number in dict.fromkeys(chain(*numbers))]
