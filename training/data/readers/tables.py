"""Text files: tables of comma-separated values, and COMSOL's exports.

A table has an array `[row]` for every column of numbers, and a field for many of one name (`wide.py`). Where columns
are coordinates, as in exports of COMSOL, ParaView and Fluent, the file is the cloud of one sample: `coordinates`
`[1, point, dimension]` and fields `[1, point]`. COMSOL's files of a sweep hold a sample for every value of its
parameters, on the points of one mesh.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import DataFile, LazyArray, ReadError, damage_named
from training.data.readers.tensor_files import COUNTING, UNNAMED
from training.data.readers.texts import DECIMAL, LONGEST, is_number, opened_text, with_points
from training.data.readers.wide import FEW, matrix, with_fields

Columns = Mapping[str, NDArray[np.float64]]

COORDINATES = (  # names of columns along the axes, in small letters and without units
    ("x", "y", "z"),
    ("r", "z"),  # of COMSOL, where a problem is axisymmetric
    ("x-coordinate", "y-coordinate", "z-coordinate"),  # of Fluent
    ("x location", "y location", "z location"),  # of ANSYS Mechanical
    ("points:0", "points:1", "points:2"),  # of ParaView
    ("points_0", "points_1", "points_2"),
)
NUMBERED = re.compile(r"(node|cell|point|vertex|element|face) ?(number|id|label|index|no)")  # of rows, not values
COLUMN = re.compile(r"\d+:(?=\D)")  # the number before a name, `1:x`, as Basilisk and Gnuplot write it
SECTION = "[data]"  # below which the exports of CFD-Post have names and numbers, up to another one
STEPS = frozenset({"t", "time", "step", "timestep", "frame", "increment"})
SEPARATORS = (",", ";", "\t")
MISSING = dict.fromkeys(("", "na", "n/a", "#n/a", "null", "none"), "nan")  # of pandas, R and spreadsheets
NO_NUMBERS = "a column that does not hold numbers alone"
SWEPT = re.compile(r"(.*?)\s*@\s*(?:\d+:\s*)?(.+)")  # COMSOL's `T (K) @ 2: q=5, h=1`
UNITS = re.compile(r"(.*?)\s*[(\[]\s*([^()\[\]]*(?:\([^()]*\))?[^()\[\]]*)\s*[)\]]")
"""`T (K)`, `X [ m ]`, `k (W/(m*K))`"""


# Tables


@contextmanager
def open_table(path: Path) -> Iterator[DataFile]:
    """Open a table with names in its first line, or in its last comment as exports of COMSOL and OpenFOAM have them."""
    with damage_named(path, "a table of numbers"):
        with opened_text(path) as file:
            comments = [line[1:].strip() for line in takewhile(lambda line: line.startswith("%"), file)]
        made = comsol(path, comments) if comments else table(path)
    yield made


def table(path: Path) -> DataFile:
    """Describe a table; its columns of text are left out."""
    mark, (names, *cells) = lines_of(path)
    if not cells or any(map(is_number, names)):
        if (rows := matrix([names, *cells])) is not None:
            return DataFile(path, "csv", {UNNAMED: LazyArray.of(UNNAMED, rows)})
        raise ReadError(f"{path}: expected a line of names, and lines of numbers below it")
    bad = next((number for number, line in enumerate(cells) if len(line) != len(names)), None)
    if bad is not None:
        twice = mark == "," and len(cells[bad]) == 2 * len(names)
        said = "; where commas are decimal ones, separate the columns by semicolons or tabs" if twice else ""
        raise ReadError(
            f"{path}: expected {len(names)} columns ({', '.join(names)[:80]}) in every line but found "
            f"{len(cells[bad])} in line {bad + 1} of the numbers: {cells[bad][:4]}{said}"
        )
    if len(cells) > 1 and cells[0] and not holds_values(cells[0]) and any(map(is_number, cells[1])):
        names = [
            f"{name} [{unit}]" if unit and units_of(name)[1] == "" else name
            for name, unit in zip(names, cells[0], strict=True)
        ]
        cells = cells[1:]
    names = [name or f"column {number}" for number, name in enumerate(names, start=1)]
    refuse_duplicates(path, names)
    columns = dict(zip(names, zip(*cells, strict=True), strict=True))
    filled = {name: [MISSING.get(each.lower(), each) for each in values] for name, values in columns.items()}
    # A column without any number is empty.
    found = {
        name: np.array(values, float)
        for name, values in filled.items()
        if all(map(is_number, values)) and any(map(is_number, columns[name]))
    }
    left_out = {name: no_numbers(values) for name, values in columns.items() if name not in found}
    texts = {name: np.array(columns[name]) for name in left_out}
    for name in [name for name, values in found.items() if name.startswith("column ") and (np.diff(values) == 1).all()]:
        del found[name]  # as pandas writes its index
        left_out[name] = "it has no name, and numbers the lines"
    return of_columns(path, "csv", found, left_out, texts)


def of_columns(
    path: Path,
    format_: str,
    columns: Columns,
    left_out: Mapping[str, str],
    texts: Mapping[str, NDArray[Any]] = MappingProxyType({}),
) -> DataFile:
    """Describe the columns of numbers of a table: a cloud, clouds that a column numbers, or numbers per sample.

    `texts` are its columns of text.
    """
    along = next((each for axes in COORDINATES if len(each := named(columns, axes)) > 1), [])
    key = next((name for name in columns if name.lower() in COUNTING and repeats(columns[name])), None)
    if along and len(columns) > len(along) + (key is not None):
        if key is None:
            return cloud(path, format_, along, columns, left_out)
        return clouds(path, format_, along, columns, key, left_out)
    labels = {name: units_behind(name) for name in columns}
    if len({label for label, _ in labels.values()}) < len(labels):
        labels = {name: (name, "") for name in columns}
    arrays = {label: LazyArray.of(label, whole(columns[name]), units=units) for name, (label, units) in labels.items()}
    # Problem files may have the whole heads as keys.
    parts = {name: replace(arrays[label], name=name) for name, (label, _) in labels.items() if name != label}
    arrays, points = with_fields(arrays)
    return DataFile(path, format_, arrays, left_out=left_out, parts=parts | points, texts=texts)


def no_numbers(cells: Iterable[str]) -> str:
    """Say why a column is left out that does not hold numbers alone."""
    comma = next((cell for cell in cells if "," in cell and is_number(cell.replace(",", ""))), "")
    said = f": the comma of {comma} may be a decimal one: write points, or semicolons between columns" if comma else ""
    return NO_NUMBERS + said


def lines_of(path: Path) -> tuple[str, list[list[str]]]:
    """Return what separates the cells of a table, and these: of the names, and of the lines below."""
    with opened_text(path) as file:
        lines = with_names(file.read().splitlines())
    return divided(lines, path.suffix.lower()) if lines else ("", [[]])


def divided(lines: Sequence[str], suffix: str = "") -> tuple[str, list[list[str]]]:
    """Return what separates the cells of some lines, spaces if nothing else, and these, decimal commas as points."""
    mark = max(SEPARATORS, key=lines[0].count)
    if mark not in lines[0] and suffix != ".csv":
        names, *cells = (line.split() for line in lines)
        return " ", with_points([[COLUMN.sub("", name) for name in names], *cells])
    cells = [[cell.strip() for cell in line] for line in csv.reader(lines, delimiter=mark, skipinitialspace=True)]
    return mark, cells if mark == "," else with_points(cells, certain=mark == ";")  # quotes may hold two numbers


def with_names(text: Sequence[str]) -> list[str]:
    """Return the line of names and those below it: the last comment, or what follows the head of a section of data.

    A comment is no line of names where the line below it has no number in it, and so is one itself.
    """
    lines = [line for line in text if line.strip()]
    heads = [number for number, line in enumerate(lines) if line.strip().startswith("[") and line.strip().endswith("]")]
    below = next((number for number in heads if lines[number].strip().lower() == SECTION), None)
    if below is not None:
        end = next((number for number in heads if number > below), None)
        return lines[below + 1 : end]
    comments = [line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), lines)]
    below_them = lines[len(comments) :]
    rows = [divided([line])[1][0] for line in comments[-2:]]
    if len(rows) > 1 and len(rows[0]) == len(rows[1]) == len({*rows[0]}) > len({*rows[1]}):  # units below the names
        return [*comments[-2:], *below_them]
    if below_them and not holds_values(divided(below_them[:1])[1][0]):
        return below_them
    return [line for line in (*comments[-1:], *below_them) if line.strip()]


def holds_values(cells: Sequence[str]) -> bool:
    """Return whether some cells of a line are numbers, or all stand for missing ones."""
    return any(map(is_number, cells)) or all(cell.lower() in MISSING for cell in cells)


def kind_of_table(path: Path) -> str:
    """Return the format of a text file: `comsol`, or `csv` where a line of names is above one of as many numbers."""
    try:
        with opened_text(path, whole=False) as file:
            lines = [line for line in islice(iter(partial(file.readline, LONGEST), ""), 100) if line.strip()]
        if lines and lines[0].startswith("%"):
            return "comsol"
        lines = with_names(lines)
        names, *numbers = divided(lines[:2], path.suffix.lower())[1] if lines else [[]]
    except (ValueError, csv.Error):  # what is no text, or has longer cells than any number
        return ""
    fits = bool(numbers) and len(names) == len(numbers[0]) and (not is_number(names[0]) or len(names) > FEW)
    return "csv" if fits and all(is_number(DECIMAL.sub(r"\1.\2", cell)) for cell in numbers[0]) else ""


def refuse_duplicates(path: Path, names: Iterable[str], what: str = "columns") -> None:
    """Refuse names that several columns have, of which only one would be read.

    Raises:
        ReadError: There are such names.
    """
    if several := [name for name, count in Counter(names).items() if count > 1]:
        raise ReadError(
            f"{path}: expected {what} with names of their own but found several named {several[0]!r}: rename them"
        )


def named(columns: Columns, axes: tuple[str, ...]) -> list[str]:
    """Return the columns of coordinates along axes, in their order; none where the first two are not there."""
    plain = {units_of(name)[0].lower(): name for name in columns}
    return [plain[axis] for axis in axes if axis in plain] if {*axes[:2]} <= {*plain} else []


def cloud(path: Path, format_: str, along: list[str], columns: Columns, left_out: Mapping[str, str]) -> DataFile:
    """Describe the points of one sample and their fields."""
    points = np.stack([columns[name] for name in along], axis=-1)
    refuse_steps(path, points, {name: values for name, values in columns.items() if name not in along})
    varying = np.ptp(points, axis=0) > 0
    points = points[:, varying] if varying.sum() == 2 else points  # as the third coordinate of a plane
    found = {"coordinates": LazyArray.of("coordinates", points[np.newaxis])}
    fields = [label for label, values in columns.items() if label not in along and not numbers_rows(label, values)]
    refuse_duplicates(path, ["coordinates", *(units_of(label)[0] for label in fields)])
    for label, values in columns.items():
        name, units = units_of(label)
        if label in fields:
            found[name] = LazyArray.of(name, values[np.newaxis], units=units)
    remark = f"{', '.join(along)} are the coordinates of {len(points)} points: the file is one sample"
    return DataFile(path, format_, found, remarks=(remark,), samples="one file per sample", left_out=left_out)


def refuse_steps(path: Path, points: NDArray[np.float64], columns: Columns) -> None:
    """Refuse a cloud whose points are there several times, as a table of several steps in time has them.

    Raises:
        ReadError: It is one.
    """
    places = len(np.unique(points, axis=0))
    if 2 * places > len(points):
        return
    times = next((name for name in columns if units_of(name)[0].lower() in STEPS), "")
    raise ReadError(
        f"{path}: expected every point once but found {len(points)} lines at {places} points, as of several steps in "
        f"time{f', which {times} counts' * bool(times)}: save a file for each sample; or of trajectories "
        "np.savez('data.npz', u=u, coordinates=xy, t=t), u [sample, time, point]"
    )


def numbers_rows(label: str, values: NDArray[np.float64]) -> bool:
    """Return whether a column has the numbers of nodes or cells by its name and its values."""
    name = re.sub(r"[^a-z]+", " ", units_of(label)[0].lower()).strip()
    return bool(NUMBERED.fullmatch(name)) and bool((values % 1 == 0).all())


def repeats(values: NDArray[np.float64]) -> bool:
    """Return whether whole numbers tell several rows of a table, as those of samples do."""
    several = len(np.unique(values))
    return bool((values == np.round(values)).all()) and 1 < several < len(values)


def clouds(
    path: Path, format_: str, along: list[str], columns: Columns, key: str, left_out: Mapping[str, str]
) -> DataFile:
    """Describe a table of all samples, whose rows a column numbers; a column of one value in each is a parameter."""
    rows = [np.flatnonzero(columns[key] == number) for number in np.unique(columns[key])]
    others = {name: values for name, values in columns.items() if name != key}
    single = [
        name for name, values in others.items() if name not in along and all(np.ptp(values[each]) == 0 for each in rows)
    ]
    pieces = []
    for each in rows:
        fields = {name: values[each] for name, values in others.items() if name not in single}
        numbers = {name: LazyArray.of(name, others[name][each[:1]], dimensions=()) for name in single}
        made = cloud(path, format_, along, fields, left_out)
        pieces.append(replace(made, arrays={**made.arrays, **numbers}))
    first = pieces[0]
    points = sorted({len(each) for each in rows})
    alike = len(points) == 1
    arrays = {
        name: LazyArray.of(
            name,
            np.concatenate([piece.arrays[name].read() for piece in pieces]),
            units=one.units,
            dimensions=one.dimensions,
        )
        for name, one in (first.arrays if alike else {}).items()
    }
    remark = (
        f"{key} numbers {len(rows)} samples of {' to '.join(map(str, (points[0], points[-1])[: len(points)]))} points"
    )
    return replace(
        first,
        arrays=arrays or first.arrays,
        remarks=(remark, f"{', '.join(along)} are their coordinates"),
        samples=f"the column {key}",
        pieces=() if alike else tuple(pieces),
    )


def units_of(label: str) -> tuple[str, str]:
    """Separate the units in brackets from the name of a column.

    Example:
        >>> units_of("ht.k (W/(m*K))"), units_of("X [ m ]"), units_of("u")
        (('ht.k', 'W/(m*K)'), ('X', 'm'), ('u', ''))
    """
    found = UNITS.fullmatch(label.strip())
    return (found[1], found[2].strip()) if found else (label.strip(), "")


def units_behind(name: str) -> tuple[str, str]:
    """Separate the units from the name of a number per sample, which may be `log(Re)`.

    Example:
        >>> units_behind("nu [m^2/s]"), units_behind("log(Re)"), units_behind("u[3, 4]")
        (('nu', 'm^2/s'), ('log(Re)', ''), ('u[3, 4]', ''))
    """
    label, units = units_of(name)
    return (label, units) if re.match(r" |\[(?!\d+(, *\d+)*\])", name[len(label) :]) else (name, "")


def whole(values: NDArray[np.float64]) -> NDArray[Any]:
    """Return whole numbers as such, as numbers of samples are."""
    return values.astype(np.int64) if (values == np.round(values)).all() and np.abs(values).max() < 2**53 else values


# COMSOL


def comsol(path: Path, comments: list[str]) -> DataFile:
    """Describe an export of COMSOL in the format of a spreadsheet: coordinates, then a column for every expression.

    Raises:
        ReadError: It is of another format, of points on a line, or of several times.
    """
    said = dict(re.split(r"\s*[,:]\s*", line, maxsplit=1) for line in comments[:-1] if re.search(r"[,:]", line))
    text = path.suffix.lower() != ".csv" and "," not in comments[-1]
    names = re.split(r"\s{2,}", comments[-1]) if text else next(csv.reader([comments[-1]], skipinitialspace=True))
    names = with_values(names)
    if comments[-1].strip().lower() == "grid":
        raise ReadError(
            f"{path}: expected an export of COMSOL as a spreadsheet but found one on a grid: choose the data format "
            "Spreadsheet, or save arrays [sample, row, column], np.savez('data.npz', k=k, T=T)"
        )
    with opened_text(path) as file:
        values = np.loadtxt(file, delimiter=None if text else ",", comments="%", ndmin=2)
    if "Dimension" not in said and len(names) == values.shape[1]:  # a table of results
        refuse_duplicates(path, names)
        return of_columns(path, "csv", dict(zip(names, values.T, strict=True)), {})
    dimensions = int(said.get("Dimension", "0").strip('"'))
    if dimensions not in {2, 3} or values.shape[1] != len(names) or len(names) <= dimensions:
        raise ReadError(
            f"{path}: expected an export of COMSOL as a spreadsheet, with 2 or 3 coordinates and a column for every "
            f"expression, but found the dimension {dimensions}, {len(names)} names and {values.shape[1]} columns"
        )
    refuse_duplicates(path, names)
    columns = dict(zip(names, values.T, strict=True))
    along = names[:dimensions]
    swept = {name: found for name in names[dimensions:] if (found := SWEPT.fullmatch(name))}
    if not swept:
        return cloud(path, "comsol", along, columns, {})
    left_out = {
        name: "it has one value for all values of the parameters" for name in names[dimensions:] if name not in swept
    }
    cases: dict[str, dict[str, NDArray[np.float64]]] = {}  # fields by the values of the parameters
    for name, found in swept.items():
        case = cases.setdefault(found[2], {})
        refuse_duplicates(path, [*case, found[1]])
        case[found[1]] = columns[name]
    settings = [dict(re.findall(r"([^=,\s]+)=([^=,\s]+)", case)) for case in cases]
    if any("t" in each for each in settings):
        raise ReadError(
            f"{path}: expected values at one time but found {len(cases)}, {'; '.join([*cases][:2])} …: save a "
            "series of meshes, .vtu files with a .pvd"
        )
    first = next(iter(cases.values()))
    if any({*case} != {*first} for case in cases.values()):
        raise ReadError(f"{path}: expected the same expressions for all values of the parameters, {', '.join(first)}")
    refuse_duplicates(path, ["coordinates", *(units_of(label)[0] for label in first), *settings[0]])
    arrays = {"coordinates": LazyArray.of("coordinates", values[:, :dimensions])}
    for label in first:
        name, units = units_of(label)
        arrays[name] = LazyArray.of(name, np.stack([case[label] for case in cases.values()]), units=units)
    for name in settings[0]:
        arrays[name] = LazyArray.of(name, np.array([float(each[name]) for each in settings]))
    remark = f"a sample for each of {len(cases)} values of {', '.join(settings[0])}"
    return DataFile(path, "comsol", arrays, remarks=(remark,), samples="a column per sample", left_out=left_out)


def with_values(cells: list[str]) -> list[str]:
    """Return names of columns, whose values of several parameters are cells of their own where no quotes hold them."""
    found: list[str] = []
    for cell in cells:
        if found and "@" in found[-1] and "@" not in cell and "=" in cell:
            found[-1] += f", {cell}"
        else:
            found.append(cell)
    return found
