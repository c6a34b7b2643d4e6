r"""Statistics of the normalisers, which the reference does not store in its state dict.

They are mean and deviation at every point of the native grid for the input, and of the output's grid for the output.
They come from a file, from a whole pickled model, or from the training fields as the reference computes them,

.. math::
    z = (x - \mathrm{mean}) / (\mathrm{std} + \mathrm{eps}), \qquad \mathrm{eps} = 10^{-5}.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from physics.numerics.averages import block_mean
from research.importing.errors import ReferenceImportError
from training.data import Samples, store
from training.data.pair import only_pair
from training.nn.normaliser import EPSILON
from training.problems.registry import PROBLEMS

Array = NDArray[np.float64]

FIELDS = 1024
"""Fields of the published training set."""
NAMES = ("mean", "std", "eps")


@dataclass(frozen=True)
class Statistics:
    """Statistics at every point of a square grid.

    Attributes:
        mean: The mean [row, column], in physical units.
        deviation: The standard deviation plus eps [row, column], in physical units.
    """

    mean: Array
    deviation: Array

    @property
    def side(self) -> int:
        """Points per axis."""
        return len(self.mean)


@dataclass(frozen=True)
class Pair:
    """The statistics of input and output; None where they are unknown."""

    input: Statistics | None = None
    output: Statistics | None = None

    def completed(self, other: Pair) -> Pair:
        """Return the pair with missing statistics taken from another one."""
        return Pair(self.input or other.input, self.output or other.output)


def read(path: Path) -> Pair:
    """Read arrays mean, std, eps (of the output) and input_mean, input_std, input_eps from an .npz file; no pickles.

    Raises:
        ReferenceImportError: The file cannot be read, has other arrays, or statistics that do not fit each other.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name], dtype=np.float64) for name in file.files}
    except (OSError, ValueError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ReferenceImportError(f"{path}: expected an .npz file of numbers but {error}") from error
    known = {f"{prefix}{name}" for prefix in ("", "input_") for name in NAMES}
    if not arrays or not arrays.keys() <= known:
        found = ", ".join(sorted(arrays)) or "nothing"
        raise ReferenceImportError(f"{path}: expected arrays of {', '.join(sorted(known))} but found {found}")
    return Pair(statistics(arrays, str(path), "input_"), statistics(arrays, str(path)))


def statistics(arrays: Mapping[str, Array], source: str, prefix: str = "") -> Statistics | None:
    """Return the statistics among named arrays.

    Args:
        arrays: The arrays by name.
        source: Their file, for the message.
        prefix: The first part of the three names.

    Returns:
        The statistics, None if there are none.

    Raises:
        ReferenceImportError: One of the three is missing, misshapen, not finite or not positive.
    """
    where = f"{source}: {prefix}"
    found = {name: arrays[prefix + name] for name in NAMES if prefix + name in arrays}
    if not found:
        return None
    if missing := [name for name in NAMES if name not in found]:
        raise ReferenceImportError(f"{where}{', '.join(missing)}: expected beside {', '.join(found)} but there is none")
    mean, deviation = (planar(array, where) for array in (found["mean"], found["std"] + found["eps"]))
    if mean.shape != deviation.shape:
        raise ReferenceImportError(f"{where}std: expected the mean's shape {mean.shape} but found {deviation.shape}")
    if not (np.isfinite(mean).all() and np.isfinite(deviation).all() and (deviation > 0).all()):
        raise ReferenceImportError(f"{where}mean, std, eps: expected finite numbers and std + eps above 0 everywhere")
    return Statistics(mean, deviation)


def planar(array: Array, where: str) -> Array:
    """Return an array [row, column], or the reference's [row, column, 1], as [row, column].

    Raises:
        ReferenceImportError: It has another shape or is not square.
    """
    plane = array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array
    if plane.ndim != 2 or plane.shape[0] != plane.shape[1]:
        raise ReferenceImportError(f"{where}mean, std: expected the shape (n, n) or (n, n, 1) but found {array.shape}")
    return plane


def of(fields: NDArray[Any]) -> Statistics:
    """Compute the statistics of fields [sample, row, column]."""
    return Statistics(fields.mean(0, dtype=np.float64), fields.std(0, dtype=np.float64) + EPSILON)


def samples(path: Path, split: store.Split, most: int, problem: str, grid: int, output: int) -> Samples:
    """Read samples as the reference has them: strided, and for the inverse problem pooled twice.

    Args:
        path: Samples in this project's layout.
        split: Their split.
        most: The largest number of samples.
        problem: The problem's name.
        grid: Points per axis of the inputs.
        output: Points per axis of the outputs of an inverse problem.

    Returns:
        The first samples of the split.

    Raises:
        ReferenceImportError: The file cannot be read, is another problem's, or cannot be strided to the grid.
    """
    try:
        with store.opened(path) as file:
            count = min(store.finished(file, split), most)
        if not count:
            raise ValueError(f"there are no finished samples in {split}")  # noqa: TRY301 - one error for all faults
        requested = PROBLEMS[problem]
        found = store.read(path, split, count, grid, problem=requested.source)
        if requested.source is requested:
            return found
        # Without a fixed output grid: these outputs are pooled already.
        pooled = replace(requested, description=requested.description.model_copy(update={"output_grid": None}))
        outputs = pooled_twice(path, split, count, problem, (grid, output))
        return replace(found, inputs=found.outputs, outputs=outputs, problem=pooled)
    except (OSError, ValueError, KeyError) as error:
        raise ReferenceImportError(f"{path}: expected samples of {problem} but {error}") from error


def pooled_twice(
    path: Path, split: store.Split, count: int, problem: str, sides: tuple[int, int]
) -> NDArray[np.float32]:
    """Average the finest outputs to the native grid, and from there to the output's grid.

    Args:
        path: Samples in this project's layout.
        split: Their split.
        count: The number of samples.
        problem: The inverse problem's name.
        sides: Points per axis of both grids.

    Returns:
        The outputs [sample, row, column], in physical units.
    """
    native, output = ((side, side) for side in sides)
    with store.opened(path) as file:
        fields = file[split][only_pair(PROBLEMS[problem].description).output.name]
        return np.stack([block_mean(block_mean(fields[i], native), output) for i in range(count)])
