"""Damage that libraries do not survive or do not tell, which a training and the client name."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray

from petrov_client._files import opened
from tests.clients.test_movie import described
from training.data.readers import ReadError, open_file

K = np.random.default_rng(0).random((5, 3, 4))


def with_a_heap(path: Path) -> None:
    """Write a file with texts and lists of dimensions, which vary in length."""
    if path.suffix == ".nc":
        xarray.Dataset({"k": (("sample", "y", "x"), K)}, {"x": np.arange(4.0)}).to_netcdf(path, engine="h5netcdf")
        return
    with h5py.File(path, "w", userblock_size=512 if path.suffix == ".mat" else 0) as file:
        file["k"] = K
        file.create_dataset("chunks", data=K, chunks=(1, 3, 4))
        file["k"].attrs["units"] = "m"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["a.nc", "a.h5", "a.mat", "a.exo"])
def test_a_heap_of_hdf5_that_never_ends_is_refused(name: str, tmp_path: Path) -> None:
    """The library looks for the next object of a heap by the size of each, and stays where it is at one of no size."""
    path = tmp_path / name
    with_a_heap(path)
    content = bytearray(path.read_bytes())
    heap = content.index(b"GCOL")

    def number(at: int, width: int) -> int:
        return int.from_bytes(content[at : at + width], "little")

    place = heap + 16
    while number(place, 2):  # what is free has the number 0
        place += 16 + -(-number(place + 8, 8) // 8) * 8
    content[place + 8 : place + 16] = bytes(8)
    if path.suffix == ".mat":
        content[:128] = b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM"
    path.write_bytes(content)
    sentence = rf"{name}.*the heap at byte {heap:,} holds an object of 0 bytes at byte {place:,}"
    with pytest.raises(ReadError, match=sentence), open_file(path):
        pass
    with pytest.raises(ValueError, match=sentence), opened(path, described()):
        pass


def test_values_that_look_like_a_heap_are_values(tmp_path: Path) -> None:
    values = np.frombuffer(b"GCOL\1\0\0\0" + (4096).to_bytes(8, "little") + bytes(8000), np.uint8)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["k"] = np.tile(values, (4, 1))
        file.create_dataset("u", data=np.tile(values, (4, 1)), chunks=(1, len(values)))
    with open_file(tmp_path / "a.h5") as file:
        assert np.array_equal(file.array("u").read()[3], values)
