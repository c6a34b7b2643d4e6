"""A user's data files become one sample file: found, checked and copied in one pass, once for the same contents.

`training.data.dataset` has the layout: the group is the whole file, and each dataset has a summary of its values.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from glob import glob
from pathlib import Path
from types import MappingProxyType
from typing import Any

import h5py
import numpy as np
from pydantic_core import to_json

from training.data.dataset import SampleFile
from training.data.new_file import new_hdf5
from training.data.positions import known_positions, unlike_axes, unlike_positions, unlike_times
from training.data.readers import DataFile, named_in, natural, open_file
from training.data.readers.recent import open_several
from training.data.readers.unwritten import unwritten
from training.files import expect_room, locked, write_json
from training.problems.checks import check, remarks
from training.problems.columns import columns_of
from training.problems.completed import unlike_planes
from training.problems.integrals import unlike_integrals, with_integrals
from training.problems.kept_apart import Copies, Steps, beyond_training
from training.problems.pairs import check_names, check_runs, matched
from training.problems.problem import Array
from training.problems.problem_file import WEIGHTS, ProblemFile
from training.problems.sections import DataError, ProblemFileError

READ_AS = 9
"""The version of what readers make of files: raise it where values of the same files become others."""
UNVERSIONED = "unversioned"  # the attribute that has the name without the version of the readers
FIELD = ("key", "units", "meaning", "positive", "components", "component_axis", "frame", "default")
IDENTITY = {
    "inputs": FIELD,
    "parameters": ("key", "units", "meaning", "default", "minimum", "maximum"),
    "outputs": FIELD,
    "axes": ("length", "boundary", "points"),
}
"""What tells prepared samples apart, in the order that their files' names are made from."""
OPTIONAL_KEYS = {
    "offset",
    "static",
    "column",
    "complex",
    "per_frame",
    "scalar",
    "components",
    "integral_of",
    "over",
    "factor",
}  # and, where they have other values than the usual ones, these
STATISTICS = ("minimum", "maximum", "mean", "deviation")


def prepare(problem: ProblemFile, folder: Path, data: Path) -> Path:
    """Check a user's files and copy what training reads into one file, unless that was done before.

    The file's name tells what the data files hold, which tensors they are of, what the problem file says of these and
    the version of the readers, so a change of any makes a new one, and the same data copied or made again do not.

    Raises:
        ProblemFileError: A data file is missing.
        ReadError: A data file cannot be read.
        DataError: The data do not fit the problem file.
    """
    paths, own, coarse = data_files(problem, folder), tensor_files(problem, folder), problem.data.all_for_training
    every = [*paths, *(path for each in own.values() for path in each)]
    known = data / f"own-{problem.name}{'-coarse' if coarse else ''}.json"
    with locked(known), ExitStack() as stack:
        held = checksum(every, known)
        counts = {"data": len(paths), **{name: len(each) for name, each in own.items()}}
        path = data / named(problem, f"{held} {counts} {READ_AS}")
        if not path.exists():
            # Files of one tensor may have another format than those of the others.
            others = {name: stack.enter_context(open_several(each, open_file)) for name, each in own.items()}
            files = stack.enter_context(open_several(paths, partial(open_file, format_=problem.data.format)))
            write(problem, files, path, others, named(problem, held))
    return path


def prepare_coarse(problem: ProblemFile, folder: Path, data: Path, fine: SampleFile) -> SampleFile | None:
    """Check and prepare the coarse samples of a problem file beside the fine ones; None where it names none.

    Raises:
        ProblemFileError: A data file is missing.
        ReadError: A data file cannot be read.
        DataError: The data do not fit the problem file, or have no fewer points than the fine ones.
    """
    if (coarse := problem.of_coarse) is None:
        return None
    found = SampleFile(prepare(coarse, folder, data), coarse)
    if found.sides == fine.sides or any(few > many for few, many in zip(found.sides, fine.sides, strict=True)):
        few, many = (" x ".join(map(str, sides)) for sides in (found.sides, fine.sides))
        raise DataError(f"data.coarse: expected fewer points than the {many} of the other samples but found {few}")
    return found


def unversioned_samples(name: str, data: Path) -> Path | None:
    """Return the samples that had a name before names had the version of the readers; None where there are none."""
    for path in sorted(data.glob(f"{name.rpartition('-')[0]}-*.h5")):
        with h5py.File(path, locking=False) as file:
            if file.attrs.get(UNVERSIONED) == name:
                return path
    return None


def identity(problem: ProblemFile) -> bytes:
    """Return what decides how the data are read, as JSON that stays the same from version to version."""
    found: dict[str, Any] = {"data": {key: getattr(problem.data, key) for key in ("format", "validation", "test")}}
    for part, keys in IDENTITY.items():
        found[part] = {one.name: {key: getattr(one, key) for key in keys} for one in getattr(problem, part)}
        for one in getattr(problem, part) if part != "axes" else ():
            found[part][one.name] |= one.model_dump(include=OPTIONAL_KEYS, exclude_defaults=True)
    found["data"] |= problem.data.model_dump(include={"sample", "time"}, exclude_defaults=True)
    points = problem.points and problem.points.model_dump()
    for key in (WEIGHTS, "merge"):  # where they say nothing, as before there were such keys
        if points and not points[key]:
            del points[key]
    sections = {"points": points, "mask": problem.mask}
    return to_json({**found, "time": problem.time, **{key: one for key, one in sections.items() if one is not None}})


def named(problem: ProblemFile, contents: str) -> str:
    """Return the name of the file that holds samples of certain contents."""
    digest = hashlib.sha256(identity(problem) + contents.encode()).hexdigest()[:12]
    return f"own-{problem.name}-{digest}.h5"


def write(
    problem: ProblemFile,
    files: Sequence[DataFile],
    path: Path,
    others: Mapping[str, Sequence[DataFile]] = MappingProxyType({}),
    unversioned: str = "",
) -> None:
    """Check all values of open data files and write them, with a summary per tensor.

    `others` are the open files of tensors that have files of their own. `unversioned` is the file's name without the
    version of the readers, if it is another one.
    """
    said = unlike_times(problem, files)
    positions = known_positions(problem, [*files, *(file for each in others.values() for file in each)])
    said += [*unlike_positions(positions), *unlike_axes(problem, positions), *unlike_planes(files)]
    said += unwritten(dict.fromkeys(file.path for each in (files, *others.values()) for file in each))
    columns = columns_of(problem, files, others)
    said += matched(problem, columns, files, others)
    if problem.integrals:
        columns = with_integrals(problem, columns)
    expect_room(path.parent, sum(4 * column.samples * int(np.prod(column.shape)) for column in columns.values()))
    with new_hdf5(path) as file:
        for name, column in columns.items():
            shape = (column.samples, *column.shape)
            # A chunk is what is read at once: a field, or a frame of a trajectory; numbers are not divided.
            chunk = (1, 1, *column.shape[1:]) if name in problem.timed else (1, *column.shape)
            file.create_dataset(name, shape, np.float32, chunks=chunk if column.on_grid else None)

        box, copies, steps = list[Array](), Copies(problem), Steps(problem)

        def sink(name: str, start: int, values: Array) -> None:
            file[name][start : start + len(values)] = values
            copies.add(name, values)
            steps.add(name, values)
            if problem.scattered and name == "coordinates":
                train = values[: max(0, problem.data.counts(columns[name].samples)[0] - start)]
                box.extend(corner for sample in train for corner in (sample.min(axis=0), sample.max(axis=0)))

        found = check(problem, columns, sink)
        for name, summary in found.items():
            file[name].attrs.update({key: getattr(summary, key) for key in STATISTICS})
        if box:
            file["coordinates"].attrs["box"] = np.stack([np.min(box, axis=0), np.max(box, axis=0)], axis=1)
        if any(positions.values()):
            each = [known[0][1][[0, -1]].tolist() if known else [] for known in positions.values()]
            file.attrs["ends"] = json.dumps(each)
        if unversioned:
            file.attrs[UNVERSIONED] = unversioned
        integrals = unlike_integrals(problem, columns) if problem.integrals else []
        said += [*steps.remarks(), *copies.remarks(), *beyond_training(problem, file)]
        file.attrs["remarks"] = "\n".join([*remarks(columns, found), *integrals, *said])


# The files


def data_files(problem: ProblemFile, folder: Path) -> list[Path]:
    """Return the data files of a problem file that lies in `folder`, patterns resolved, in order.

    Raises:
        ProblemFileError: A name or a pattern fits no file, or several fit one.
    """
    key = "data.coarse.files" if problem.data.all_for_training else "data.files"
    found = fitting_files(problem.data.files, folder, key)
    path, count = Counter(each.resolve() for each in found).most_common(1)[0]
    if count > 1:
        raise ProblemFileError(f"{key}: expected every file once but found {path.name} {count} times")
    return found


def tensor_files(problem: ProblemFile, folder: Path) -> dict[str, list[Path]]:
    """Return the data files of the tensors that have files of their own, by their names, as `data_files` does.

    Raises:
        ProblemFileError: A name or a pattern fits no file, or every file is a sample, and tensors have those of others.
    """
    found = {
        name: fitting_files(one.files, folder, f"{name}.files") for name, one in problem.stored.items() if one.files
    }
    if problem.data.sample == "file":
        runs = {"data": data_files(problem, folder), **found}
        check_runs({name: files for name, files in runs.items() if len({path.parent for path in files}) > 1})
        check_names(runs)
    return found


def fitting_files(patterns: Sequence[str], folder: Path, label: str) -> list[Path]:
    """Return the files that patterns fit, in the order of the numbers in their names.

    Raises:
        ProblemFileError: A name or a pattern fits no file.
    """
    found: list[Path] = []
    for pattern in patterns:
        literal = folder / pattern  # whose name may hold brackets
        matches = () if literal.exists() else glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207 -- it may be absolute
        fitting = [folder / name for name in sorted(matches, key=natural)] or [literal]
        if not all(path.is_file() or path.is_dir() for path in fitting):
            raise ProblemFileError(f"{label}: expected files for {pattern!r} in {folder} but there are none")
        found += fitting
    return found


def checksum(paths: Sequence[Path], known: Path) -> str:
    """Return the SHA-256 of what files and folders, such as those of zarr, hold, whatever their names and times are.

    Files that a list of meshes or an XDMF file names are part of what it holds.

    It is kept in the JSON file `known` with paths, sizes and times, and computed anew where these have changed.
    """
    described = [
        (str(each.resolve()), each.stat().st_size, each.stat().st_mtime_ns) for path in paths for each in contents(path)
    ]
    states = hashlib.sha256(str(described).encode()).hexdigest()
    try:
        remembered = json.loads(known.read_text())
        if remembered["states"] == states:
            return str(remembered["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # there is none, or nothing to be used
    digest = hashlib.sha256()
    for path in paths:
        for each in contents(path):
            # "." for a file, which may be renamed; those that it names are beside it or below its folder.
            name = each.relative_to(path.parent if each != path and path.is_file() else path).as_posix()
            with each.open("rb") as file:
                digest.update(f"{name}\n{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    write_json(known, {"states": states, "sha256": digest.hexdigest()})
    return digest.hexdigest()


def contents(path: Path) -> Iterator[Path]:
    """Return a file and those that are read with it, or the files of a folder in order."""
    if path.is_dir():
        yield from sorted(each for each in path.rglob("*") if each.is_file())
        return
    yield from (path, *named_in(path))
