"""PolyData of VTK (`.vtp`), surfaces, which `meshio` does not read: a mesh of triangles, quadrilaterals and polygons.

Strips of triangles and lines of several segments become triangles and segments that have their cell data. Arrays of XML
files of VTK are written as those of `.vtu` files, whose reader decodes them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
from numpy.typing import NDArray

from training.data.readers.misread import without_ghosts

SUFFIX = ".vtp"
PARTS = ("Verts", "Lines", "Polys", "Strips")  # in the order of their cell data
TYPES = {1: "vertex", 2: "line", 3: "triangle", 4: "quad"}  # by the number of nodes; more have polygons


def read_polydata(path: Path) -> Any:
    """Read a file as a mesh of `meshio`.

    Raises:
        ValueError: It is no such file.
    """
    import meshio  # noqa: PLC0415  few files need it

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
    found = meshio.Mesh(
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
    return without_ghosts(found)


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
