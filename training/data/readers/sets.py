"""Sets of samples in several files: files of parts, of splits, of one tensor each, and folders of a run each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from glob import escape, glob
from itertools import islice, takewhile
from pathlib import Path

import numpy as np

from training.data.readers.beside import DataSet, is_table, others_of, tables_in, with_tables, without_tables
from training.data.readers.data_file import MESHES, DataFile, LazyArray, ReadError, natural
from training.data.readers.formats import (
    LISTS,
    SUFFIXES,
    TEXT,
    UNREAD,
    XDMF,
    is_store,
    lists_of,
    meshes_in,
    named_in,
    open_file,
    refuse_parts,
)
from training.data.readers.layout import arranged, of_points_in_cells
from training.data.readers.recent import open_several
from training.data.readers.sample_names import folders_of_tensors, with_doubts
from training.data.readers.splits import (
    TEST,
    VALIDATION,
    are_splits,
    folders_of_splits,
    joined,
    samples_of,
    split_of_file,
    splits_last,
    without_split,
)
from training.data.readers.tables import kind_of_table
from training.data.readers.tensor_files import merged, of_tensors

ARRAYS = {*SUFFIXES, ".h5", ".hdf5"}
FEW = 16  # the most numbers on a line, such as the ends of a domain, that may be the same in all files
MOST_FILES = 200_000  # of a folder of runs that are looked at
SETTINGS = {".toml", ".yaml", ".yml", ".cfg", ".ini"}
FOR_PEOPLE = {".md", ".log", ".py", ".sh", ".png", ".pdf", ".xml", ".vtm", ""}
"""Suffixes of files beside the data that are not even named."""


def open_set(stack: ExitStack, given: Sequence[Path], layout: str = "auto") -> DataSet:
    """Open what describes data files: of some only the first, where they are parts of one set.

    Raises:
        ReadError: A file cannot be read, or a folder holds neither meshes nor runs.
    """
    inside = (inside_of_splits(given) or inside_of_tensors(given)) if layout == "auto" else []
    files, tables = without_tables(splits_last(inside or given))
    folders = folders_of_tensors(files)
    found = of_folders(stack, folders, layout) if folders else of_samples(stack, files, layout)
    return with_tables(stack, found, tables)


def of_samples(stack: ExitStack, files: Sequence[Path], layout: str) -> DataSet:
    """Open what describes files, or folders, that have the samples, those of splits in their order."""
    first = files[0]
    if len(files) == 1 and (found := meshes_in(first)):
        if are_splits([path.relative_to(first) for path in found]):  # by their own names
            return open_set(stack, found, layout)
        meshes = DataSet(stack.enter_context(open_file(found[0], layout)), found, first, count=len(found))
        return with_tables(stack, meshes, tables_in(first))
    if len(files) == 1 and first.is_dir() and layout == "auto" and not is_store(first):
        if beside := alone_in(first) or inside_of_tensors([each for each in sorted(first.iterdir()) if each.is_dir()]):
            return open_set(stack, beside, layout)
        return of_runs(stack, first)
    refuse_parts(files, sorted(first.parent.glob("*.pvt?")))
    opened = partial(open_file, format_=layout)
    file = stack.enter_context(opened(files[0]))
    tensors = Counter(re.sub(r"\d+", "#", without_split(path.stem)) for path in files)
    if are_splits(files) and len(tensors) > 1 and len({*tensors.values()}) == 1:
        every = stack.enter_context(open_several(files, opened))
        if any(len(each.arrays) == 1 for each in every):  # else each file has samples of all tensors
            return DataSet(tensors_of_splits(every), [*files], count=len(files))
    if are_splits(files):
        file = with_counts(file, [file, *stack.enter_context(open_several(files[1:], opened))])
    elif of_tensors(files) or len({*files} - {*filter(is_table, files)}) == 1 < len(files):
        parts = [file, *stack.enter_context(open_several(files[1:], opened))]
        file = with_doubts(merged(parts), parts)
    elif len(files) > 1:
        file = without_constants(file, files, lambda _: arrays_of(files, layout))
    return DataSet(file, [*files], count=len(files))


def of_folders(stack: ExitStack, folders: Mapping[Path, list[Path]], layout: str) -> DataSet:
    """Open what describes the files of folders of a tensor each, in which every file is a sample."""
    arrays: dict[str, LazyArray] = {}
    sources: dict[str, tuple[tuple[Path, ...], str]] = {}
    opened = {folder: stack.enter_context(open_file(files[0], layout)) for folder, files in folders.items()}
    for folder, file in opened.items():
        pattern = folder / f"*{folders[folder][0].suffix}"
        whole = {*folder.glob(pattern.name)} == {*folders[folder]}
        paths = (Path(escape(str(folder))) / pattern.name,) if whole else tuple(folders[folder])
        for name, one in file.arrays.items():
            label = folder.name if len(file.arrays) == 1 else f"{folder.name}/{name}"
            arrays[label], sources[label] = replace(one, name=label), (paths, name)
    (first, files), *_ = folders.items()
    made = replace(opened[first], arrays=arrays, sources=sources)
    return DataSet(made, files, count=len(files))


def inside_of_tensors(folders: Sequence[Path]) -> list[Path]:
    """Return the data files in folders of a tensor each, `inputs` and `outputs`; none where they are others."""
    if len(folders) < 2 or not all(path.is_dir() and not is_store(path) for path in folders):
        return []
    files = [path for each in folders for path in alone_in(each)]
    return files if folders_of_tensors(files).keys() == {*folders} else []


def arrays_of(files: Sequence[Path], layout: str) -> Iterator[Mapping[str, LazyArray]]:
    """Return the arrays of several files behind the first, each of which is open until the next one is asked for."""
    for path in others_of(files):
        with open_file(path, layout) as file:
            yield file.arrays


def arrays_of_runs(
    sources: Mapping[str, tuple[tuple[Path, ...], str]],
    names: Sequence[str],
    runs: Sequence[Path],
    wanted: Collection[str],
) -> Iterator[Mapping[str, LazyArray]]:
    """Return the arrays of several folders behind the first, by the names that they have in that one.

    Args:
        sources: Files of the first folder and names in them; none where there is one file in each.
        names: Of the files in each folder.
        runs: The folders.
        wanted: Which arrays, at least: files without any of them are not opened.
    """
    if sources:
        sources = {label: source for label, source in sources.items() if label in wanted}
        held = {path for (path,), _ in sources.values()}
        names = [name for name in names if of_run(runs[0], name) in held]
    for run in others_of(runs):
        with ExitStack() as stack:
            files = {of_run(runs[0], name): stack.enter_context(open_file(of_run(run, name))) for name in names}
            alone = next(iter(files.values())).arrays if not sources else {}
            named = {label: files[path].arrays.get(key) for label, ((path,), key) in sources.items()}
            yield {**alone, **{label: one for label, one in named.items() if one is not None}}


def without_constants(
    file: DataFile, files: Sequence[Path], opened: Callable[[Collection[str]], Iterator[Mapping[str, LazyArray]]]
) -> DataFile:
    """Return a file without numbers of all its samples that are the same in all files, such as spacings.

    Args:
        file: The first of the files, or what the first of several folders holds.
        files: All of them, or the folders.
        opened: Returns some arrays, by their names, of each of the others.
    """
    sides = {side for one in file.arrays.values() if len(one.shape) > 1 for side in one.shape}  # none of them is theirs
    found = {}
    for name, one in file.arrays.items():
        few = one.dimensions is None and len(one.shape) == 1 and one.samples <= FEW and one.samples not in sides
        if sides and (few or not one.shape):
            found[name] = np.asarray(one.rows(0, max(1, one.samples)))
    others = opened({*found})
    while found and (other := next(others, None)) is not None:  # a sweep may end with the value that it begins with
        arrays = {name: other[name] for name in found if name in other}
        read = {name: np.asarray(one.rows(0, max(1, one.samples))) for name, one in arrays.items()}
        found = {name: values for name, values in found.items() if np.array_equal(values, read.get(name, ()))}
    said = f"in {files[0].name} and in {files[-1].name}"
    left_out = {name: f"it is {values} {said}" for name, values in found.items()}
    arrays = {name: one for name, one in file.arrays.items() if name not in left_out}
    numbers = {
        name: float(values.ravel()[0])
        for name, values in found.items()
        if values.size == 1 and values.dtype.kind in "fiu"
    }
    return replace(file, arrays=arrays, left_out={**file.left_out, **left_out}, constants=numbers)


def with_counts(file: DataFile, parts: Sequence[DataFile]) -> DataFile:
    """Return a file with the numbers of samples that the files of its splits have."""
    counts: dict[int, dict[int | None, int]] = {0: {}, -1: {}}
    for axis, found in counts.items():
        for part in parts:
            split = split_of_file(part.path)
            found[split] = found.get(split, 0) + samples_of(part.arrays, axis=axis)
    first, last = ((found.get(VALIDATION, 0), found.get(TEST, 0)) for found in counts.values())
    return replace(file, validation=first[0], test=first[1], turned=last)


def tensors_of_splits(files: Sequence[DataFile]) -> DataFile:
    """Return open files of one tensor and one split each, such as `x_train` and `x_test`, as one file of tensors."""
    parts: dict[str, list[DataFile]] = {}
    for file in files:
        parts.setdefault(without_split(file.path.stem), []).append(file)
    whole = []
    for name, each in parts.items():
        key = next(iter(each[0].arrays))
        if any({*file.arrays} != {key} for file in each):
            raise ReadError(f"{each[0].path}: expected one array, in every file of {name}, of the same name")
        whole.append(replace(each[0], arrays={name: joined(name, [file.arrays[key] for file in each])}))
    made = merged(whole)
    sources = {name: (tuple(file.path for file in each), next(iter(each[0].arrays))) for name, each in parts.items()}
    return with_counts(replace(made, sources=sources), next(iter(parts.values())))


def alone_in(folder: Path) -> list[Path]:
    """Return the data files of a folder that has some and no folders of data."""
    every = [path for path in sorted(folder.iterdir(), key=natural) if not path.name.startswith(".")]
    files = [path for path in every if path.suffix.lower() in ARRAYS]
    if are_splits(fields := [path for path in files if path.suffix.lower() != ".json"]):
        files = fields  # beside which there is their configuration
    files = files or [path for path in every if path.suffix.lower() in TEXT and path.is_file() and kind_of_table(path)]
    return files if not any(path.is_dir() and path not in files for path in every) else []


# Folders of a run each


def of_runs(stack: ExitStack, folder: Path) -> DataSet:
    """Open the files of the first run of a folder, as one file whose arrays have an axis of samples.

    Raises:
        ReadError: The folder holds no runs, or a series of steps in each.
    """
    if (folder / "system" / "controlDict").exists():
        raise ReadError(f"{folder}: expected data files but found an OpenFOAM case: foamToVTK saves its meshes")
    if files := inside_of_splits(folders_of_splits(folder)) or list_of_one_run(folder):
        return open_set(stack, files)
    runs, named = runs_of(folder)
    depth = {len(run.relative_to(folder).parts) for run in runs}
    if len(runs) < 2 or len(depth) > 1:
        raise ReadError(
            f"{folder}: expected data files, meshes, a zarr store or a folder for each run, one as another, but found "
            f"{inventory(folder, runs)}"
        )
    counts = Counter(name for names in named for name in names)
    usual = [name for name in sorted(named[0]) if counts[name] == len(runs)]
    xdmf = (of_run(runs[0], name) for name in usual if Path(name).suffix.lower() in XDMF)
    within = {path for each in xdmf for path in named_in(each)}  # files of its numbers
    usual = [name for name in usual if of_run(runs[0], name) not in within]
    left_out = {
        name: f"a file in {count} of {len(runs)} folders" for name, count in sorted(counts.items()) if count < len(runs)
    }
    left_out |= {name: unread(Path(name).suffix.lower()) for name in usual if Path(name).suffix.lower() not in ARRAYS}
    usual = [name for name in usual if name not in left_out]
    if not (lists := [str(path) for path in lists_of(map(Path, usual))]) and is_series(usual):
        file = stack.enter_context(open_file(runs[0], "series"))
        beside = [name for name in usual if SUFFIXES.get(Path(name).suffix.lower()) != "mesh"]
        left_out |= dict.fromkeys(beside, "the meshes beside it are the steps of a series")
        pattern = "/".join([escape(str(folder)), *["*"] * depth.pop()])
        return DataSet(replace(file, left_out={**file.left_out, **left_out}), [Path(pattern)], runs=folder)
    if lists:  # whose steps are no samples
        usual = [name for name in usual if name in lists or SUFFIXES.get(Path(name).suffix.lower()) != "mesh"]
    opened = {name: stack.enter_context(open_file(of_run(runs[0], name))) for name in usual}
    meshes = {name: file.arrays["coordinates"].shape for name, file in opened.items() if file.format in MESHES}
    inner = max(meshes, key=lambda name: meshes[name], default="")  # its boundary may be a mesh of its own
    left_out |= {name: f"the mesh of {inner} has more points" for name in meshes if name != inner}
    chosen = [name for name in (inner, *usual) if name and name not in left_out]
    chosen = sorted({*chosen}, key=lambda name: (name != inner, opened[name].format == "json", name))
    if not chosen:
        raise ReadError(f"{folder}: expected files of the same name in all {len(runs)} folders but found none")
    file = merged([opened[name] for name in chosen]) if len(chosen) > 1 else opened[chosen[0]]
    if len(chosen) > 1 and not file.sources:
        left_out |= dict.fromkeys(chosen[1:], f"its arrays have the names of those in {chosen[0]}")
        chosen = chosen[:1]
    file = without_constants(file, runs, partial(arrays_of_runs, file.sources, chosen, runs))
    place = "/".join([escape(str(folder)), *["*"] * depth.pop()])
    patterns = {of_run(runs[0], name): pattern_of(place, name, runs) for name in chosen}
    if len(chosen) > 1:
        sources = {label: ((Path(patterns[path]),), key) for label, ((path,), key) in file.sources.items()}
        file = replace(file, sources=sources, format=opened[chosen[0]].format)
    file = replace(one_sample(file, opened, chosen), left_out={**file.left_out, **left_out})
    if inner:  # whose nodes fields in other files belong to
        arrays = {name: of_points_in_cells(one, opened[inner].in_cells) for name, one in file.arrays.items()}
        file = replace(file, arrays=arrays)
    found = DataSet(file, [Path(patterns[of_run(runs[0], chosen[0])])], runs=folder, count=len(runs))
    return with_tables(stack, found, tables_in(folder))


def unread(suffix: str) -> str:
    """Say that files beside the data are not read."""
    if suffix in SETTINGS:
        return "settings of each run: if the outputs depend on them, save them as .json, which is read"
    return f"{suffix} is not read"


def inventory(folder: Path, runs: Sequence[Path]) -> str:
    """Say what a folder holds that is no set of samples: files by their suffixes, and folders of unequal depth."""
    kinds = Counter(path.suffix.lower() for path in islice(folder.rglob("*"), MOST_FILES) if path.is_file())
    found = [
        f"{count} file{'s' * (count > 1)} {suffix or 'without a suffix'}" for suffix, count in kinds.most_common(5)
    ]
    reasons = [f"{suffix} is not read: {UNREAD[suffix]}" for suffix, _ in kinds.most_common(5) if suffix in UNREAD]
    depths = {len(run.relative_to(folder).parts): run for run in runs}
    reasons += [f"{' and '.join(map(str, depths.values()))} are of unequal depth"] * (len(depths) > 1)
    return "; ".join([", ".join(found) or "nothing", *reasons])


def inside_of_splits(folders: Sequence[Path]) -> list[Path]:
    """Return the data files in a folder for each split, `train` and `test`; none where they are others."""
    if len(folders) < 2 or not all(path.is_dir() and not is_store(path) for path in folders):
        return []
    files = [path for each in folders for path in alone_in(each)]
    return files if {path.parent for path in files} == {*folders} and are_splits(files) else []


def list_of_one_run(folder: Path) -> list[Path]:
    """Return the list of meshes of one run alone, as `VTK/case.vtm.series` in a case of OpenFOAM; none of others."""
    runs, _ = runs_of(folder)
    return lists_of(runs[0].iterdir())[:1] if len(runs) == 1 else []


def one_sample(file: DataFile, opened: dict[str, DataFile], chosen: list[str]) -> DataFile:
    """Return merged files of one run with an axis of samples in every array that has none yet."""
    counted = {id(one.rows) for name in chosen for one in opened[name].arrays.values() if opened[name].samples}
    whole = arranged(replace(file, samples=""), "file")[0].arrays
    return replace(
        file, arrays={name: one if id(one.rows) in counted else whole[name] for name, one in file.arrays.items()}
    )


def runs_of(folder: Path) -> tuple[list[Path], list[set[str]]]:
    """Return the folders that hold data files, and the names of the files in each, `<run>` for the folder's."""
    found: dict[Path, set[str]] = {}
    for number, path in enumerate(folder.rglob("*")):
        if number > MOST_FILES:
            raise ReadError(f"{folder}: expected at most {MOST_FILES} files")
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden and path.suffix.lower() not in FOR_PEOPLE and path.parent != folder:
            found.setdefault(path.parent, set()).add(path.name)
    read = {path: names for path, names in found.items() if any(Path(name).suffix.lower() in ARRAYS for name in names)}
    listing = {path for path, names in read.items() if any(Path(name).suffix.lower() in LISTS for name in names)}
    read = {path: names for path, names in read.items() if listing.isdisjoint(path.parents)}  # of frames in a list
    runs = sorted(read, key=natural)
    same = set[str]().union(*read.values()).intersection(*read.values())  # `step_1` in the folders 1 and 2
    return runs, [
        {name if name in same else name.replace(word_of(run / name, folder), "<run>") for name in read[run]}
        for run in runs
    ]


def word_of(path: Path, folder: Path) -> str:
    """Return the name of the folder that the name of a file has in it: its own, or one above as of OpenFOAM's cases."""
    above = [each.name for each in path.parent.relative_to(folder).parents if each.name]
    alone = "(?<![A-Za-z0-9]){}(?![A-Za-z0-9])"
    inside = (word for word in above if not word.isdigit() and re.search(alone.format(re.escape(word)), path.name))
    return path.parent.name if path.parent.name in path.name else next(inside, path.parent.name)


def pattern_of(place: str, name: str, runs: Sequence[Path]) -> str:
    """Return a pattern of the files that have a name in all runs, and of no other file there.

    `place` is the pattern of the runs' folders.

    Raises:
        ReadError: Every pattern fits another file, too, which would become a sample.
    """
    wanted = {of_run(run, name) for run in runs}
    letters = zip(*(run.name for run in runs), strict=False)
    start = "".join(each[0] for each in takewhile(lambda each: len({*each}) == 1, letters))
    before, mark, after = name.partition("<run>")  # several wildcards fit more than one
    before, after = escape(before), escape(after).replace("<run>", "*")
    tried = [before + each + after for each in dict.fromkeys(("*", f"{escape(start)}*"))] if mark else [escape(name)]
    for pattern in (f"{place}/{each}" for each in tried):
        beside = {Path(found) for found in glob(pattern)} - wanted  # noqa: PTH207 -- as problem files are read
        if not beside:
            return pattern
    raise ReadError(
        f"{place}: expected a pattern for {of_run(runs[0], name).name}, … alone but {min(beside)} has such a name, "
        "too: move it elsewhere, or give the files of all runs one name"
    )


def of_run(run: Path, name: str) -> Path:
    """Return the file of a run that has a name in all of them."""
    words = (run.name, *(each.name for each in run.parents if each.name))
    found = (run / name.replace("<run>", word) for word in words)
    return next((path for path in found if path.exists()), run / name.replace("<run>", run.name))


def is_series(names: list[str]) -> bool:
    """Return whether files are the steps of one trajectory: mesh files whose names differ by a number alone."""
    meshes = (Path(name) for name in names if SUFFIXES.get(Path(name).suffix.lower()) == "mesh")
    series = Counter((re.sub(r"\d+", "#", path.stem), path.suffix) for path in meshes)
    return any(count > 2 and "#" in stem for (stem, _), count in series.items())
