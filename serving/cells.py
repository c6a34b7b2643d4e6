"""What a request's cells say of its points: `boundary`, `distance` and `area`, where a model takes them.

A caller who has points and triangles sends these as `cells` in place of the inputs that a training on mesh files
derives from them. Cells are `[cell, node]` of one type: polygons of so many corners on a plane; tetrahedra, pyramids,
wedges or hexahedra in space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from physics.numerics.cells import Cells, UnknownCellsError, boundary, distance, sizes
from schema.card import COORDINATES, COUNTS, Card
from serving.errors import Problem

CELLS = "cells"
DERIVED = ("boundary", "distance", "area")


def derivable(card: Card) -> tuple[str, ...]:
    """Return the names of the inputs of a model that follow from cells."""
    return tuple(tensor.name for tensor in card.inputs if tensor.name in DERIVED) if card.scattered else ()


def derived(
    arrays: Mapping[str, NDArray[Any]], cells: Sequence[NDArray[Any]] | NDArray[Any], card: Card
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a request with the inputs that follow from its cells and that it has not sent.

    Args:
        arrays: Single samples, or batches padded to one number of points, by name.
        cells: `[cell, node]` per sample, or of one mesh for all; rows of -1 are padding.
        card: Of the model.

    Raises:
        Problem: The model takes none of what follows, or the boundary does not follow from the cells.
    """
    names = [name for name in derivable(card) if name not in arrays]
    if not derivable(card):
        raise Problem("wrong-input", f'"{CELLS}": no input of the model follows from cells', array=CELLS)
    points = arrays.get(COORDINATES)
    if points is None or points.ndim not in {2, 3} or not names:
        return dict(arrays)
    batch = points if points.ndim == 3 else points[np.newaxis]
    each = [cells] * len(batch) if isinstance(cells, np.ndarray) and cells.ndim == 2 else [*cells]
    if len(each) != len(batch):
        raise Problem("wrong-shape", f"{CELLS} has {len(each)} samples; {COORDINATES} has {len(batch)}", array=CELLS)
    counts = np.broadcast_to(np.asarray(arrays.get(COUNTS, 0)), (len(batch),))
    found = {name: np.zeros(batch.shape[:2], np.float32) for name in names}
    for index, (coordinates, nodes, count) in enumerate(zip(batch, each, counts, strict=True)):
        valid = int(count) if 0 < count <= len(coordinates) else len(coordinates)
        where = f"[{index}]" if points.ndim == 3 else ""
        for name, values in _of_sample(coordinates[:valid], np.asarray(nodes), f"{CELLS}{where}").items():
            if name in found:
                found[name][index, :valid] = values
    return {**arrays, **{name: values if points.ndim == 3 else values[0] for name, values in found.items()}}


def _of_sample(points: NDArray[Any], nodes: NDArray[Any], label: str) -> dict[str, NDArray[Any]]:
    """Return all that follows from the cells of one sample."""
    if nodes.ndim != 2 or nodes.dtype.kind not in "iu" or not len(nodes):
        detail = f"{label} has shape {nodes.shape} and dtype {nodes.dtype.name}; expected whole numbers (cell, node)"
        raise Problem("wrong-shape", detail, array=CELLS)
    nodes = nodes[(nodes >= 0).any(axis=1)].astype(np.int64)
    wrong = (nodes < 0) | (nodes >= len(points))
    if wrong.any():
        row, column = (int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))
        detail = f"{label} names the point {nodes[row, column]} in cell {row}; expected 0 to {len(points) - 1}"
        raise Problem("out-of-range", detail, array=CELLS)
    places = np.asarray(points, np.float64)
    if not np.isfinite(places).all():
        return {}  # which the check of the coordinates names
    try:
        known = Cells.of(nodes, places.shape[1])
        marked = boundary(known, places)
    except UnknownCellsError as error:
        detail = f"{label}: {error}: send {' and '.join(DERIVED[:2])} as inputs"
        raise Problem("wrong-input", detail, array=CELLS) from error
    return {"boundary": marked, "distance": distance(places, marked), "area": sizes(known, places)}
