"""Exodus files in the client: the last step as a start, and headers that claim too much."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from petrov_client import ModelInfo, _exodus
from petrov_client import _files as files
from petrov_client._schema import COMPONENT, FramesInfo, GridInfo, TensorInfo
from tests.toy_meshes import write_exodus

SQUARES = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1], [2, 0], [2, 1]])
CELLS = {"QUAD4": [[0, 1, 2, 3]], "QUAD": [[1, 4, 5, 2]]}


def model(step: float | None) -> ModelInfo:
    coordinates = TensorInfo("coordinates", ("batch", "point", COMPONENT), shape=(None, None, 2), components=("x", "y"))
    state = TensorInfo("temp", ("batch", "point"), shape=(None, None))
    grid = GridInfo(("point",), 4, 1000, (), "anywhere")
    info = ModelInfo("heat", 1, (1,), (coordinates, state), (), 8, grid=grid)
    return info if step is None else replace(info, frames=FramesInfo(step, 1, ("temp",), 4, 100))


def test_a_rollout_starts_from_the_last_step(tmp_path: Path) -> None:
    path = tmp_path / "run.exo"
    write_exodus(path, SQUARES, CELLS, 3, "scipy")
    with files.opened(path, model(1.0)) as found:
        assert found.arrays["temp"] == pytest.approx(2 * SQUARES[:, 0])
        assert (found.time, found.remark) == (2, "")
    with files.opened(path, model(0.5)) as found:
        assert "times 0 and 1 are 1 apart" in found.remark
    with pytest.raises(ValueError, match="which computes no trajectories"), files.opened(path, model(None)):
        pass
    write_exodus(path, SQUARES, CELLS, 1, "scipy")
    with files.opened(path, model(None)) as found:
        assert found.arrays["temp"].shape == (6,)


def big(number: int) -> bytes:
    return struct.pack(">I", number)


def renamed(name: str, side: int) -> bytes:
    """Return how a header in the classic format says the size of a dimension."""
    return big(len(name)) + name.encode().ljust(-(-len(name) // 4) * 4, b"\0") + big(side)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("num_nodes", r'"coordx" \[4000000000\] would end at byte .* of a file of [\d,]+: the file is cut off'),
        ("num_nod_per_el1", r'"connect1" \[1, 4000000000\] would end at byte'),
        ("num_nod_var", r"would end at byte"),
    ],
)
def test_a_header_that_claims_more_than_the_file_holds_is_refused(tmp_path: Path, name: str, sentence: str) -> None:
    path = tmp_path / "run.e"
    write_exodus(path, SQUARES, CELLS, 2, "scipy")
    content = path.read_bytes()
    side = {"num_nodes": 6, "num_nod_per_el1": 4, "num_nod_var": 1}[name]
    assert renamed(name, side) in content
    path.write_bytes(content.replace(renamed(name, side), renamed(name, 4_000_000_000)))
    with pytest.raises(ValueError, match=rf"expected a mesh in .*run\.e .*{sentence}"), files.opened(path, model(1.0)):
        pass


@pytest.mark.parametrize("size", [3, 4, 20, 100, 1000])
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "run.e"
    write_exodus(path, SQUARES, CELLS, 2, "scipy")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"expected a mesh in .*run\.e"), files.opened(path, model(1.0)):
        pass


def test_of_hdf5_no_other_file_is_read_and_no_more_than_a_mesh(tmp_path: Path) -> None:
    path = tmp_path / "run.e"

    def changed(name: str, make: Any) -> None:
        write_exodus(path, SQUARES, CELLS, 2, "h5netcdf")
        with h5py.File(path, "a") as file:
            del file[name]
            make(file, name)

    changed("coordx", lambda file, name: file.create_dataset(name, (10**12,), "f8", chunks=(100,)))
    with pytest.raises(ValueError, match=r"8,000,000,000,000 bytes is more than the 512 MiB"):
        next(_exodus.meshes_of(path))
    changed("coordx", lambda file, name: file.__setitem__(name, h5py.ExternalLink("/etc/secret.h5", "/x")))
    with pytest.raises(ValueError, match="is a link to somewhere else"):
        next(_exodus.meshes_of(path))
