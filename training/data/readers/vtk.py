"""Grids of VTK in XML, ImageData (`.vti`) and RectilinearGrid (`.vtr`), which `meshio` does not read.

They are one sample each, with axes that have names. Their fields are those of the points or, where there are none, of
the cells, `[z, y, x]` without the axes of one point.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import DataFile, LazyArray, ReadError, damage_named
from training.data.readers.guards import guarded
from training.data.readers.misread import GHOSTS
from training.data.readers.polydata import arrays, opened_vtk

KINDS = ("ImageData", "RectilinearGrid")
AXES = ("z", "y", "x")
DEFAULTS = {"Origin": "0 0 0", "Spacing": "1 1 1"}


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
        marked = [each.pop(GHOSTS, None) for each in (data, on_cells)]
        if not data:
            cells = {name: float(abs(each[-1] - each[0])) for name, each in zip(AXES, points, strict=True)}
            data, points = on_cells, [centres(each) for each in points]
        found = {name: field(name, values, points) for name, values in data.items()}
    reason = "it has values of cells, and others of points"
    left_out = {name: reason for name in on_cells if name not in found}
    left_out |= {GHOSTS: "it marks ghosts"} if any(each is not None for each in marked) else {}
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
