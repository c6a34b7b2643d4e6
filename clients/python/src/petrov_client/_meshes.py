"""Meshes as inputs of models on points: those of `meshio` and `pyvista`, neither of which is needed to be imported.

A mesh has `points` `[point, 2 or 3]` and `point_data` by name. Its cells are looked at where a model takes `boundary`
or `distance` and the mesh has no such data: they are what a training on mesh files derives from the cells.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from petrov_client._errors import InvalidInput, Where
from petrov_client._models import COORDINATES, ModelInfo, TensorInfo

Array = npt.NDArray[Any]
BOUNDARY, DISTANCE = "boundary", "distance"
Facets = tuple[tuple[int, ...], ...]
TRIANGLE: Facets = ((0, 1), (1, 2), (2, 0))
TRIANGLE_6: Facets = ((0, 1, 3), (1, 2, 4), (2, 0, 5))
QUAD: Facets = ((0, 1), (1, 2), (2, 3), (3, 0))
QUAD_8: Facets = ((0, 1, 4), (1, 2, 5), (2, 3, 6), (3, 0, 7))
TETRA: Facets = ((0, 1, 2), (0, 1, 3), (1, 2, 3), (0, 2, 3))
TETRA_10: Facets = ((0, 1, 2, 4, 5, 6), (0, 1, 3, 4, 8, 7), (1, 2, 3, 5, 9, 8), (0, 2, 3, 6, 9, 7))
HEXAHEDRON: Facets = ((0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7))
PYRAMID: Facets = ((0, 1, 2, 3), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4))
WEDGE: Facets = ((0, 1, 2), (3, 4, 5), (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5))
HEXAHEDRON_20: Facets = (
    (0, 1, 2, 3, 8, 9, 10, 11),
    (4, 5, 6, 7, 12, 13, 14, 15),
    (0, 1, 5, 4, 8, 17, 12, 16),
    (1, 2, 6, 5, 9, 18, 13, 17),
    (2, 3, 7, 6, 10, 19, 14, 18),
    (3, 0, 4, 7, 11, 16, 15, 19),
)
#: The nodes of the facets of a cell, by dimensions of space, then by meshio's name of its type or VTK's number.
FACETS: Mapping[int, Mapping[str | int, Facets]] = {
    2: {"triangle": TRIANGLE, "triangle6": TRIANGLE_6, "quad": QUAD, "quad8": QUAD_8, "quad9": QUAD_8}
    | {5: TRIANGLE, 22: TRIANGLE_6, 9: QUAD, 23: QUAD_8, 28: QUAD_8},
    3: {"tetra": TETRA, "tetra10": TETRA_10, "hexahedron": HEXAHEDRON, "hexahedron20": HEXAHEDRON_20}
    | {"wedge": WEDGE, "pyramid": PYRAMID}
    | {10: TETRA, 24: TETRA_10, 12: HEXAHEDRON, 25: HEXAHEDRON_20, 13: WEDGE, 14: PYRAMID},
}
#: Numbers of a table of distances in memory.
TABLE = 2**22


def is_mesh(value: Any) -> bool:
    """Return whether a value is a mesh with data at its points."""
    return hasattr(value, "points") and hasattr(value, "point_data")


def arrays_of(mesh: Any, info: ModelInfo) -> dict[str, Array]:
    """Return the inputs and parameters of a model that a mesh has, by name, as one sample.

    Point data have the names of the model's inputs, in any case and with any signs between words. Cell data of meshio
    are read as means of the cells at each point.

    Raises:
        InvalidInput: The model is none on points, or of another number of dimensions, or needs cells that there are
            none of.
    """
    lead = info.inputs[0]
    if lead.name != COORDINATES:
        raise InvalidInput(f'expected arrays for "{info.name}", whose inputs are on a grid, but got a mesh')
    points, dimensions = np.asarray(mesh.points, np.float64), lead.shape[-1] or 2
    varying = np.ptp(points, axis=0) > 0
    kept = varying if varying.sum() == dimensions else np.arange(points.shape[1]) < dimensions
    if varying.sum() > dimensions:
        raise InvalidInput(
            f'expected points in {dimensions} dimensions for "{info.name}" but those of the mesh have '
            f"{int(varying.sum())}",
            where=Where(COORDINATES),
        )
    found: dict[str, Array] = {COORDINATES: points[:, kept]}
    data = {wire_name(str(name)): np.asarray(values) for name, values in mesh.point_data.items()}
    for name, blocks in dict(getattr(mesh, "cell_data", {})).items():
        if isinstance(blocks, list):  # of meshio: an array per block of cells
            data.setdefault(wire_name(str(name)), means_at_points(mesh, blocks, len(points)))
    for tensor in info.inputs[1:]:
        if tensor.name in data:
            found[tensor.name] = _at_points(data[tensor.name], tensor, kept)
        elif tensor.name in {BOUNDARY, DISTANCE} and tensor.default is None:
            edge = on_boundary(mesh, len(points), dimensions)
            values = edge if tensor.name == BOUNDARY else distance(found[COORDINATES], edge)
            found[tensor.name] = values.astype(np.float32)
    return found


def with_outputs(mesh: Any, outputs: Mapping[str, Array]) -> Any:
    """Return a copy of a mesh with outputs of one sample, `[(batch), point, (component)]`, among its point data."""
    made, count = copy.deepcopy(mesh), len(mesh.points)
    for name, values in outputs.items():
        flat = np.asarray(values).reshape(count, -1)
        made.point_data[name] = flat[:, 0] if flat.shape[1] == 1 else flat
    return made


def wire_name(name: str) -> str:
    """Return a name in the form that the wire allows: lower case letters, digits and underscores."""
    made = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return made if made[:1].isalpha() else f"field_{made}".rstrip("_")


def on_boundary(mesh: Any, count: int, dimensions: int) -> npt.NDArray[np.bool_]:
    """Return which points lie on facets that belong to one cell alone.

    Raises:
        InvalidInput: There are no cells of a known type.
    """
    found = np.zeros(count, dtype=np.bool_)
    by_size: dict[int, list[Array]] = {}
    for kind, cells in dict(getattr(mesh, "cells_dict", {})).items():
        for nodes in FACETS[dimensions].get(kind, ()):
            by_size.setdefault(len(nodes), []).append(np.asarray(cells)[:, nodes])
    alone = {}
    for size, facets in by_size.items():
        every = np.concatenate(facets)
        _, index, shared = np.unique(np.sort(every, axis=1), axis=0, return_index=True, return_counts=True)
        alone[size] = every[index[shared == 1]]
    if 3 in alone and 4 in alone and dimensions == 3:
        alone[3], alone[4] = _without_halves(alone[3], alone[4])
    for nodes in alone.values():
        found[nodes] = True
    if not found.any():
        known = ", ".join(str(kind) for kind in FACETS[dimensions] if isinstance(kind, str))
        raise InvalidInput(
            f"expected cells of the types {known}, which the boundary follows from, or `{BOUNDARY}` and `{DISTANCE}` "
            "as point data",
            where=Where(BOUNDARY),
        )
    return found


def _without_halves(triangles: Array, quads: Array) -> tuple[Array, Array]:
    """Leave out quadrilaterals that two triangles of the cells behind them cover, and these triangles."""
    known = {tuple(sorted(each)): number for number, each in enumerate(triangles.tolist())}
    kept = [np.ones(len(each), dtype=np.bool_) for each in (triangles, quads)]
    for number, (a, b, c, d) in enumerate(quads.tolist()):
        for halves in (((a, b, c), (a, c, d)), ((a, b, d), (b, c, d))):
            behind = [known.get(tuple(sorted(half)), -1) for half in halves]
            if min(behind) >= 0:
                kept[0][behind], kept[1][number] = False, False
    return triangles[kept[0]], quads[kept[1]]


def distance(points: Array, edge: npt.NDArray[np.bool_]) -> Array:
    """Return the distance of all points `[point, dimension]` to the nearest of those on the edge."""
    targets = points[edge]
    rows = max(1, TABLE // max(1, targets.size))
    parts = (points[start : start + rows, None] - targets for start in range(0, len(points), rows))
    squares = [np.square(apart).sum(axis=2).min(axis=1) for apart in parts]
    return np.asarray(np.sqrt(np.concatenate(squares)))


def means_at_points(mesh: Any, blocks: list[Any], count: int) -> Array:
    """Return cell data `[cell, ...]` per block of cells as means `[point, component]`, 0 at points without cells."""
    width = np.asarray(blocks[0]).reshape(len(blocks[0]), -1).shape[1]
    total, cells = np.zeros((count, width)), np.zeros((count, 1))
    most = max((getattr(block, "dim", 0) for block in mesh.cells), default=0)
    for block, values in zip(mesh.cells, blocks, strict=True):
        if getattr(block, "dim", most) < most:  # as the lines on the boundary of a plane mesh
            continue
        for nodes in np.asarray(block.data).T:
            np.add.at(total, nodes, np.asarray(values, np.float64).reshape(len(nodes), width))
            np.add.at(cells, nodes, 1)
    return total / np.maximum(cells, 1)


def _at_points(values: Array, tensor: TensorInfo, kept: npt.NDArray[np.bool_]) -> Array:
    """Return point data as an input; mesh files give every vector of a plane a third component, 0."""
    flat = values.reshape(len(values), -1)
    if len(tensor.axes) == 2:
        return flat[:, 0] if flat.shape[1] == 1 else values
    more = flat.shape[1] == len(kept) > (tensor.shape[-1] or 0)
    return flat[:, kept] if more and not flat[:, ~kept].any() else flat
