"""Cells of meshes as `meshio` reads them: which of them are known, and cell data at the nodes.

Only cells of the mesh's own dimension count: files of a plane mesh have its boundary lines as cells, too.
"""

from __future__ import annotations

from typing import Any

import meshio
import numpy as np
from meshio._mesh import topological_dimension
from numpy.typing import NDArray

from physics.numerics.cells import KINDS, Cells, Indices, UnknownCellsError, polygon

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


def joined_nodes(mesh: meshio.Mesh, points: NDArray[np.float64]) -> tuple[meshio.Mesh, Indices]:
    """Return a mesh whose cells share nodes, where every cell has its own (discontinuous elements), and their numbers.

    Nodes at one place that belong to cells which share other nodes are those of a crack, and stay.
    """
    every = np.concatenate([members(mesh.cells[number])[0] for number in own_cells(mesh)] or [np.empty(0, np.int64)])
    _, first, to = np.unique(points, axis=0, return_index=True, return_inverse=True)
    own = np.arange(len(points))
    if len(first) == len(points) or len(np.unique(every)) < len(every):
        return mesh, own
    to = first[to.ravel()]
    cells = [
        meshio.CellBlock(
            block.type,
            [[to[np.asarray(face, np.int64)] for face in cell] for cell in block.data]
            if is_polyhedra(block)
            else to[np.asarray(block.data, np.int64)],
        )
        for block in mesh.cells
    ]
    return meshio.Mesh(mesh.points, cells), to


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
