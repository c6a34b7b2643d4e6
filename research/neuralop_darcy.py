"""Darcy flow in the set of the neuraloperator library: the pressure to a material of two kinds on coarse grids.

The set is in the wheel of neuraloperator 0.3.0 (MIT). The wheel is an archive of files of torch.save, each an archive
in turn, whose members hold a tensor's numbers and nothing else. The numbers are read directly, with the sample as the
fastest index, and no pickle is opened. The set's training fields have 16 x 16 points, its test fields 32 x 32, and
every second of these is the 16 x 16 test set.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from physics import darcy
from schema.parts import Axis, Quantity
from schema.problem import Description, GridLimits
from training.messages import UserError
from training.problems.darcy import DESCRIPTION as DARCY
from training.problems.problem import Array, Baseline, Conditions, Fields, Problem, Stream, data_folder

WHEEL = "neuraloperator-0.3.0-*.whl"
FOLDER = Path(".third_party")
MEMBERS: Mapping[Stream, tuple[str, int, int]] = {
    "train": ("darcy_train_16", 1000, 16),
    "test": ("darcy_test_32", 50, 32),
}
"""The member of the wheel for each stream, its samples and its points per axis."""
POINTS = "x_i = (512 i/n + 1/2)/512 per axis: cell centres of a 512-cell mesh, strided; none at the far wall"
CELLS = 256
"""Cells per axis of the mesh that the classical method solves on."""

DESCRIPTION = Description(
    name="neuralop_darcy",
    title="Darcy flow in the set of the neuraloperator library: material to pressure",
    equation="-div(a grad u) = f on the unit square; f/a = 50 where the material is 0, 2.78 where it is 1",
    boundary=DARCY.boundary,
    inputs=(Quantity(name="material", meaning="0 or 1: which of two permeabilities, 18 times apart"),),
    outputs=DARCY.outputs,
    axes=(
        Axis(name="row", boundary="wall", points="left"),
        Axis(name="column", boundary="wall", points="left"),
    ),
    points=POINTS,
    grid=GridLimits(minimum=8, maximum=64, declared=(16, 32)),
    distribution="the 1000 training fields of 16 x 16 points in the wheel of neuraloperator 0.3.0",
    symmetries=DARCY.symmetries,
    untested="other pairs of permeabilities, coarser materials than the set's",
)


def solve(inputs: Fields, conditions: Conditions) -> Fields:
    """Solve on a finer mesh whose cells have the material of the nearest grid point."""
    del conditions
    return {"solution": solve_material(inputs["material"])}


def solve_material(material: NDArray[Any], cells: int = CELLS) -> NDArray[np.float64]:
    """Compute the pressure of a material.

    Args:
        material: 0 and 1 `[row, column]` at the points i/n + 1/1024.
        cells: Cells per axis of the finer mesh.

    Returns:
        The pressure `[row, column]` at the same points.
    """
    centres = (np.arange(cells) + 0.5) / cells
    points = [np.arange(side) / side + 0.5 / 512 for side in material.shape]
    nearest = np.ix_(*(np.abs(centres[:, None] - along).argmin(axis=1) for along in points))
    solution = darcy.solve(np.where(material[nearest] > 0, 1 / 2.78, 1 / 50), wall=0.5 / cells)
    down, across = (np.stack([np.interp(along, centres, unit) for unit in np.eye(cells)], axis=1) for along in points)
    return np.asarray(down @ solution @ across.T)


@dataclass(frozen=True)
class NeuralopWheel:
    """The set in the wheel.

    Attributes:
        material: The input's name on the wire.
        solution: The output's name on the wire.
        points: Where the grid points lie, in words.
    """

    material: str
    solution: str
    points: str

    @property
    def files(self) -> str:
        """The pattern of the wheel's name."""
        return WHEEL

    def state(self) -> str:
        """Return the same: a wheel of one version stays as it is."""
        return WHEEL

    def available(self, mesh: int) -> bool:
        """Return True: there is no other source of these samples, whatever the mesh."""
        del mesh
        return True

    def read(self, stream: Stream, name: str, counts: Mapping[str, int]) -> Array:
        """Read one quantity `[sample, *grid]`; see `Published.read`."""
        member, samples, points = MEMBERS[stream]
        with zipfile.ZipFile(find()) as wheel:
            material, solution = read(wheel, member, (samples, points, points))
        return {self.material: material, self.solution: solution}[name][: counts[stream]]


def find() -> Path:
    """Return the wheel's path.

    Raises:
        ValueError: It is neither in the folder that DATA_PATH names nor where `make test` puts it.
    """
    folders = [folder for folder in (data_folder(), FOLDER) if folder]
    for wheel in (wheel for folder in folders for wheel in sorted(folder.glob(WHEEL))):
        return wheel
    searched = " or ".join(map(str, folders))
    raise UserError(
        f"expected {WHEEL} in {searched}: .venv/bin/pip download --no-deps neuraloperator==0.3.0 -d {FOLDER}"
    )


def read(wheel: zipfile.ZipFile, member: str, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Read materials (stored as bytes) and solutions (stored as float32) of a member, distinguished by their sizes.

    Returns:
        Materials and solutions `[sample, row, column]`.

    Raises:
        ValueError: The member holds no two tensors of that shape.
    """
    name, numbers = f"neuralop/datasets/data/{member}.pt", int(np.prod(shape))
    with zipfile.ZipFile(io.BytesIO(wheel.read(name))) as saved:
        storages = {len(stored): stored for stored in (saved.read(f"archive/data/{key}") for key in (0, 1))}
    if set(storages) != {numbers, 4 * numbers}:
        raise UserError(f"expected {numbers} bytes and as many float32 in {name} but found {sorted(storages)} bytes")
    material = np.frombuffer(storages[numbers], np.uint8).reshape(shape, order="F").astype(np.float32)
    return material, np.frombuffer(storages[4 * numbers], "<f4").reshape(shape, order="F")


PROBLEM = Problem(
    description=DESCRIPTION,
    baseline=Baseline("five-point finite volumes on 256 x 256 cells, each of its nearest grid point's material", solve),
    published=NeuralopWheel("material", "solution", POINTS),
)
