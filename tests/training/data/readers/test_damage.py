"""Damage that libraries do not survive or do not tell, which a training and the client name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
from meshio import Mesh

from petrov_client import _files, _mesh_series
from petrov_client._files import opened
from petrov_client._formats import named
from tests.clients.test_movie import described
from training.data.readers import ReadError, arrays, open_file
from training.data.readers import mesh as of_meshes
from training.data.readers.data_file import damage_named

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


def test_a_mistake_of_the_program_is_no_damage_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(archive := tmp_path / "a.npz", k=K)
    Mesh(np.eye(3), [("triangle", [[0, 1, 2]])]).write(mesh := tmp_path / "a.vtu")
    with_a_heap(values := tmp_path / "a.h5")
    within: Any = np.load  # a library
    with pytest.raises(ReadError, match=r"a\.npz: expected a file, but it is damaged"), damage_named(archive, "a file"):
        within(None)
    with pytest.raises(ValueError, match=r"expected a file in .*a\.npz but: "), named(archive, "a file"):
        within(None)
    for module, name in ((arrays, "member"), (of_meshes, "without_loose_points")):
        monkeypatch.setattr(module, name, None)
    for path in (archive, mesh):
        with pytest.raises(TypeError, match="'NoneType' object is not callable"), open_file(path):
            pass
    for module, name in ((_files, "_chosen"), (_mesh_series, "checked")):
        monkeypatch.setattr(module, name, None)
    for path in (values, mesh):
        with pytest.raises(TypeError, match="'NoneType' object is not callable"), opened(path, described()):
            pass


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.vtk.series", b"[]", r'expected \{"files": '),
        ("a.vtk.series", b'{"files": [1]}', r'expected \{"files": '),
        ("a.exo", b"CDF\1" + bytes(15) + b"\x0c" + bytes(3) + b"\1", "header"),
        ("a.h5", b"PK\3\4" + bytes(90), "it begins like a zip archive"),
        ("a.npz", b"\x89HDF\r\n\x1a\n" + bytes(90), "it begins like HDF5"),
        ("a.mat", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2\nsize 12345\n", "git lfs pull"),
        ("a.hdf", b"\x0e\x03\x13\x01" + bytes(90), "HDF4, which h4toh5 converts"),
        ("a.npz", b"", "it is empty"),
    ],
)
def test_what_a_file_is_by_its_beginning_is_said(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ReadError, match=f"{name}: .*{sentence}"), open_file(tmp_path / name):
        pass
