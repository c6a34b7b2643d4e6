"""Meshes as inputs of models on points: those of `meshio` and `pyvista`, neither of which is needed to be imported.

A mesh has `points` `[point, 2 or 3]` and `point_data` by name. Its cells are looked at where a model takes `boundary`
or `distance` and the mesh has no such data: they are what a training on mesh files derives from the cells.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from petrov_client._cell_types import SOLIDS, Cells, normals, sizes
from petrov_client._cells import KNOWN, Array, cells_of, check_every_point, distance, joined, marked, on_boundary
from petrov_client._errors import InvalidInput, Where, issue
from petrov_client._models import ModelInfo
from petrov_client._schema import (
    AREA,
    BOUNDARY,
    CELLS,
    COMPONENT,
    COORDINATES,
    COUNTS,
    DISTANCE,
    FRAME,
    NORMAL,
    ParameterInfo,
    TensorInfo,
)
from petrov_client._wire_names import wire_name

DERIVED = frozenset({BOUNDARY, DISTANCE, AREA, NORMAL})


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
    if not info.scattered:
        raise InvalidInput(f'expected arrays for "{info.name}", whose inputs are on a grid, but got a mesh')
    points, dimensions = np.asarray(mesh.points, np.float64), info.inputs[0].shape[-1] or 2
    varying = np.ptp(points, axis=0) > 0
    kept = varying if varying.sum() == dimensions else np.arange(points.shape[1]) < dimensions
    if varying.sum() > dimensions:
        raise InvalidInput(
            f'expected points in {dimensions} dimensions for "{info.name}" but those of the mesh have '
            f"{int(varying.sum())}",
            where=Where(COORDINATES),
        )
    if not kept[:dimensions].all():
        along = " and ".join(axis for axis, each in zip("xyz", kept, strict=True) if each)
        text = f'the mesh lies in the plane of {along}, which are taken for the axes that "{info.name}" was trained on'
        issue(f"{text}, in this order: turn it where its training meshes lie in another plane", UserWarning)
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


def checked(mesh: Any) -> Any:
    """Return a mesh whose cells are made of its points.

    Raises:
        ValueError: There are no points, or a cell names one that is not there. One below zero would be taken for one
            from the end.
    """
    if not len(mesh.points):
        raise ValueError("expected points but the mesh has none")
    for block in mesh.cells:
        rows = [face for cell in block.data for face in cell] if block.type.startswith("polyhedron") else [block.data]
        for nodes in map(np.asarray, rows):
            if nodes.size and not 0 <= nodes.min() <= nodes.max() < len(mesh.points):
                wrong = nodes.min() if nodes.min() < 0 else nodes.max()
                raise ValueError(
                    f"cells of the type {block.type} name point {wrong}, counted from 0, of {len(mesh.points)} points"
                )
    return mesh


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
        return sizes(Cells(cells_of(mesh, points.shape[1])), points)
    edge = on_boundary(mesh, points)
    if name == NORMAL:
        kinds, place = joined(mesh, points)
        return normals(Cells(kinds), points, edge)[place]
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
    if batch.ndim != 3 or batch.shape[2] not in KNOWN or not batch.size:
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
    cells = Cells.of(nodes.astype(np.int64), points.shape[1])
    edge = marked([*cells.blocks], points, where)
    check_every_point(nodes, len(points), where)
    follows = {BOUNDARY: edge, DISTANCE: distance(points, edge), AREA: sizes(cells, points)}
    return follows | {NORMAL: normals(cells, points, edge)}


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
        flat = np.asarray(values, np.float64).reshape(len(block.data), width)
        if str(block.type).startswith("polyhedron"):  # by their faces
            each = [np.unique(np.concatenate(faces)) for faces in block.data]
            nodes, rows = np.concatenate(each), np.repeat(np.arange(len(each)), [len(one) for one in each])
            np.add.at(total, nodes, flat[rows])
            np.add.at(cells, nodes, 1)
            continue
        for nodes in np.asarray(block.data).T:
            np.add.at(total, nodes, flat)
            np.add.at(cells, nodes, 1)
    return total / np.maximum(cells, 1)


def _at_points(values: Array, tensor: TensorInfo, kept: npt.NDArray[np.bool_]) -> Array:
    """Return point data as an input; mesh files give every vector of a plane a third component, 0."""
    flat = values.reshape(len(values), -1)
    if COMPONENT not in tensor.axes:
        return flat[:, 0] if flat.shape[1] == 1 else values
    more = flat.shape[1] == len(kept) > (tensor.shape[-1] or 0)
    return flat[:, kept] if more and not flat[:, ~kept].any() else flat
