"""A first problem file for data without a description: what the files tell, and guesses that are marked.

A guess stands as a comment at its line (`sections.mark`). Of outputs, of the sample axis, of time, of points and of
what is known in advance it has to be confirmed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from glob import escape
from pathlib import Path

import numpy as np

from schema.problem import TIMES
from training.data.readers import (
    MESHES,
    SPACE,
    DataFile,
    LazyArray,
    are_splits,
    arranged,
    common_pattern,
    files_of_splits,
    folders_of_splits,
    is_complex,
    last_axis_at,
    last_name,
    real_part,
    unlike_samples,
)
from training.problems.ambiguity import (
    COMPONENTS,
    STEPS,
    frames_of,
    lines_of_grids,
    numbers_samples,
    repeated_row,
    sample_axis,
    times_of,
    times_of_samples,
)
from training.problems.columns import NUMERIC
from training.problems.draft_axes import AXIS_NAMES, without_components
from training.problems.draft_file import Draft, shown
from training.problems.draft_grid import fields_of, on_grid
from training.problems.draft_points import cloud, coordinates_of, doubt_of_one_solution, mesh, refuse_moving
from training.problems.draft_stacked import (
    COUNTED,
    between,
    channels,
    lone_array,
    refuse_numbered,
    refuse_one_run,
    refuse_one_solution,
    refuse_series,
    time_of,
)
from training.problems.problem_file import AXES, is_taken
from training.problems.roles import (
    named_outputs,
    sort_out,
)
from training.problems.wire_names import wire_name

NO_INPUT = "there would be no input without it, or is a file with the inputs missing?"


def draft(
    file: DataFile,
    files: Sequence[Path],
    folder: Path | None = None,
    outputs: Sequence[str] = (),
    runs: Path | None = None,
) -> Draft:
    """Draft a problem file from the first of some data files, or of all meshes of a folder.

    Args:
        file: The first file.
        files: All of them.
        folder: The folder, where they are all its meshes.
        outputs: The arrays that are outputs, by their names; the file's layout or a guess decides without.
        runs: A folder of folders of one sample each, where `files` are a pattern of those.

    Raises:
        DraftError: There are no two fields with a common sample axis and grid, or no such output.
    """
    name, names = wire_name(file.path.stem), tuple(map(str, files))
    if runs is not None:
        name, names = wire_name(runs.resolve().name), (str(files[0]),)
    elif file.sources and file.sources.keys() >= file.arrays.keys():  # every tensor has files of its own
        lead = next(iter(file.sources.values()))[0]
        name, names = wire_name(file.path.resolve().parent.name), tuple(map(str, lead))
    elif folder is not None:
        name, names = wire_name(folder.resolve().name), (str(Path(escape(str(folder))) / f"*{files[0].suffix}"),)
    elif not are_splits(files) and (pattern := common_pattern(files)):
        name, names = wire_name(pattern.rpartition("*")[0]), (str(Path(escape(str(files[0].parent))) / pattern),)
    made = Draft(
        f"own_{name}" if is_taken(name) else name,
        names,
        file.format,
        left_out=dict(file.left_out),
        constants=dict(file.constants),
    )
    made.validation, made.test, made.doubts = file.validation, file.test, file.doubts
    sources = {label: (tuple(map(str, paths)), key) for label, (paths, key) in file.sources.items()}
    made.sources = {label: (paths, key) for label, (paths, key) in sources.items() if paths != names}
    made.keys = {label: key for label, (_, key) in file.sources.items()}
    made.remarks += [f"{file.path.name} was read as {file.format}", *file.remarks]
    refuse_numbered(file, outputs)
    wanted = named_outputs(file, outputs)
    made.guesses |= doubt_of_groups(file)
    count_runs(made, file, runs)
    if file.format in MESHES:
        return mesh(made, file, wanted)
    waves = {name for name, one in file.arrays.items() if is_complex(one)}  # drafted by their real parts
    file = replace(file, arrays={name: real_part(one) if name in waves else one for name, one in file.arrays.items()})
    made.complex |= waves
    file = without_copies(made, with_dates(made, file))
    for sample in ("first", "last") if runs is None else ("file",):
        turned = arranged(file, sample)[0] if runs is None else file
        refuse_moving([*turned.arrays.values()], file.path)
        if (coordinates := coordinates_of([one for one in turned.arrays.values() if one.shape])) is not None:
            made.sample = sample
            if sample == "last":
                made.validation, made.test = file.turned
                made.guesses["sample"] = f"samples are counted by the last axis, as of {shown(coordinates)}"
            numeric = [one for one in turned.arrays.values() if not sort_out(made, one, wanted)]
            return cloud(made, turned, wanted, numeric, coordinates)
    file = file if runs is not None else with_samples_first(made, file, len(files), wanted)
    if made.sample == "file" and runs is None:
        made.validation, made.test = files_of_splits(files)
    file = with_swept(file) if made.sample == "first" else file
    numeric = [one for one in file.arrays.values() if not sort_out(made, one, wanted)]
    numeric = with_time_first(made, numeric, wanted)
    say_parameters_of_names(made, file, files if runs is None else sorted(runs.iterdir()))
    return on_grid(made, file, wanted, numeric)


def doubt_of_groups(file: DataFile) -> dict[str, str]:
    """Say, by the line of the guess, that groups may be frames, and rows of a table zones, where their names say so.

    Few groups may be values of a parameter, with many samples in each.
    """
    if file.samples == "the column id":
        return {"files": f"samples are counted by {file.samples}, or are these the zones of one sample?"}
    kind, _, groups = file.samples.partition(", ")
    words = {*re.findall(r"[a-z]+", groups.lower())}
    if kind != "one group per sample":
        return {}
    if words & STEPS:
        return {"files": f"samples are counted by groups, {groups}, or are these the frames of one trajectory?"}
    fields = [one.shape for one in file.arrays.values() if len(one.shape) > 2 and one.shape[-1] > COMPONENTS]
    inner = min((shape[1] for shape in fields), default=0)
    if file.pieces or words & COUNTED or re.match(r"0*[01] ", groups) or not fields or fields[0][0] >= inner:
        return {}
    doubt = (
        f"or does each of these {fields[0][0]} hold {inner} samples? Then save those of all groups as one array "
        "[sample, …], and what the groups differ in as an array [sample]"
    )
    return {"files": f"samples are counted by groups, {groups}, {doubt}"}


def say_parameters_of_names(made: Draft, file: DataFile, files: Sequence[Path]) -> None:
    """Mark that the names of files may hold a parameter, as `Burgers_Nu0.01.hdf5` does, which their arrays lack."""
    numbers = [re.findall(r"\d+[.]\d+(?:e-?\d+)?|\d+e-?\d+", without_suffix(path)) for path in files]
    if file.format == "well" or len({*map(tuple, numbers)}) < 2:
        return
    said = ", ".join(" ".join(each) for each in numbers[:3])
    doubt = (
        f"all files have one equation, though names have other numbers, {said} …: if the outputs depend on them, save "
        "them as an array [sample], or as one number where every file is a sample"
    )
    line = "sample" if made.sample == "file" else "files"
    made.guesses[line] = f"{made.guesses[line]}; {doubt}" if line in made.guesses else f"samples of {doubt}"


def without_suffix(path: Path) -> str:
    """Return the name of a file without its suffix, or that of a folder."""
    return path.name if path.is_dir() else path.stem


def count_runs(made: Draft, file: DataFile, runs: Path | None) -> None:
    """Count samples by the folders of runs, by a guess unless each has a mesh, or a list of those of one series.

    And by the files of meshes that have a file of settings each.
    """
    if file.format in MESHES and any(len(paths) > 1 or "*" in paths[0] for paths, _ in made.sources.values()):
        made.sample = "file"
    if runs is not None:
        made.sample = "file"
        if file.format not in MESHES or file.path.is_dir():  # numbered meshes may be samples
            made.guesses["sample"] = "samples are counted by folders, one sample each"
        if splits := folders_of_splits(runs):
            made.guesses["sample"] = (
                f"samples are counted by folders, those of {' and '.join(path.name for path in splits)} mixed: or name "
                "the files of each in `files`, those for tests last, and how many they are"
            )


def with_dates(made: Draft, file: DataFile) -> DataFile:
    """Return a file whose lines of dates, or of durations, are seconds since the first of them."""
    arrays = dict(file.arrays)
    for name, one in file.arrays.items():
        if one.dtype.kind in "Mm" and len(one.shape) == 1 and last_name(one) in TIMES and one.samples > 1:
            values = one.read()
            arrays[name] = LazyArray.of(name, (values - values[0]) / np.timedelta64(1, "s"))
            made.remarks.append(f"{name} holds dates: time is in seconds since the first of them")
    return replace(file, arrays=arrays)


def without_copies(made: Draft, file: DataFile) -> DataFile:
    """Return a file with one row of times and coordinates that it repeats for every sample or over a whole grid."""
    grids = lines_of_grids(file.arrays)
    made.remarks += [f"{' and '.join(grids)} are the coordinates of a grid"] if grids else []
    arrays = {**file.arrays, **grids}
    for name, one in file.arrays.items():
        if name in grids:
            continue
        if one.dimensions is None and (row := repeated_row(one)) is not None:
            arrays[name] = row
            made.remarks.append(f"{name} is the same for all samples")
        elif one.dimensions is None and (rows := times_of_samples(one)) is not None:
            arrays[name] = LazyArray.of(one.name, rows[0])
            made.doubts += unlike_samples({name: rows})
    return replace(file, arrays=arrays)


def with_samples_first(made: Draft, file: DataFile, files: int, outputs: Sequence[str]) -> DataFile:
    """Return a file with samples on the first axis of its arrays, by a marked guess where nothing tells which it is."""
    numeric = [one for one in file.arrays.values() if one.dtype.kind in NUMERIC]
    if files > 1 and not file.samples and any(one.first for one in numeric):
        made.sample, made.guesses["sample"] = "file", "samples are counted by files, since no dimension counts them"
        if file.format == "dedalus" and re.search(r"_s\d+$", file.path.stem):  # sets of frames
            made.guesses["sample"] += "; those of one run, as s1 and s2, are parts of it, one after the other in time"
        return arranged(file, "file")[0]
    if files == 1:
        refuse_one_run(file)
        refuse_series(numeric, file, outputs)
    fields = fields_of(numeric)
    if file.samples or not fields or any(one.dimensions is not None for one in fields):
        return file
    others = [one for one in numeric if one not in fields]
    lead = max(fields, key=lambda one: len(one.shape))
    if files == 1:
        refuse_one_solution(lead, others, file)
    made.sample, doubt = sample_axis(fields, others, files)
    if made.sample == "first":
        doubt = doubt_of_one_solution(fields, times_of(others)) or doubt
    if doubt:
        made.guesses["files" if made.sample == "first" else "sample"] = f"samples are counted by {doubt}"
    turned = arranged(file, made.sample)[0]
    if made.sample != "last":
        return turned
    made.validation, made.test = file.turned
    return replace(turned, arrays={**turned.arrays, **for_all_samples(file.arrays, fields)})


def with_swept(file: DataFile) -> DataFile:
    """Return a file with the coordinate of the dimension that counts samples, as the viscosities of a sweep."""
    fields = fields_of([one for one in file.arrays.values() if one.dtype.kind in NUMERIC])
    swept = file.parts.get(fields[0].first) if fields else None
    if swept is None or swept.shape != (fields[0].samples,):
        return file
    return replace(file, arrays={**file.arrays, swept.name: swept})


def for_all_samples(arrays: Mapping[str, LazyArray], fields: Sequence[LazyArray]) -> dict[str, LazyArray]:
    """Return the arrays that are the same for all samples, where fields count these on their last axis."""
    sides = max((one.shape for one in fields), key=len)
    parts = {sides[start:stop] for start in range(len(sides)) for stop in range(start + 2, len(sides))}
    return {name: one for name, one in arrays.items() if one.shape in parts and one.shape[-1] != sides[-1]}


def with_time_first(made: Draft, arrays: Sequence[LazyArray], outputs: Sequence[str]) -> list[LazyArray]:
    """Return arrays with the axes of trajectories named, time first, where times or shapes tell which ones they are."""
    fields, times = [one for one in fields_of(arrays) if not is_coordinate(one)], times_of(arrays)
    if any(one.dimensions is not None for one in fields):
        return [*arrays]
    found = frames_of(fields, times, outputs)
    refuse_time_between(fields, times)
    samples = fields[0].samples if fields else 0
    single = [one for one in arrays if one.shape == (samples,) and not numbers_samples(one, samples)]
    rank = 4 if single else 3  # parameters alone may be the input of a plane
    if (
        not found
        and fields
        and {*outputs} >= {one.name for one in fields}
        and all(len(one.shape) >= rank for one in fields)
    ):
        found = {one.name: {time_of(one)} for one in fields}  # there would be no input
    if (one := lone_array(arrays)) is not None and not found and not channels(one):
        found = {one.name: {time_of(one)}}
    if times is not None and samples == max(times.shape) and all(samples not in one.shape[1:] for one in fields):
        found = {}  # the first axis counts time, which is asked about
    where = {axis for axes in found.values() for axis in axes}
    if len(where) != 1 or (outputs and not {*found} & {*outputs}):
        return [*arrays]
    made.time = where.pop()
    shown_ = next(one for one in fields if one.name in found)
    count = shown_.shape[-1 if made.time == "last" else 1]
    alone = f"{shown(shown_)} has it alone" if len(fields) > len(found) else NO_INPUT
    if numbers := [one.name for one in fields if one.shape[1:] == (count,) and one.name not in outputs]:
        alone = f"{numbers[0]} has {count} values for every sample, too"
    reason = f"{times.name} has {count} values, too" if times is not None and max(times.shape) == count else alone
    made.guesses["time"] = f"time is the {made.time} axis behind the samples', of {count}: {reason}"
    turned, shown_ = [], last_axis_at(shown_, 1) if made.time == "last" else shown_
    for one in arrays:
        each = last_axis_at(one, 1) if one.name in found and made.time == "last" else one
        rest = each.shape[2:] if one.name in found else each.shape[1:]
        known = one in fields and rest == shown_.shape[2:]
        names = (*(("time",) if one.name in found else ()), *axes_of(rest)) if known and axes_of(rest) else None
        names = ("time",) if one.name in numbers else names  # a number of every frame
        turned.append(replace(each, dimensions=names))
    return turned


def is_coordinate(one: LazyArray) -> bool:
    """Return whether an array is a line of coordinates of a file that is one sample."""
    return one.samples == 1 and last_name(one) in SPACE and int(np.prod(one.shape)) == max(one.shape)


def axes_of(sides: tuple[int, ...]) -> tuple[str, ...]:
    """Return names for the axes of a field, one of which may count components; none where there are too many."""
    grid, end = without_components(sides)
    if len(grid) == len(sides) - 1 and 1 in (sides[0], sides[-1]):  # one channel
        end = "first" if sides[0] == 1 else "last"
    if end in {"first", "last"} and len(grid) <= AXES:
        return ("component", *AXIS_NAMES[len(grid)]) if end == "first" else (*AXIS_NAMES[len(grid)], "component")
    return AXIS_NAMES.get(len(sides), ())


def refuse_time_between(fields: Sequence[LazyArray], times: LazyArray | None) -> None:
    """Refuse a trajectory whose axis of time is between others: those of a grid that another field has, or alone is it.

    Raises:
        DraftError: There is one.
    """
    count = 0 if times is None else max(times.shape)
    outer = any(count in {one.samples, *one.shape[1:2], *one.shape[-1:]} for one in fields)
    for one in fields:
        own = one.shape[1:]
        for axis in (axis for axis in range(1, len(own) - 1) if own[axis] == count):
            if not outer or any(each.shape[1:] == (*own[:axis], *own[axis + 1 :]) for each in fields):
                raise between(one, axis + 1, f"has as many values as {times.name if times else 'time'}")
