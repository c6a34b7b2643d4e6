"""XML files of VTK that `meshio` does not read by itself.

PolyData (`.vtp`), surfaces, are a mesh of triangles, quadrilaterals and polygons. Strips of triangles and lines of
several segments become triangles and segments that have their cell data. ImageData (`.vti`) and RectilinearGrid
(`.vtr`) are one sample each, with axes that have names. Their fields are those of the points or, where there are none,
of the cells, `[z, y, x]` without the axes of one point. The arrays of all these files are written as those of `.vtu`
files, whose reader decodes them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import meshio
import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import DataFile, LazyArray, ReadError, damage_named
from training.data.readers.guards import guarded

PARTS = ("Verts", "Lines", "Polys", "Strips")  # in the order of their cell data
TYPES = {1: "vertex", 2: "line", 3: "triangle", 4: "quad"}  # by the number of nodes; more have polygons
KINDS = ("ImageData", "RectilinearGrid")
AXES = ("z", "y", "x")
DEFAULTS = {"Origin": "0 0 0", "Spacing": "1 1 1"}


def read_polydata(path: Path) -> meshio.Mesh:
    """Read the cells of a file.

    Raises:
        ValueError: It is no such file.
    """
    root, reader = opened_vtk(path)
    if root.get("type") != "PolyData":
        raise ValueError(f"expected PolyData but found {root.get('type')}")
    pieces = [piece for piece in root.iter("Piece") if int(piece.get("NumberOfPoints", 0))]
    if not pieces:
        raise ValueError("expected points but there are none")
    points: list[NDArray[Any]] = []
    cells: list[NDArray[Any]] = []
    rows: list[int] = []  # of the cells in the cell data
    total = 0
    for piece in pieces:
        start = sum(len(each) for each in points)
        points.append(next(iter(arrays(reader, piece, "Points").values())).reshape(-1, 3))
        for part in PARTS:
            read, first = arrays(reader, piece, part), 0
            if {*read} & {"offsets", "connectivity"} == {"offsets"}:
                raise ValueError(f"expected the connectivity of {part} beside their offsets")
            for last in read.get("offsets", np.empty(0, int)).tolist():
                made = simple(start + read["connectivity"][first:last], part)
                cells += made
                rows += [total] * len(made)
                first, total = last, total + 1
    data, some = joined([arrays(reader, piece, "CellData") for piece in pieces]) if cells else ({}, [])
    fields, others = joined([arrays(reader, piece, "PointData") for piece in pieces])
    blocks: dict[int, list[int]] = {}
    for number, nodes in enumerate(cells):
        blocks.setdefault(len(nodes), []).append(number)
    reason = f"not all of the file's {len(pieces)} pieces have it"
    return meshio.Mesh(
        np.concatenate(points),
        [
            (TYPES.get(size, "polygon"), np.stack([cells[number] for number in numbers]))
            for size, numbers in blocks.items()
        ],
        fields,
        {name: [values[np.take(rows, numbers)] for numbers in blocks.values()] for name, values in data.items()},
        field_data=arrays(reader, root[0], "FieldData"),
        info={"left_out": dict.fromkeys(sorted({*some, *others} - {*data, *fields}), reason)},
    )


def opened_vtk(path: Path) -> tuple[ET.Element, Any]:
    """Return the root of an XML file of VTK, and what decodes its arrays.

    Raises:
        ValueError: It is no such file.
    """
    vtu: Any = importlib.import_module("meshio.vtu._vtu")
    try:
        root = ET.parse(path).getroot()  # noqa: S314  expat bounds and ignores entities
    except ET.ParseError:  # appended bytes are no XML
        root = vtu._parse_raw_binary(str(path))  # noqa: SLF001 -- that of `guarded`
    reader = vtu.VtuReader.__new__(vtu.VtuReader)
    reader.compression, reader.byte_order = root.get("compressor"), root.get("byte_order")
    reader.header_type = root.get("header_type", "UInt32")
    appended = root.find("AppendedData")
    reader.appended_data = None if appended is None else (appended.text or "").strip()[1:]
    return root, reader


def simple(nodes: NDArray[Any], part: str) -> list[NDArray[Any]]:
    """Return a cell of a part as cells that have one type: points, segments, a polygon, or the triangles of a strip."""
    if part == "Polys":
        return [nodes]
    size = 1 + PARTS.index(part) if part != "Strips" else 3
    return [nodes[first : first + size] for first in range(len(nodes) - size + 1)]


def arrays(reader: Any, piece: ET.Element, part: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a part of a piece by name."""
    found = piece.find(part)
    if found is None:
        return {}
    read = {str(each.get("Name", part)): reader.read_data(each) for each in found.iter("DataArray")}
    return {name: values for name, values in read.items() if isinstance(values, np.ndarray)}


def joined(parts: list[dict[str, NDArray[Any]]]) -> tuple[Mapping[str, NDArray[Any]], list[str]]:
    """Join arrays of several pieces, those that all of them have; return the names of the others, too."""
    every = [*dict.fromkeys(name for each in parts for name in each)]
    names = [name for name in every if all(name in each for each in parts)]
    return {name: np.concatenate([each[name] for each in parts]) for name in names}, [*{*every} - {*names}]


# Grids


@contextmanager
def open_image(path: Path) -> Iterator[DataFile]:
    """Open a grid of VTK."""
    with damage_named(path, "a grid of VTK"), guarded(path):
        root, reader = opened_vtk(path)
        kind = root.get("type", "")
        pieces = [*root.iter("Piece")]
        if kind not in KINDS or len(pieces) != 1:
            raise ReadError(f"{path}: expected {' or '.join(KINDS)} in one piece but found {kind} in {len(pieces)}")
        points = positions(root, reader, pieces[0])
        data, on_cells = arrays(reader, pieces[0], "PointData"), arrays(reader, pieces[0], "CellData")
        cells: dict[str, float] = {}
        if not data:
            cells = {name: float(abs(each[-1] - each[0])) for name, each in zip(AXES, points, strict=True)}
            data, points = on_cells, [centres(each) for each in points]
        found = {name: field(name, values, points) for name, values in data.items()}
    reason = "it has values of cells, and others of points"
    left_out = {name: reason for name in on_cells if name not in found}
    known = {name: each for name, each in zip(AXES, points, strict=True) if len(each) > 1}
    yield DataFile(path, "vtk", found, known, left_out=left_out, cells=cells)


def positions(root: ET.Element, reader: Any, piece: ET.Element) -> list[NDArray[np.float64]]:
    """Return the positions of the points along z, y and x."""
    if root.get("type") == "RectilinearGrid":
        along = [*arrays(reader, piece, "Coordinates").values()]
        return [np.asarray(each, np.float64).ravel() for each in along[::-1]]
    image = next(root.iter("ImageData"))
    extent = np.array(piece.get("Extent", "").split(), int).reshape(3, 2)
    origin, spacing = (np.array(image.get(key, default).split(), float) for key, default in DEFAULTS.items())
    steps = [np.arange(low, high + 1) for low, high in extent]
    return [start + step * each for start, step, each in zip(origin, spacing, steps, strict=True)][::-1]


def centres(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the middles of the cells between points along an axis, which has one cell where it has one point."""
    return (points[1:] + points[:-1]) / 2 if len(points) > 1 else points


def field(name: str, values: NDArray[Any], points: list[NDArray[np.float64]]) -> LazyArray:
    """Describe one array as a field `[(component), *grid]`."""
    sides = [len(each) for each in points]
    width = values.size // int(np.prod(sides))
    names = [axis for axis, side in zip(AXES, sides, strict=True) if side > 1]
    shaped = values.reshape(*(side for side in sides if side > 1), width)
    shaped = shaped[..., 0] if width == 1 else np.moveaxis(shaped, -1, 0)
    named = names if width == 1 else ["component", *names]
    return LazyArray.of(name, shaped, dimensions=tuple(named[1:]), first=named[0])
