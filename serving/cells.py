"""What a request's cells say of its points, where a model takes it: `boundary`, `distance`, `area`, `boundary_normal`.

A caller who has points and triangles sends these as `cells` in place of the inputs that a training on mesh files
derives from them. Cells are `[cell, node]` of one type: polygons of so many corners on a plane; tetrahedra, pyramids,
wedges or hexahedra in space. They are those of every sample, `[sample, cell, node]`, or of one mesh for all; rows and
columns of -1 are padding. A mesh has a bounded number of them for each of its points, so that what they take, which is
counted before (`Derivation.bytes`), is in proportion to the points.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from physics.numerics.cell_types import Cells, UnknownCellsError, normals, sizes
from physics.numerics.cells import boundary, distance, repeated
from schema.card import AREA, BOUNDARY, CELLS, COORDINATES, DISTANCE, NORMAL, Card
from serving import checks
from serving.errors import Problem, Where

DERIVED = (BOUNDARY, DISTANCE, AREA, NORMAL)
#: Nodes of all cells per point, by dimensions. The cells of a plane have at most six (Euler's formula: there are fewer
#: than three edges per point, each of two cells); tetrahedra some thirty, and all that five points can have are fewer.
MOST_NODES = {2: 6, 3: 64}
NODE_BYTES, POINT_BYTES, SAMPLE_BYTES = 256, 640, 2**14  # that one of them takes, at most; of a sample, its work
_FORM = "(cell, node), or (sample, cell, node)"
PIECE = 2**23  # bytes of work between which a request may end


def derivable(card: Card) -> tuple[str, ...]:
    """Return the names of the inputs of a model that follow from cells."""
    return tuple(tensor.name for tensor in card.inputs if tensor.name in DERIVED) if card.scattered else ()


def check_names(sent: Collection[str], card: Card) -> None:
    """Check the names of a request's arrays, where cells may stand for the inputs that follow from them."""
    if CELLS in sent and CELLS not in card.names:
        others = [name for name in sent if name != CELLS]
        checks.names(others, card.names, {*card.optional, *derivable(card)})
    else:
        checks.names(sent, card.names, card.optional)


class Derivation:
    """The inputs of a request that follow from its cells and that it has not sent, in pieces of its samples.

    Args:
        arrays: Single samples, or batches padded to one number of points, by name, with `cells`.
        card: Of the model.

    Attributes:
        bytes: The memory that all of it takes at one time, at most.
        work: That of all samples, one after the other: how long it takes.
        arrays: Those of the request without cells, and those that follow; complete after the last of the `pieces`.

    Raises:
        Problem: The cells, or the points that they belong to, are no arrays of the form that is expected, or there are
            more of them than a mesh has.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], card: Card) -> None:
        self.arrays = {name: array for name, array in arrays.items() if name != CELLS}
        self._nodes = nodes = arrays[CELLS]
        names = [name for name in derivable(card) if name not in arrays]
        if not names:
            follows = f"{' and '.join(derivable(card))} are sent already" if derivable(card) else "none of the model's"
            raise Problem("wrong-input", f"no input follows from {CELLS}: {follows}", where=_at())
        self._counts = checks.points_of_samples(arrays, card)
        points = arrays[COORDINATES]
        self._single = points.ndim == 2
        self._points = points[np.newaxis] if self._single else points
        self._shared = nodes.ndim == 2
        if nodes.ndim != (1 if nodes.dtype == object else 3) and not self._shared:
            raise Problem("wrong-shape", f"{CELLS} has shape {nodes.shape}; expected {_FORM}", where=_at())
        samples, most, dimensions = self._points.shape
        each = [nodes] if self._shared else [*nodes]
        for index, one in enumerate(each):
            if one.dtype.kind not in "iu" and one.ndim == 2 and one.size:
                detail = f"{self._label(index)} are {one.dtype.name}; expected whole numbers"
                raise Problem("wrong-dtype", detail, where=_at(*self._index(index)))
            if one.ndim != 2 or not one.size:
                detail = f"{self._label(index)} has shape {one.shape}; expected {_FORM}"
                raise Problem("wrong-shape", detail, where=_at(*self._index(index)))
        if not self._shared and len(nodes) != samples:
            detail = f"{CELLS} has {len(nodes)} samples; {COORDINATES} has {samples}"
            raise Problem("wrong-shape", detail, where=_at())
        named = np.array([np.count_nonzero(one >= 0) for one in each])
        limits = MOST_NODES.get(dimensions, 0) * self._counts
        if (named > limits).any():
            index = int((named > limits).argmax())
            count, limit = int(np.broadcast_to(named, samples)[index]), int(limits[index])
            detail = f"{self._label(index)} names points {count} times; a mesh of so many points does at most {limit}"
            raise Problem("wrong-input", detail, where=_at(*self._index(index)))
        work = NODE_BYTES * named + POINT_BYTES * self._counts + SAMPLE_BYTES
        sides = {name: (samples, most, *(dimensions,) * (name == NORMAL)) for name in names}
        self.bytes = 4 * sum(map(math.prod, sides.values())) + int(work.max()) + max(one.size for one in each)
        self.arrays |= {name: np.zeros(side[self._single :], np.float32) for name, side in sides.items()}
        self._names, self._work = names, np.cumsum(np.broadcast_to(work, samples))
        self.work = int(self._work[-1])

    def pieces(self) -> Iterator[range]:
        """Yield parts of the samples, each of much work or of one sample."""
        start, total = 0, len(self._work)
        while start < total:
            done = self._work[start - 1] if start else 0
            end = max(start + 1, int(np.searchsorted(self._work, done + PIECE, "right")))
            yield range(start, end)
            start = end

    def derive(self, piece: range) -> None:
        """Derive the inputs of some samples.

        Raises:
            Problem: Cells name points that there are none of, or the boundary does not follow from them.
        """
        for index in piece:
            nodes = self._nodes if self._shared else self._nodes[index]
            count = int(self._counts[index])
            found = self._of_sample(self._points[index, :count], nodes, index)
            for name in self._names:
                array = self.arrays[name]
                (array if self._single else array[index])[:count] = found[name]

    def _of_sample(self, points: NDArray[Any], sent: NDArray[Any], index: int) -> dict[str, NDArray[Any]]:
        """Return all that follows from the cells of one sample."""
        label, some = self._label(index), sent >= 0
        rows, columns = np.flatnonzero(some.any(axis=1)), np.flatnonzero(some.any(axis=0))
        if not len(rows):
            raise Problem("wrong-shape", f"{label} has no cells", where=_at(*self._index(index)))
        nodes = sent if some.all() else sent[np.ix_(rows, columns)]
        wrong = (nodes < 0) | (nodes >= len(points))
        if wrong.any():
            row, column = checks.first(wrong)
            place, named = (int(rows[row]), int(columns[column])), nodes[row, column]
            detail = f"{label} names the point {named} in cell {place[0]}; expected 0 to {len(points) - 1}"
            raise Problem("out-of-range", detail, where=_at(*self._index(index), *place))
        nodes, places = nodes.astype(np.int64), np.asarray(points, np.float64)
        twice = repeated(nodes)
        if twice.any():
            row = int(rows[twice.argmax()])
            detail = f"{label} has a point twice in cell {row}; expected corners that differ"
            raise Problem("wrong-input", detail, where=_at(*self._index(index), row))
        try:
            known = Cells.of(nodes, places.shape[1])
            self._check_every(nodes, len(points), index)
            marked = boundary(known, places)
        except UnknownCellsError as error:
            detail = f"{label}: {error}: send {' and '.join(self._names)} as inputs"
            raise Problem("wrong-input", detail, where=_at(*self._index(index))) from error
        found = {BOUNDARY: marked, DISTANCE: distance(places, marked), AREA: sizes(known, places)}
        return found if NORMAL not in self._names else found | {NORMAL: normals(known, places, marked)}

    def _check_every(self, nodes: NDArray[Any], count: int, index: int) -> None:
        """Refuse points that no cell has, which would be taken for some inside."""
        alone = np.ones(count, np.bool_)
        alone[nodes] = False
        if alone.any():
            label = self._label(index)
            detail = f"{label} has the point {int(alone.argmax())} in no cell; expected cells of all {count} points"
            raise Problem("wrong-input", detail, where=_at(*self._index(index)))

    def _index(self, sample: int) -> tuple[int, ...]:
        """Return the index of the cells of a sample in the array that was sent."""
        return () if self._shared else (sample,)

    def _label(self, sample: int) -> str:
        return checks.shown(CELLS, self._index(sample))


def _at(*index: int) -> Where:
    """Return a location in cells, which a body in JSON has beside the inputs."""
    return Where(array=CELLS, index=list(index) or None, inputs=False)
