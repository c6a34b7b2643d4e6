"""Takes the wheel of neuraloperator 0.3.0 (MIT), gives the Darcy set in it as the project's HDF5 file.

The wheel is an archive of files of torch.save, each an archive in turn, whose members hold a tensor's numbers and
nothing else: they are read as they are, sample by sample the fastest index, and no pickle is opened. The set's training
fields have 16 x 16 points, its test fields 32 x 32, and every second of these is the 16 x 16 test set.
"""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np

from training.data import store
from training.data.published import VARIABLE
from training.data.store import Array, Layout
from training.problems.problem import NEURALOP_DARCY

PROBLEM = NEURALOP_DARCY.name
WHEEL = "neuraloperator-0.3.0-*.whl"
FOLDER = Path(".third_party")
SPLITS = {"train": ("darcy_train_16", 1000, 16), "test": ("darcy_test_32", 50, 32)}  # member, samples, points an axis


def convert(path: Path) -> None:
    """Write the set to `path`, unless it is there.

    Raises:
        ValueError: there is no wheel, or it holds something else.
    """
    if path.exists():
        return
    attributes = {"provenance": "published", "points": NEURALOP_DARCY.points, "files": WHEEL}
    with store.replacing(path) as aside, zipfile.ZipFile(find()) as wheel:
        store.create(aside, Layout(NEURALOP_DARCY, 512, {}, attributes))
        with store.opened(aside, "r+") as file:
            for split, (member, count, points) in SPLITS.items():
                group = file.create_group(split)
                store.allocate(group, Layout(NEURALOP_DARCY, points, {split: count}, {}), count)
                group["material"][:], group["solution"][:] = read(wheel, member, (count, points, points))
                group["done"][:] = 1


def find() -> Path:
    """Give the wheel's path.

    Raises:
        ValueError: it is neither in the folder that DATA_PATH names nor where `make test` puts it.
    """
    folders = [Path(folder) for folder in (os.environ.get(VARIABLE), FOLDER) if folder]
    for wheel in (wheel for folder in folders for wheel in sorted(folder.glob(WHEEL))):
        return wheel
    places = " or ".join(map(str, folders))
    raise ValueError(
        f"expected {WHEEL} in {places}: .venv/bin/pip download --no-deps neuraloperator==0.3.0 -d {FOLDER}"
    )


def read(wheel: zipfile.ZipFile, member: str, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Give materials (stored as bytes) and solutions (as float32) of a member, told apart by their sizes.

    Raises:
        ValueError: the member holds no two tensors of that shape.
    """
    name, numbers = f"neuralop/datasets/data/{member}.pt", int(np.prod(shape))
    with zipfile.ZipFile(io.BytesIO(wheel.read(name))) as saved:
        storages = {len(raw): raw for raw in (saved.read(f"archive/data/{key}") for key in (0, 1))}
    if set(storages) != {numbers, 4 * numbers}:
        raise ValueError(f"expected {numbers} bytes and as many float32 in {name} but found {sorted(storages)} bytes")
    material = np.frombuffer(storages[numbers], np.uint8).reshape(shape, order="F").astype(np.float32)
    return material, np.frombuffer(storages[4 * numbers], "<f4").reshape(shape, order="F")
