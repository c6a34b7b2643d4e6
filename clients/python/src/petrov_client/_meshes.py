"""Meshes as inputs of models on points: those of `meshio` and `pyvista`, neither of which is needed to be imported.

A mesh has `points` `[point, 2 or 3]` and `point_data` by name. Its cells are looked at where a model takes `boundary`
or `distance` and the mesh has no such data: they are what a training on mesh files derives from the cells.
"""

from __future__ import annotations

import copy
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from petrov_client._errors import InvalidInput, Where
from petrov_client._models import ModelInfo
from petrov_client._schema import COMPONENT, COORDINATES, COUNTS, FRAME, ParameterInfo, TensorInfo

Array = npt.NDArray[Any]
BOUNDARY, DISTANCE, AREA, NORMAL = "boundary", "distance", "area", "boundary_normal"
DERIVED = frozenset({BOUNDARY, DISTANCE, AREA, NORMAL})
#: By which name a caller passes the cells of points, from which they follow.
CELLS = "cells"
#: The names of Greek letters.
GREEK = re.compile(r"GREEK (?:SMALL|CAPITAL)? ?(?:LETTER )?(?:FINAL )?([A-Z]+)(?: SYMBOL)?")
Nodes = tuple[tuple[int, ...], ...]
#: The corners of the facets of a cell, and all nodes on each of them.
Facets = tuple[Nodes, Nodes]


def _linear(facets: Nodes) -> Facets:
    return facets, facets


def _quadratic(facets: Nodes, edges: Nodes, middles: tuple[int, ...] = ()) -> Facets:
    """Return the facets of a cell with nodes in the middles of its edges, and then of the facets `middles`."""
    first = 1 + max(node for facet in facets for node in facet)
    nodes = [
        (*facet, *(first + number for number, edge in enumerate(edges) if {*edge} <= {*facet})) for facet in facets
    ]
    for number, facet in enumerate(middles, start=first + len(edges)):
        nodes[facet] = (*nodes[facet], number)
    return facets, tuple(nodes)


TRIANGLE: Nodes = ((0, 1), (1, 2), (2, 0))
QUAD: Nodes = ((0, 1), (1, 2), (2, 3), (3, 0))
TETRA: Nodes = ((0, 1, 2), (0, 1, 3), (1, 2, 3), (0, 2, 3))
PYRAMID: Nodes = ((0, 1, 2, 3), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4))
WEDGE: Nodes = ((0, 1, 2), (3, 4, 5), (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5))
HEXAHEDRON: Nodes = ((0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7))
#: The ends of the edges in whose middles quadratic cells have nodes, in order.
TETRA_EDGES: Nodes = (*TRIANGLE, (0, 3), (1, 3), (2, 3))
PYRAMID_EDGES: Nodes = (*QUAD, (0, 4), (1, 4), (2, 4), (3, 4))
WEDGE_EDGES: Nodes = (*TRIANGLE, (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5))
HEXAHEDRON_EDGES: Nodes = (*QUAD, (4, 5), (5, 6), (6, 7), (7, 4), (0, 4), (1, 5), (2, 6), (3, 7))
#: By dimensions of space, then by meshio's name of a type of cell and VTK's number of it.
KINDS: Mapping[int, Mapping[tuple[str, int], Facets]] = {
    2: {
        ("triangle", 5): _linear(TRIANGLE),
        ("triangle6", 22): _quadratic(TRIANGLE, TRIANGLE),
        ("quad", 9): _linear(QUAD),
        ("quad8", 23): _quadratic(QUAD, QUAD),
        ("quad9", 28): _quadratic(QUAD, QUAD),  # with a node inside
    },
    3: {
        ("tetra", 10): _linear(TETRA),
        ("tetra10", 24): _quadratic(TETRA, TETRA_EDGES),
        ("pyramid", 14): _linear(PYRAMID),
        ("pyramid13", 27): _quadratic(PYRAMID, PYRAMID_EDGES),
        ("pyramid14", -1): _quadratic(PYRAMID, PYRAMID_EDGES, (0,)),  # VTK has none
        ("wedge", 13): _linear(WEDGE),
        ("wedge15", 26): _quadratic(WEDGE, WEDGE_EDGES),
        ("wedge18", 32): _quadratic(WEDGE, WEDGE_EDGES, (2, 3, 4)),
        ("hexahedron", 12): _linear(HEXAHEDRON),
        ("hexahedron20", 25): _quadratic(HEXAHEDRON, HEXAHEDRON_EDGES),
        ("hexahedron27", 29): _quadratic(HEXAHEDRON, HEXAHEDRON_EDGES, (5, 3, 2, 4, 0, 1)),  # with a node inside
    },
}
FACETS: Mapping[int, Mapping[str | int, Facets]] = {
    dimensions: {key: facets for keys, facets in kinds.items() for key in keys} for dimensions, kinds in KINDS.items()
}
#: The types of cells in space by their number of nodes, where a caller passes no more than that.
SOLIDS = {4: "tetra", 5: "pyramid", 6: "wedge", 8: "hexahedron", 10: "tetra10"}
#: VTK's numbers of cells on a plane, on a line, and of points; those of all others are of cells in space.
PLANE, LINE, POINT = {5, 6, 7, 8, 9, 22, 23, 28, 30, 34, 36, 61, 62, 63, 69, 70}, {3, 4, 21, 35, 60, 68}, {0, 1, 2}
MOST_NODES = 9  # of a facet
ON_EDGE = 1e-6  # a node this near to an edge, in lengths of the edge, lies on it, as in the training
EDGES = 256  # that are compared with nodes at a time
#: Numbers of a table of distances in memory.
TABLE = 2**22


def is_mesh(value: Any) -> bool:
    """Return whether a value is a mesh with data at its points."""
    return hasattr(value, "points") and hasattr(value, "point_data")


def arrays_of(mesh: Any, info: ModelInfo, *, changing: bool = False) -> dict[str, Array]:
    """Return the inputs and parameters of a model that a mesh has, by name, as one sample.

    Point data have the names of the model's inputs, in any case and with any signs between words. Cell data of meshio
    are read as means of the cells at each point. Inputs that change in time are not those of one mesh: they are what is
    returned beside the coordinates with `changing`, of the mesh's frame.

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
    data = _data_of(mesh, info)
    for tensor in (one for one in info.inputs[1:] if (FRAME in one.axes) == changing):
        if tensor.name in data:
            found[tensor.name] = _at_points(data[tensor.name], tensor, kept)
        elif tensor.name in DERIVED and tensor.default is None:
            found[tensor.name] = _of_cells(tensor.name, mesh, found[COORDINATES]).astype(np.float32)
    return found


def _data_of(mesh: Any, info: ModelInfo) -> dict[str, Array]:
    """Return point data of a mesh by the names of a model's inputs, and what its cell data are at the points."""
    data = {wire_name(str(name)): np.asarray(values) for name, values in mesh.point_data.items()}
    for name, blocks in dict(getattr(mesh, "cell_data", {})).items():
        if isinstance(blocks, list):  # of meshio: an array per block of cells
            data.setdefault(wire_name(str(name)), means_at_points(mesh, blocks, len(mesh.points)))
            data = _shares(mesh, wire_name(str(name)), blocks, info) | data
    for state, output in zip(info.frames.states if info.frames else (), info.outputs, strict=False):
        if output.name in data:  # by whose name a mesh has the state that it goes on from
            data.setdefault(state, data[output.name])
    return data


def arrays_of_steps(meshes: Sequence[Any], info: ModelInfo) -> dict[str, Array]:
    """Return what `arrays_of` does for a model that starts from several frames: states of those of meshes in order.

    Raises:
        InvalidInput: As there, or the points of the meshes differ.
    """
    each = [arrays_of(mesh, info) for mesh in meshes]
    found = each[-1]
    for number, other in enumerate(each[:-1]):
        if not np.array_equal(other[COORDINATES], found[COORDINATES]):
            message = f"expected one mesh in all frames but the points of frame {number} are others than the last ones"
            raise InvalidInput(message, where=Where(COORDINATES))
    states = [name for name in (info.frames.states if info.frames else ()) if name in found]
    if missing := [name for name in states if any(name not in other for other in each)]:
        raise InvalidInput(f"expected it in all frames of {len(meshes)}", where=Where(missing[0]))
    return found | {name: np.stack([other[name] for other in each]) for name in states}


def without_loose_points(mesh: Any) -> tuple[Any, int]:
    """Return a mesh of meshio without the points that no cell of its own dimension has, and their number.

    One without cells but single points stays as it is.
    """
    most = max((block.dim for block in mesh.cells), default=0)
    own = [block for block in mesh.cells if block.dim == most and most > 0]
    if not own or any(block.type.startswith("polyhedron") for block in mesh.cells):
        return mesh, 0
    used = np.zeros(len(mesh.points), np.bool_)
    for block in own:
        used[np.asarray(block.data, np.int64)] = True
    if used.all():
        return mesh, 0
    made, to = copy.copy(mesh), np.cumsum(used) - 1
    kept = [bool(used[np.asarray(block.data, np.int64)].all()) for block in mesh.cells]
    pairs = [*zip(mesh.cells, kept, strict=True)]
    made.cells = [type(block)(block.type, to[np.asarray(block.data, np.int64)]) for block, keep in pairs if keep]
    made.points = np.asarray(mesh.points)[used]
    made.point_data = {name: np.asarray(values)[used] for name, values in mesh.point_data.items()}
    made.cell_data = {
        name: [values for values, keep in zip(blocks, kept, strict=True) if keep]
        for name, blocks in mesh.cell_data.items()
    }
    made.point_sets, made.cell_sets = {}, {}
    return made, int((~used).sum())


def _of_cells(name: str, mesh: Any, points: Array) -> Array:
    """Return an input of that name, as it follows from the cells of a mesh."""
    if name == AREA:
        return sizes(
            [(each, np.asarray(mesh.cells_dict[kind])) for kind, each in _known(mesh, points.shape[1]).items()], points
        )
    edge = on_boundary(mesh, points)
    if name == NORMAL:
        kinds, place = _joined(mesh, points)
        return normals(kinds, points, edge)[place]
    return edge if name == BOUNDARY else distance(points, edge)


def with_cells(passed: Mapping[str, Any], info: ModelInfo) -> dict[str, Any]:
    """Return inputs of a model on points with what follows from `cells` in place of these, as the service derives it.

    Cells are `[cell, node]` of one type, of one mesh for all samples, or a list of those of each; rows of -1 are
    padding. Types are polygons of so many corners on a plane, and those of `SOLIDS` in space.

    Raises:
        InvalidInput: The model takes nothing that follows from cells, or it does not follow from these.
    """
    found = dict(passed)
    if CELLS not in found or CELLS in {each.name for each in info.arguments}:
        return found
    cells, names = found.pop(CELLS), [each.name for each in info.inputs if each.name in DERIVED]
    made = [name for name in names if name not in found]
    if not made:
        reason = f"{' and '.join(names)} are passed already" if names else f'no input of "{info.name}" does'
        raise InvalidInput(f"expected cells that inputs follow from: {reason}", where=Where(CELLS))
    points = _numbers(found.get(COORDINATES, ()), COORDINATES)
    single = points.ndim == 2
    batch = points[None] if single else points
    if batch.ndim != 3 or batch.shape[2] not in KINDS or not batch.size:
        raise InvalidInput(f"expected (point, 2 or 3) but got {points.shape}", where=Where(COORDINATES))
    counts = _counts(found.get(COUNTS, 0), *batch.shape[:2])
    each = _of_samples(cells, len(batch))
    values = {name: np.zeros(batch.shape[: 3 if name == NORMAL else 2], np.float32) for name in made}
    for index, (coordinates, nodes, count) in enumerate(zip(batch, each, counts.tolist(), strict=True)):
        where = Where(CELLS) if single else Where(CELLS, (index,))
        if not np.isfinite(coordinates[:count]).all():
            raise InvalidInput("expected finite coordinates of all points", where=Where(COORDINATES))
        follows = _following(nodes, coordinates[:count], where)
        for name in made:
            values[name][index, :count] = follows[name]
    return found | {name: array[0] if single else array for name, array in values.items()}


def _numbers(value: Any, name: str) -> Array:
    """Return an array of numbers, if a value is one."""
    try:
        return np.asarray(value, np.float64)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"expected an array of numbers but: {error}", where=Where(name)) from error


def _counts(value: Any, samples: int, points: int) -> Array:
    """Return how many points every sample has, all of them where it says 0."""
    counts = _numbers(value, COUNTS)
    if counts.shape not in {(), (samples,)} or not ((counts >= 0) & (counts <= points) & (counts % 1 == 0)).all():
        expected = f"a whole number from 0 to {points}, or one per sample ({samples},)"
        raise InvalidInput(f"expected {expected} but got {value!s:.80}", where=Where(COUNTS))
    return np.broadcast_to(np.where(counts == 0, points, counts).astype(np.int64), (samples,))


def _of_samples(cells: Any, samples: int) -> list[Array]:
    """Return the cells of every sample."""
    try:
        array = np.asarray(cells)
        each = [array] * samples if array.ndim == 2 else [np.asarray(one) for one in array]
    except (ValueError, TypeError):  # those of each mesh, of unequal numbers
        try:
            each = [np.asarray(one) for one in cells]
        except (ValueError, TypeError) as error:
            raise InvalidInput(f"expected whole numbers [cell, node] but: {error}", where=Where(CELLS)) from error
    if len(each) != samples:
        raise InvalidInput(f"expected cells of {samples} meshes but got {len(each)}", where=Where(CELLS))
    return each


def _following(sent: Array, points: Array, where: Where) -> dict[str, Array]:
    """Return all that follows from the cells of one mesh."""
    if sent.ndim != 2 or sent.dtype.kind not in "iu":
        raise InvalidInput(f"expected whole numbers [cell, node] but got {sent.shape} {sent.dtype}", where=where)
    rows, columns = (np.flatnonzero((sent >= 0).any(axis=axis)) for axis in (1, 0))
    nodes = sent[np.ix_(rows, columns)]
    wrong = (nodes < 0) | (nodes >= len(points))
    if wrong.any():
        row, column = (int(place) for place in np.argwhere(wrong)[0])
        at = (*(where.index or ()), int(rows[row]), int(columns[column]))
        raise InvalidInput(
            f"expected points 0 to {len(points) - 1} but got {nodes[row, column]}", where=Where(CELLS, at)
        )
    flat, corners = points.shape[1] == 2, nodes.shape[1]
    if not len(nodes) or (corners < 3 if flat else corners not in SOLIDS):
        expected = "3 nodes or more" if flat else f"{', '.join(map(str, SOLIDS))} nodes"
        raise InvalidInput(f"expected cells of {expected} but got {sent.shape}", where=where)
    edges = tuple((node, (node + 1) % corners) for node in range(corners)) if flat else ()
    kinds = [(_linear(edges) if flat else FACETS[3][SOLIDS[corners]], nodes.astype(np.int64))]
    edge = _marked(kinds, points, where)
    _check_every_point(nodes, len(points), where)
    follows = {BOUNDARY: edge, DISTANCE: distance(points, edge), AREA: sizes(kinds, points)}
    return follows | {NORMAL: normals(kinds, points, edge)}


def with_outputs(mesh: Any, outputs: Mapping[str, Array], tensors: Iterable[TensorInfo | ParameterInfo]) -> Any:
    """Return a copy of a mesh with outputs of one sample, `[(batch), point, (component)]`, among its point data.

    Numbers of the sample, `[(batch), (component)]`, as `tensors` declare them, stand at every point: mesh files have
    no other place for them.
    """
    made, count = copy.deepcopy(mesh), len(mesh.points)
    numbers = {tensor.name for tensor in tensors if is_number(tensor)}
    for name, values in outputs.items():
        array = np.asarray(values)
        flat = np.tile(array.ravel(), (count, 1)) if name in numbers else array.reshape(count, -1)
        made.point_data[name] = flat[:, 0] if flat.shape[1] == 1 else flat
    return made


def is_number(tensor: TensorInfo | ParameterInfo) -> bool:
    """Return whether a tensor is a number per sample, or one per component, and no field on points.

    A card declares it. A plain Triton does not, but there a field has an axis of any size behind the batch.
    """
    if isinstance(tensor, ParameterInfo) or tensor.scalar or tensor.axes[1:2] in {(), (COMPONENT,)}:
        return True
    return bool(tensor.shape) and None not in tensor.shape[1:]


def wire_name(name: str) -> str:
    """Return a name in the form that the wire allows: lower case letters, digits and underscores.

    Greek letters are spelled out, and accents are left out, as in the names of models' tensors.
    """
    plain = "".join(map(_latin, unicodedata.normalize("NFKD", name)))
    made = re.sub(r"[^a-z0-9]+", "_", plain.lower()).strip("_")
    return made if made[:1].isalpha() else f"field_{made}".rstrip("_")


def _latin(letter: str) -> str:
    found = GREEK.fullmatch(unicodedata.name(letter, ""))
    return f" {found[1].replace('LAMDA', 'LAMBDA')} " if found else "" if unicodedata.combining(letter) else letter


def on_boundary(mesh: Any, points: Array) -> npt.NDArray[np.bool_]:
    """Return which points lie on facets that belong to one cell alone.

    Raises:
        InvalidInput: There are no cells of the mesh's own dimension, or some of an unknown type, or of
            two sizes beside each other.
    """
    kinds, place = _joined(mesh, points)
    found = _marked(kinds, points, Where(BOUNDARY))[place]
    every = np.concatenate([np.asarray(mesh.cells_dict[kind]).ravel() for kind in _known(mesh, points.shape[1])])
    _check_every_point(every, len(points), Where(BOUNDARY))
    return found


def _joined(mesh: Any, points: Array) -> tuple[list[tuple[Facets, Array]], Array]:
    """Return cells that share nodes, where each has its own (discontinuous elements), and the node of every point."""
    known = _known(mesh, points.shape[1])
    every = np.concatenate([np.asarray(mesh.cells_dict[kind]).ravel() for kind in known])
    _, first, to = np.unique(points, axis=0, return_index=True, return_inverse=True)
    place = first[to.ravel()] if len(np.unique(every)) == len(every) else np.arange(len(points))
    return [(facets, place[np.asarray(mesh.cells_dict[kind])]) for kind, facets in known.items()], place


def _check_every_point(nodes: Array, count: int, where: Where) -> None:
    """Refuse points that no cell has: a training on mesh files leaves them out."""
    alone = np.ones(count, np.bool_)
    alone[nodes] = False
    if alone.any():
        detail = f"point {int(alone.argmax())} is in no cell: expected cells of all {count} points"
        raise InvalidInput(f"{detail}; `remove_orphaned_nodes` of meshio takes such points away", where=where)


def _known(mesh: Any, dimensions: int) -> dict[str | int, Facets]:
    """Return the types of a mesh's cells of its own dimension, with their facets."""
    known = FACETS[dimensions]
    blocks = getattr(mesh, "cells", None)
    listed = [block.type for block in blocks] if isinstance(blocks, list) else list(getattr(mesh, "cells_dict", {}))
    of_mesh = {kind for kind in listed if _dimension(kind) >= dimensions}
    if not of_mesh or of_mesh - {*known}:
        seen = ", ".join(sorted(map(str, of_mesh - {*known}))) or "none"
        raise InvalidInput(
            f"expected cells of the types {', '.join(kind for kind in known if isinstance(kind, str))}, which the "
            f"boundary follows from, or `{BOUNDARY}` and `{DISTANCE}` as point data, but got {seen}",
            where=Where(BOUNDARY),
        )
    return {kind: known[kind] for kind in of_mesh}


def _marked(kinds: list[tuple[Facets, Array]], points: Array, where: Where) -> npt.NDArray[np.bool_]:
    """Return which points lie on facets that belong to one cell alone."""
    instead = f"so the boundary does not follow from the cells: expected `{BOUNDARY}` and `{DISTANCE}` as point data"
    facets: dict[int, list[tuple[Array, Array]]] = {}  # corners and all nodes, by the number of corners
    for (ends, every), cells in kinds:
        ordered = np.sort(cells, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if twice.any() or len(np.unique(ordered, axis=0)) < len(cells):
            fault = f"cell {int(twice.argmax())} has a node twice" if twice.any() else "two cells have the same nodes"
            raise InvalidInput(f"{fault}, {instead}", where=where)
        for corners, members in zip(ends, every, strict=True):
            padded = (*members, *members[-1:] * (MOST_NODES - len(members)))
            facets.setdefault(len(corners), []).append((cells[:, corners], cells[:, padded]))
    alone = {size: _once(parts, instead, where) for size, parts in facets.items()}
    if 3 in alone and 4 in alone:
        kept = _without_halves(alone[3][0], alone[4][0])
        alone = {size: (alone[size][0][keep], alone[size][1][keep]) for size, keep in zip((3, 4), kept, strict=True)}
    if not any(len(corners) for corners, _ in alone.values()):
        raise InvalidInput(f"no cell has a facet of its own, {instead}", where=where)
    if (node := _hanging(points, [corners for corners, _ in alone.values()])) is not None:
        raise InvalidInput(f"node {node} hangs on an edge of another cell, {instead}", where=where)
    found = np.zeros(len(points), dtype=np.bool_)
    for _, nodes in alone.values():
        found[nodes] = True
    return found


def sizes(kinds: list[tuple[Facets, Array]], points: Array) -> Array:
    """Return the area, in space the volume, of the cells around each point, which a cell's nodes share equally."""
    found, flat = np.zeros(len(points)), points.shape[1] == 2
    for (facets, _), nodes in kinds:
        corners = points[nodes[:, : 1 + max(node for facet in facets for node in facet)]]
        middle = corners.mean(axis=1)
        size = np.zeros(len(nodes))
        if flat:  # edges run around their cell, which may be no convex one
            x, y = np.moveaxis(corners - middle[:, None], 2, 0)
            size = (x * np.roll(y, -1, axis=1) - np.roll(x, -1, axis=1) * y).sum(axis=1) / 2
        for facet in () if flat else facets:  # tetrahedra between the middle and the facets
            rays = [points[nodes[:, each]] - middle for each in facet]
            for fan in [rays] if len(rays) < 4 else [rays[:3], [rays[0], *rays[2:]]]:
                size += np.abs(np.linalg.det(np.stack(fan, axis=1))) / 6
        np.add.at(found, nodes, np.abs(size)[:, None] / nodes.shape[1])
    return found


def normals(kinds: list[tuple[Facets, Array]], points: Array, edge: Array) -> Array:
    """Return vectors out of the domain at points on its boundary, as long as the part of it that each stands for.

    What the facets of a cell give to their points, those of its neighbours take away again, so that inside nothing is
    left.
    """
    found, flat = np.zeros(points.shape), points.shape[1] == 2
    for (facets, every), nodes in kinds:
        corners = points[nodes[:, : 1 + max(node for facet in facets for node in facet)]]
        if flat:  # all edges at once: a polygon may have as many as the mesh has nodes
            x, y = np.moveaxis(corners - corners[:, :1], 2, 0)  # far from the origin nothing would be left otherwise
            turn = np.sign((x * np.roll(y, -1, axis=1) - np.roll(x, -1, axis=1) * y).sum(axis=1))
            first, last = np.moveaxis(points[nodes[:, np.array(facets)]], 2, 0)
            edges = turn[:, None, None] * np.stack([(last - first)[..., 1], (first - last)[..., 0]], axis=2)
            shared = np.array(every)
            np.add.at(found, nodes[:, shared], edges[:, :, None] / shared.shape[1])
            continue
        for facet, members in zip(facets, every, strict=True):
            own = points[nodes[:, facet]]
            vectors = np.cross(own[:, 1:-1] - own[:, :1], own[:, 2:] - own[:, :1]).sum(axis=1) / 2
            out = (vectors * (own.mean(axis=1) - corners.mean(axis=1))).sum(axis=1)
            vectors = np.where(out[:, None] < 0, -vectors, vectors)
            np.add.at(found, nodes[:, members], vectors[:, None] / len(members))
    return np.where(edge[:, None], found, 0.0)


def _dimension(kind: str | int) -> int:
    """Return the dimension of a type of cell, by meshio's name or VTK's number."""
    if not isinstance(kind, str):
        return next((number for number, kinds in enumerate((POINT, LINE, PLANE)) if kind in kinds), 3)
    shapes = ("vertex", "line|vtk_lagrange_curve", "triangle|quad|polygon|pixel|vtk_lagrange_(tri|quad)")
    return next((number for number, shape in enumerate(shapes) if re.match(shape, kind.lower())), 3)


def _once(parts: list[tuple[Array, Array]], instead: str, where: Where) -> tuple[Array, Array]:
    """Return corners and nodes of the facets that belong to one cell."""
    corners, nodes = (np.concatenate(each) for each in zip(*parts, strict=True))
    _, index, shared = np.unique(np.sort(corners, axis=1), axis=0, return_index=True, return_counts=True)
    if shared.max(initial=0) > 2:
        raise InvalidInput(f"three cells share a facet, {instead}", where=where)
    return corners[index[shared == 1]], nodes[index[shared == 1]]


def _hanging(points: Array, facets: list[Array]) -> int | None:
    """Return a corner of facets that lies on an edge of another one, if there is any."""
    ends = [np.stack([each, np.roll(each, 1, axis=1)], axis=-1).reshape(-1, 2) for each in facets]
    edges = np.unique(np.sort(np.concatenate(ends), axis=1), axis=0)
    nodes = np.unique(edges)
    nodes = nodes[np.argsort(points[nodes, 0])]  # along the first axis, so that few are compared with an edge
    edges = edges[np.argsort(points[edges, 0].min(axis=1))]
    positions, reach = points[nodes, 0], 2 * ON_EDGE * np.ptp(points[:, 0])
    for some in np.array_split(edges, -(-len(edges) // EDGES)):
        start = np.searchsorted(positions, points[some, 0].min() - reach)
        near = nodes[start : np.searchsorted(positions, points[some, 0].max() + reach)]
        first, along = points[some[:, :1]], points[some[:, 1:]] - points[some[:, :1]]
        apart = points[near] - first  # [edge, node, dimension]
        squares = np.maximum(np.square(along).sum(axis=2), np.finfo(np.float64).tiny)
        share = (apart * along).sum(axis=2) / squares
        off = np.square(apart - share[..., np.newaxis] * along).sum(axis=2)
        hanging = (off < ON_EDGE**2 * squares) & (share > ON_EDGE) & (share < 1 - ON_EDGE)
        if hanging.any():
            return int(near[hanging.any(axis=0).argmax()])
    return None


def _without_halves(triangles: Array, quads: Array) -> list[npt.NDArray[np.bool_]]:
    """Return what stays of triangles and quadrilaterals without the latter that two of the former cover, and these."""
    known = {tuple(sorted(each)): number for number, each in enumerate(triangles.tolist())}
    kept = [np.ones(len(each), dtype=np.bool_) for each in (triangles, quads)]
    for number, (a, b, c, d) in enumerate(quads.tolist()):
        for halves in (((a, b, c), (a, c, d)), ((a, b, d), (b, c, d))):
            behind = [known.get(tuple(sorted(half)), -1) for half in halves]
            if min(behind) >= 0:
                kept[0][behind], kept[1][number] = False, False
    return kept


def distance(points: Array, edge: npt.NDArray[np.bool_]) -> Array:
    """Return the distance of all points `[point, dimension]` to the nearest of those on the edge."""
    targets = points[edge]
    rows = max(1, TABLE // max(1, targets.size))
    parts = (points[start : start + rows, None] - targets for start in range(0, len(points), rows))
    squares = [np.square(apart).sum(axis=2).min(axis=1) for apart in parts]
    return np.asarray(np.sqrt(np.concatenate(squares)))


def _shares(mesh: Any, name: str, blocks: list[Any], info: ModelInfo) -> dict[str, Array]:
    """Return the inputs of a model such as `material_2`, the share of the cells at each point whose `material` is 2."""
    found = {}
    for tensor in info.inputs[1:]:
        region = re.fullmatch(rf"{re.escape(name)}_(\d+)", tensor.name)
        if region and all(np.asarray(block).dtype.kind in "iu" for block in blocks):
            inside = [np.asarray(block) == int(region[1]) for block in blocks]
            found[tensor.name] = means_at_points(mesh, inside, len(mesh.points))
    return found


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
    if COMPONENT not in tensor.axes:
        return flat[:, 0] if flat.shape[1] == 1 else values
    more = flat.shape[1] == len(kept) > (tensor.shape[-1] or 0)
    return flat[:, kept] if more and not flat[:, ~kept].any() else flat
