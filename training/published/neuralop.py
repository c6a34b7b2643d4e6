"""The Darcy set in the wheel of neuraloperator 0.3.0 (MIT).

The wheel is an archive of files of torch.save, each an archive in turn, whose members hold a tensor's numbers and
nothing else. The numbers are read directly, with the sample as the fastest index, and no pickle is opened. The set's
training fields have 16 x 16 points, its test fields 32 x 32, and every second of these is the 16 x 16 test set.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.published.published import Array, Stream, data_folder
from training.user_error import UserError

WHEEL = "neuraloperator-0.3.0-*.whl"
FOLDER = Path(".third_party")
MEMBERS: Mapping[Stream, tuple[str, int, int]] = {
    "train": ("darcy_train_16", 1000, 16),
    "test": ("darcy_test_32", 50, 32),
}
"""The member of the wheel for each stream, its samples and its points per axis."""


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

    Args:
        wheel: The opened wheel.
        member: Name of the set's file in it.
        shape: Shape `[sample, row, column]` of both arrays.

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
