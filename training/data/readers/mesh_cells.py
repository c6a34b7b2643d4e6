"""The cells of a mesh file: those of its own dimension, what they say of its nodes, and which of its data number them.

Files of a plane mesh have its boundary lines as cells, too: only cells of the mesh's own dimension count.
"""

from __future__ import annotations

from typing import Any

import meshio
import numpy as np
from meshio._mesh import topological_dimension
from numpy.typing import NDArray

from physics.numerics.cell_types import KINDS, Cells, Indices, UnknownCellsError, polygon

MOST_REGIONS = 16  # more whole numbers are those of cells, or a quantity
topological_dimension.update({"pyramid13": 3, "wedge15": 3})  # which meshio's readers return, but its meshes refuse


def own_cells(mesh: meshio.Mesh) -> list[int]:
    """Return the numbers of the blocks of cells of the mesh's own dimension, the highest of any."""
    most = max((block.dim for block in mesh.cells), default=0)
    return [number for number, block in enumerate(mesh.cells) if block.dim == most]


def known_cells(mesh: meshio.Mesh, points: NDArray[np.float64]) -> Cells:
    """Return the cells of a mesh.

    Raises:
        UnknownCellsError: There are none, those of a surface in space, or some of an unknown type.
    """
    blocks = [mesh.cells[number] for number in own_cells(mesh)]
    if not blocks or blocks[0].dim < 2:
        raise UnknownCellsError("there are no cells")
    if blocks[0].dim < points.shape[1]:
        raise UnknownCellsError("the cells are those of a surface in space")
    flat = [block for block in blocks if not is_polyhedra(block)]
    if strange := sorted({block.type for block in flat} - {*KINDS, "polygon"}):
        raise UnknownCellsError(f"there are cells of the type {', '.join(strange)}")
    found = [(block.type, np.asarray(block.data, np.int64)) for block in flat]
    known = [(KINDS[name] if name in KINDS else polygon(nodes.shape[1]), nodes) for name, nodes in found]
    return Cells(known, polyhedra(mesh))


def is_polyhedra(block: meshio.CellBlock) -> bool:
    """Return whether cells are given by their faces, as meshio has polyhedra."""
    return bool(block.type.startswith("polyhedron"))


def polyhedra(mesh: meshio.Mesh) -> list[list[Indices]]:
    """Return the faces of every polyhedron of a mesh."""
    blocks = [mesh.cells[number] for number in own_cells(mesh)]
    cells = [cell for block in blocks if is_polyhedra(block) for cell in block.data]
    return [[np.asarray(face, np.int64) for face in cell] for cell in cells]


def members(block: meshio.CellBlock) -> tuple[Indices, Indices]:
    """Return the nodes of all cells of a block, one after the other, and the number of the cell of each."""
    if is_polyhedra(block):
        each = [np.unique(np.concatenate([np.asarray(face, np.int64) for face in cell])) for cell in block.data]
        return np.concatenate(each), np.repeat(np.arange(len(each)), [len(nodes) for nodes in each])
    nodes = np.asarray(block.data, np.int64)
    return nodes.ravel(), np.repeat(np.arange(len(nodes)), nodes.shape[1])


def without_loose_points(mesh: meshio.Mesh) -> meshio.Mesh:
    """Return a mesh without the points that no cell of its own dimension has, such as the centres of arcs.

    Which ones are left is `in_cells` in its `info`. One without cells but single points stays as it is.

    Raises:
        ValueError: A cell names a point that is not there. One below zero would be taken for one from the end.
    """
    for block in mesh.cells:
        nodes = members(block)[0]
        if len(nodes) and not 0 <= nodes.min() <= nodes.max() < len(mesh.points):
            wrong = nodes.min() if nodes.min() < 0 else nodes.max()
            raise ValueError(
                f"cells of the type {block.type} name point {wrong}, counted from 0, of {len(mesh.points)} points"
            )
    own = own_cells(mesh)
    if not own or mesh.cells[own[0]].dim == 0:
        return mesh
    used = np.zeros(len(mesh.points), np.bool_)
    for number in own:
        used[members(mesh.cells[number])[0]] = True
    if used.all():
        return mesh
    to = np.cumsum(used) - 1
    whole = [block.dim == mesh.cells[own[0]].dim or bool(used[members(block)[0]].all()) for block in mesh.cells]
    cells = [
        meshio.CellBlock(block.type, renumbered(block, to))
        for block, keep in zip(mesh.cells, whole, strict=True)
        if keep
    ]
    found = meshio.Mesh(
        np.asarray(mesh.points)[used],
        cells,
        {name: np.asarray(values)[used] for name, values in mesh.point_data.items()},
        {
            name: [each for each, keep in zip(blocks, whole, strict=True) if keep]
            for name, blocks in mesh.cell_data.items()
        },
    )
    found.field_data = mesh.field_data
    found.info = {**(mesh.info or {}), "in_cells": used}
    return found


def renumbered(block: meshio.CellBlock, to: Indices) -> Any:
    """Return the nodes of cells by their new numbers."""
    if is_polyhedra(block):
        return [[to[np.asarray(face, np.int64)] for face in cell] for cell in block.data]
    return to[np.asarray(block.data, np.int64)]


def joined_nodes(mesh: meshio.Mesh, points: NDArray[np.float64]) -> tuple[meshio.Mesh, Indices, bool]:
    """Return a mesh whose cells share nodes, where every cell has its own (discontinuous elements), and their numbers.

    Nodes at one place that belong to cells which share other nodes are those of a crack, or of parts that are not
    joined, and stay; whether there are any is the last value.
    """
    every = np.concatenate([members(mesh.cells[number])[0] for number in own_cells(mesh)] or [np.empty(0, np.int64)])
    _, first, to = np.unique(points, axis=0, return_index=True, return_inverse=True)
    own = np.arange(len(points))
    several = len(first) < len(points)
    if not several or len(np.unique(every)) < len(every):
        return mesh, own, several
    to = first[to.ravel()]
    cells = [meshio.CellBlock(block.type, renumbered(block, to)) for block in mesh.cells]
    return meshio.Mesh(mesh.points, cells), to, False


def regions(mesh: meshio.Mesh, blocks: list[Any], count: int) -> dict[int, NDArray[np.float64]]:
    """Return the share of the cells at each node that are in a region, by the whole number that cell data have there.

    They are none where the numbers are not whole, are more than one per cell, or too many for regions.
    """
    own = [np.asarray(blocks[number]) for number in own_cells(mesh)]
    if not own or any(block.dtype.kind not in "iu" or block.size != len(block) for block in own):
        return {}
    values = np.unique(np.concatenate([block.ravel() for block in own]))
    if len(values) > MOST_REGIONS:
        return {}
    return {
        int(value): at_nodes(mesh, [np.asarray(block) == value for block in blocks], count)[:, 0] for value in values
    }


def at_nodes(mesh: meshio.Mesh, blocks: list[Any], count: int) -> NDArray[np.float64]:
    """Return cell data `[cell, (component)]` per block as the mean of the cells at each node, 0 at nodes without."""
    width = int(np.prod(np.shape(blocks[0])[1:]))
    total, cells = np.zeros((count, width)), np.zeros((count, 1))
    for number in own_cells(mesh):
        nodes, cell = members(mesh.cells[number])
        np.add.at(total, nodes, np.asarray(blocks[number], dtype=np.float64).reshape(-1, width)[cell])
        np.add.at(cells, nodes, 1)
    return total / np.maximum(cells, 1)


def numberings(mesh: meshio.Mesh) -> dict[str, str]:
    """Return which data number the points or the cells of a mesh, by name, and what they say.

    They are whole numbers of which each has another; they would tell a network in which order a mesh is stored.
    """
    own = own_cells(mesh)
    of_cells = {name: [np.asarray(blocks[number]) for number in own] for name, blocks in mesh.cell_data.items()}
    found = {name: "it numbers the cells" for name, blocks in of_cells.items() if own and are_unlike(blocks)}
    return found | {
        name: "it numbers the points" for name, values in mesh.point_data.items() if are_unlike([np.asarray(values)])
    }


def are_unlike(parts: list[NDArray[Any]]) -> bool:
    """Return whether whole numbers, one for each point or cell and more than regions have, are all unlike."""
    if any(each.dtype.kind not in "iu" or each.size != len(each) for each in parts):
        return False
    values = np.concatenate([each.ravel() for each in parts])
    return MOST_REGIONS < len(values) == len(np.unique(values))
