"""Files and folders that the commands write: whole, with units and meaning, or not at all."""

from __future__ import annotations

import os
import re
import resource
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import h5py
import meshio
import numpy as np
import pytest
import xarray
import zarr

from petrov_client import ModelInfo
from petrov_client import _files as local
from petrov_client import _trajectories as trajectories
from petrov_client._commands import texts
from petrov_client._kept import Kept
from petrov_client._operations import of_passed
from petrov_client._quality import Options, Quality, columns, columns_of_frame
from petrov_client._schema import TensorInfo
from petrov_client._score_on_ray import Job
from tests.clients.test_movie import described


def write(path: Path, *arguments: Any) -> trajectories.Written:
    """Write trajectories as the command does."""
    with Kept(path, {}) as kept, kept.finishing() as whole:
        return trajectories.write(whole, *arguments)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("name", ["flow.h5", "flow.nc", "flow.zarr", "flow.npz", "flow.npy"])
def test_trajectories_are_written_in_every_format(tmp_path: Path, name: str, batch: tuple[int, ...]) -> None:
    path, info = tmp_path / name, described()
    local.check_output(path, local.TRAJECTORIES)
    found = np.random.default_rng(0).random((50, *batch, 3000), np.float32)  # 21 frames of a sample fill a chunk
    written = write(path, lambda number: {"state": found[number]}, info, 50)
    assert list(tmp_path.iterdir()) == [path]
    expected = np.moveaxis(found, 0, len(batch))
    np.testing.assert_array_equal(read(path), expected)
    assert written.shapes == {"state": expected.shape}
    assert str(written.spans["state"]) == f"{expected.min():.3g} to {expected.max():.3g}"
    if path.suffix == ".zarr":
        assert dict(zarr.open_group(str(path), mode="r")["state"].attrs) == {"units": "1", "meaning": "height"}
        with pytest.raises(ValueError, match="expected a new folder"):
            local.check_output(path, local.TRAJECTORIES)
        write(path, lambda number: {"state": found[number]}, info, 1)
        assert read(path).shape[-2] == 1


@pytest.mark.parametrize("name", ["flow.h5", "flow.nc", "flow.zarr", "flow.npz"])
def test_an_interrupted_write_leaves_no_file(tmp_path: Path, name: str) -> None:
    def frame(number: int) -> dict[str, Any]:
        if number:
            raise KeyboardInterrupt
        return {"state": np.zeros(16, np.float32)}

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / name, frame, described(), 50)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5", ".zarr"])
def test_suffixes_in_upper_case_are_read_and_written(tmp_path: Path, suffix: str) -> None:
    frames, info = np.random.default_rng(0).random((3, 4), np.float32), described()
    first, other = tmp_path / f"flow{suffix}", tmp_path / f"FLOW{suffix.upper()}"
    write(first, lambda number: {"state": frames[number]}, info, 3)
    local.check_output(other, local.TRAJECTORIES)
    write(other, lambda number: {"state": frames[number]}, info, 3)
    np.testing.assert_array_equal(read(other.rename(tmp_path / f"OTHER{suffix}")), read(first))
    with local.opened(first.rename(other), info) as found:
        [array] = found.arrays.values()
        np.testing.assert_array_equal(np.asarray(array), frames)


def whole(path: Path) -> Path:
    """Write an array as the suffix of a path says, and return the file that holds its values."""
    values = np.random.default_rng(0).random((6, 40)).astype(np.float32)
    if path.suffix == ".zarr":
        zarr.create_array(str(path), data=values, chunks=(2, 40))
        return path / "c" / "1" / "0"
    if path.suffix == ".npz":
        np.savez_compressed(path, state=values)
    elif path.suffix == ".npy":
        np.save(path, values)
    else:
        xarray.Dataset({"state": (("sample", "x"), values)}).to_netcdf(path, engine="scipy")
    return path


def only_array(path: Path) -> Any:
    with local.opened(path, described()) as found:
        [array] = found.arrays.values()
        return np.asarray(array)


@pytest.mark.parametrize(
    ("name", "place"),
    [("a.npz", 60), ("a.npz", 200), ("a.npy", 12), ("a.npy", 40), ("a.nc", 12), ("a.nc", 8), ("a.zarr", 0)],
)
def test_damage_is_a_sentence_that_names_the_file(name: str, place: int, tmp_path: Path) -> None:
    path = tmp_path / name
    file = whole(path)
    assert only_array(path).shape == (6, 40)
    content = file.read_bytes()
    file.write_bytes(content[:place] + bytes(each ^ 0x5A for each in content[place : place + 8]) + content[place + 8 :])
    with pytest.raises(ValueError, match=rf"expected .* in .*{re.escape(name)} but: .+"):
        only_array(path)


@pytest.mark.parametrize("name", ["zarr.json", "state/zarr.json"])
def test_damaged_metadata_of_zarr_are_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / "flow.zarr"
    zarr.open_group(str(path), mode="w").create_array("state", data=np.ones((3, 4)))
    for content in (b"", b"{", b"\xff\xfe", b"[]"):
        (path / name).write_bytes(content)
        with pytest.raises(ValueError, match=r"in .*flow\.zarr"), local.opened(path, described()):
            pass


def test_chunks_that_a_file_lacks_are_said_to_be_read_as_a_number(tmp_path: Path) -> None:
    store, file = tmp_path / "flow.zarr", tmp_path / "flow.h5"
    zarr.open_group(str(store), mode="w").create_array("state", data=np.ones((3, 4), np.float32), chunks=(1, 4))
    with h5py.File(file, "w") as half:
        half.create_dataset("state", (3, 4), np.float32, chunks=(1, 4))[1:] = 1.0
    with local.opened(store, described()) as found:
        assert found.remark == ""
    (store / "state" / "c" / "0" / "0").unlink()
    for path in (store, file):
        with local.opened(path, described()) as found:
            assert found.remark == f'{path}: 1 of 3 chunks of "state" are not there, and read as 0.0'
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"expected an HDF5 file in .*flow\.h5 but: "), local.opened(file, described()):
        pass


def test_bytes_of_an_unknown_suffix_are_no_text(tmp_path: Path) -> None:
    path, unused = tmp_path / "field.bin", cast("Any", None)
    path.write_bytes(b"\x93NUMPY")
    with pytest.raises(ValueError, match=r"expected lines of text in .*field\.bin, or numbers in a file .* \.npy or "):
        texts.predict(unused, "blur", str(path), None, None, unused)


def test_a_folder_is_removed_though_another_thread_removes_a_file_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, unlink = tmp_path / "flow.zarr", os.unlink
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).touch()

    def late(*args: Any, **options: Any) -> None:
        monkeypatch.undo()
        unlink(*args, **options)  # by the other thread
        unlink(*args, **options)

    monkeypatch.setattr(os, "unlink", late)
    local.remove_path(folder)
    assert not folder.exists()


def test_a_folder_is_removed_though_another_thread_adds_a_file_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rmdir = tmp_path / "flow.zarr", os.rmdir
    folder.mkdir()

    def late(*args: Any, **options: Any) -> None:
        monkeypatch.undo()
        (folder / "zarr.json").touch()  # by the other thread
        rmdir(*args, **options)

    monkeypatch.setattr(os, "rmdir", late)
    local.remove_path(folder)
    assert not folder.exists()


@pytest.mark.parametrize("size", [100, 60_000])  # bytes: of a head of a file alone, or of some of the frames, too
@pytest.mark.parametrize("name", ["flow.h5", "flow.nc", "flow.zarr", "flow.npz", "flow.npy"])
def test_a_full_disk_is_an_error_that_leaves_no_file(tmp_path: Path, name: str, size: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    frame = {"state": np.random.default_rng(0).random(30_000, np.float32)}
    with Kept(tmp_path / name, {}) as kept:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            with pytest.raises(OSError, match="File too large"), kept.finishing() as whole:
                trajectories.write(whole, lambda _: frame, described(), 4)
            with pytest.raises(OSError, match="File too large"):
                local.write(tmp_path / "one.h5", frame, described().outputs)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_memory_map_has_its_space_on_the_disk(tmp_path: Path) -> None:
    trajectories.new_array(tmp_path / "a.npy", (1000, 1000))
    assert 512 * (tmp_path / "a.npy").stat().st_blocks >= 4_000_000


@pytest.mark.parametrize("name", ["flow.h5", "flow.nc", "flow.zarr", "flow.npy"])
def test_memory_holds_a_few_frames_of_a_trajectory(tmp_path: Path, name: str) -> None:
    frame = np.zeros(2**16, np.float32)
    with Kept(tmp_path / name, {}, resume=False) as kept:
        kept.add(0, {"state": frame})
        trajectories.write(tmp_path / f"first-{name}", kept.read, described(), 1)  # imports its libraries
        tracemalloc.start()
        try:
            for number in range(1, 200):
                kept.add(number, {"state": frame + 1})
            with kept.finishing() as whole:
                trajectories.write(whole, kept.read, described(), 200)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert most < 20 * frame.nbytes


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("name", ["flow.h5", "flow.nc", "flow.zarr", "flow.npz", "flow.npy"])
def test_what_is_known_about_frames_is_written_beside_them(tmp_path: Path, name: str, batch: tuple[int, ...]) -> None:
    path, info = tmp_path / name, replace(described(), quality=("error_estimate", "novelty"))
    frames = []
    for number in range(5):
        outputs = {"state": np.full((*batch, 3000), number, np.float32)}
        known = Quality(error_estimate=np.full(batch, 0.1 * number), outside=np.full(batch, number > 3))
        frames.append(outputs | columns_of_frame(info, known, trajectories.batch_of(outputs, info)))
    with Kept(tmp_path / f"kept-{name}", {}) as kept:  # from which a command writes them
        for number, frame in enumerate(frames):
            kept.add(number, frame)
        written = write(path, kept.read, info, 5)
    assert read(path).shape == (*batch, 5, 3000)
    if path.suffix == ".npy":
        assert list(written.shapes) == ["state"]
        return
    assert written.shapes["error_estimate"] == (*batch, 5)
    np.testing.assert_allclose(read(path, "error_estimate"), np.broadcast_to(0.1 * np.arange(5), (*batch, 5)))
    np.testing.assert_array_equal(read(path, "outside"), np.broadcast_to([0, 0, 0, 0, 1], (*batch, 5)))
    assert np.isnan(read(path, "novelty")).all()


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, where a test before has imported it
def test_a_movie_shows_outputs_alone(tmp_path: Path) -> None:
    path, info = tmp_path / "flow.mp4", replace(described(), quality=("novelty",))
    frames = [{"state": np.linspace(0, n, 16, dtype=np.float32), "novelty": np.float32(1)} for n in range(1, 4)]
    assert write(path, frames.__getitem__, info, 3).shapes == {"state": (3, 16)}


def read(path: Path, name: str = "state") -> Any:
    if path.suffix in {".h5", ".nc"}:
        with h5py.File(path) as file:
            return file[name][:]
    if path.suffix == ".zarr":
        return zarr.open_group(str(path), mode="r")[name][:]
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return archive[name]
    return np.load(path)


def test_only_trajectories_are_written_as_zarr(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected an output file that ends in"):
        local.check_output(tmp_path / "fields.zarr")


def test_the_only_array_of_a_file_has_any_name_where_the_other_inputs_are_given(tmp_path: Path) -> None:
    fields = (TensorInfo("u", ("batch", "row")), TensorInfo("wind", ("batch", "row")))
    info = ModelInfo("flow", 1, (1,), fields, (), 8)
    np.savez(tmp_path / "a.npz", field=np.ones((2, 3)))
    for given, first in (({"wind": 0.3}, "u"), ({"u": 0.3}, "wind")):
        with local.opened(tmp_path / "a.npz", info, given=given) as found:
            assert list(found.arrays) == [first]
    with pytest.raises(ValueError, match='expected "u", "wind"'), local.opened(tmp_path / "a.npz", info):
        pass


@pytest.mark.parametrize(("name", "said"), [("u", True), ("field", False), ("k", False)])
def test_an_output_in_the_place_of_the_input_is_said(tmp_path: Path, name: str, said: bool) -> None:
    info = ModelInfo("flow", 1, (1,), (TensorInfo("k", ("batch", "row")),), (TensorInfo("u", ("batch", "row")),), 8)
    np.savez(tmp_path / "a.npz", **{name: np.ones((2, 3))})
    with local.opened(tmp_path / "a.npz", info) as found:
        assert list(found.arrays) == ["k"]
        assert ('its only array is called "u" as an output is, and is read as "k"' in found.remark) == said


def test_frames_replace_only_those_of_the_same_series(tmp_path: Path) -> None:
    mesh = meshio.Mesh(np.eye(3), [("triangle", np.array([[0, 1, 2]]))], {"state": np.zeros(3)})
    target, folder, source = tmp_path / "flow.pvd", tmp_path / "flow_frames", tmp_path / "start.vtu"
    folder.mkdir()
    trajectories.check_series(source, target, mesh)
    mesh.write(folder / "frame_1.vtu")
    with pytest.raises(ValueError, match=r"holds frame_1.vtu, which .*flow.pvd does not list"):
        trajectories.check_series(source, target, mesh)
    (folder / "frame_1.vtu").unlink()
    read = {"state": np.zeros(3, np.float32)}
    trajectories.write_series(target, trajectories.Start(target, mesh), lambda _: read, described(), 2)
    trajectories.check_series(source, target, mesh)
    with pytest.raises(ValueError, match=r"would replace .*flow_frames, which has"):
        trajectories.check_series(folder / "frame_2.vtu", target, mesh)
    assert len(list(folder.iterdir())) == 2


def test_what_is_reported_of_numbers_are_columns_in_every_file() -> None:
    drag = TensorInfo("drag", ("batch",), units="N")
    info = ModelInfo("wing", 1, (1,), (TensorInfo("u", ("batch", "row")),), (drag,), 8)
    info = replace(info, quality=("novelty", "error_estimate.drag"))
    assert [each.name for each in columns(info)] == ["novelty", "error_estimate.drag"]
    found = columns_of_frame(info, Quality(intervals={"drag": np.array([0.1, 0.2])}), (2,))
    assert found["error_estimate.drag"] == pytest.approx([0.1, 0.2])
    assert np.isnan(found["novelty"]).all()


def test_a_job_on_a_cluster_is_shown_without_its_key() -> None:
    job = Job(described(), "in.h5", None, {}, Options(), 1.0, ("http://here",), "secret", None, 1, "out")
    assert "secret" not in repr(job)


def test_there_is_no_gradient_by_cells() -> None:
    gradients = {"coordinates": 1, "boundary": 2, "cells": 3}
    assert of_passed({"coordinates": 0, "cells": 0}, {"coordinates": 1}, "coordinates") == {"coordinates": 1}
    assert of_passed({"coordinates": 0, "cells": 0}, gradients, "coordinates") == {"coordinates": 1, "cells": 3}
    assert of_passed([0.0], gradients, "coordinates") == 1
