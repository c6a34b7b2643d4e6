"""Times that files say beside the time step of a model: other ones are refused, or named where one frame counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import meshio
import numpy as np
import pytest
import xarray

from petrov_client import InvalidInput, ModelInfo
from petrov_client import _files as files
from petrov_client._inputs import check_input
from petrov_client._schema import COMPONENT, FramesInfo, GridInfo, TensorInfo

POINTS = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0.0]])
UNLIKE = r'times 0 and 0\.2 are 0\.2 apart, but one step of "heat" takes 0\.1: take frames'


def model(history: int = 1, *, driven: bool = False) -> ModelInfo:
    """Describe a model on points whose step is 0.1, with a forcing if it is driven."""
    coordinates = TensorInfo("coordinates", ("batch", "point", COMPONENT), shape=(None, None, 2), components=("x", "y"))
    axes = ("batch", *(["history"] if history > 1 else []), "point")
    state = TensorInfo("start", axes, shape=(None, *([history] if history > 1 else []), None))
    framed = {"axes": ("batch", "frame", "point"), "shape": (None, None, None)}
    load = [TensorInfo("load", **framed, per_frame="start")] if driven else []
    frames, grid = FramesInfo(0.1, history, ("start",), 4, 100), GridInfo(("point",), 4, 1000, (), "anywhere")
    outputs = (TensorInfo("heat", **framed),)
    return ModelInfo("heat", 1, (1,), (coordinates, state, *load), outputs, 8, grid=grid, frames=frames)


def series(folder: Path, times: list[str], suffix: str) -> Path:
    """Write meshes with a state and a load at such times, which may be empty."""
    path = folder / f"run{suffix}"
    cells = {"quad": [[0, 1, 2, 3]]}
    if suffix in {".pvd", ".series"}:
        for number in range(len(times)):
            data = {"heat": np.full(4, 1.0 * number), "load": np.ones(4)}
            meshio.Mesh(POINTS, cells, data).write(folder / f"{number}.vtu")
        if suffix == ".series":
            files_ = [{"name": f"{n}.vtu"} | ({"time": float(time)} if time else {}) for n, time in enumerate(times)]
            path.write_text(json.dumps({"file-series-version": "1.0", "files": files_}))
            return path
        entries = (f'<DataSet {time and f"timestep={time!r} "}file="{n}.vtu"/>' for n, time in enumerate(times))
        path.write_text(f"<VTKFile><Collection>{''.join(entries)}</Collection></VTKFile>")
        return path
    with meshio.xdmf.TimeSeriesWriter(path, data_format="XML") as writer:
        writer.write_points_cells(POINTS, {"quad": np.array(cells["quad"])})
        for number, time in enumerate(times):
            writer.write_data(time, point_data={"heat": np.full(4, 1.0 * number), "load": np.ones(4)})
    path.write_text(path.read_text().replace('<Time Value=""/>', "").replace('<Time Value="" />', ""))
    return path


@pytest.mark.parametrize("suffix", [".pvd", ".series", ".xdmf"])
def test_a_series_of_other_steps_is_refused_where_several_frames_count(tmp_path: Path, suffix: str) -> None:
    source = series(tmp_path, ["0", "0.2", "0.4", "0.6"], suffix)
    for info in (model(3), model(driven=True)):
        several = UNLIKE if info.forced else UNLIKE.replace("times 0 and 0\\.2", "times 0.2 and 0.4")
        with pytest.raises(ValueError, match=f"run{suffix}: {several}"), files.opened(source, info):
            pass
    with files.opened(source, model()) as found:  # of which the last mesh alone is the start
        assert "0.2 apart" in found.remark
        assert "starts from its last mesh" in found.remark
        assert found.time == 0.6


@pytest.mark.parametrize("suffix", [".pvd", ".series", ".xdmf"])
@pytest.mark.parametrize(
    "times",
    [["0.30000000000000004", "0.4", "0.5"], ["1000.1", "1000.2", "1000.3"], ["0", "0.1004", "0.1999"], [""] * 3],
)
def test_rounded_times_and_none_are_taken(tmp_path: Path, suffix: str, times: list[str]) -> None:
    source = series(tmp_path, times, suffix)
    for info in (model(), model(2), model(driven=True)):
        with files.opened(source, info) as found:
            assert not found.remark
            index = 0 if info.forced else 2
            assert found.time == pytest.approx(float(times[index]) if times[0] else 0.1 * index)
            assert np.ravel(found.arrays["start"])[-1] == index


@pytest.mark.parametrize("suffix", [".pvd", ".series"])
def test_a_list_without_meshes_or_with_unknown_times_is_refused(tmp_path: Path, suffix: str) -> None:
    for times, message in (([], "but it lists none"), (["0", "nan"], "no finite number"), (["0", "inf"], "no finite")):
        with pytest.raises(ValueError, match=message), files.opened(series(tmp_path, times, suffix), model()):
            pass
    source = series(tmp_path, ["0", "0.1"], suffix)
    source.write_text(source.read_text(), encoding="utf-8-sig")  # as editors of Windows write it
    with files.opened(source, model()) as found:
        assert found.time == 0.1


def test_times_beside_arrays_are_those_of_the_model(tmp_path: Path) -> None:
    source = tmp_path / "start.npz"
    arrays = {"coordinates": POINTS[:, :2], "start": np.zeros((2, 4))}
    for name, times, fits in (("t", [0, 0.2], False), ("Time", [[0, 0.1], [1, 1.2]], False), ("t", [3, 3.1], True)):
        np.savez(source, **arrays, **{name: np.array(times)})
        if fits:
            with files.opened(source, model(2)) as found:
                assert found.unused == ("t",)
        else:
            with pytest.raises(ValueError, match=rf'by "{name}", times .* 0\.2 apart'), files.opened(source, model(2)):
                pass
    np.savez(source, **arrays | {"start": np.zeros(4)}, t=np.arange(5))
    with files.opened(source, model()) as found:
        assert "times 0 and 1 are 1 apart" in found.remark
    np.savez(source, **arrays, t=np.array([None, {}]))  # objects, which are never unpickled
    with files.opened(source, model(2)) as found:
        assert found.unused == ("t",)
    np.savez(source, **arrays | {"start": np.zeros(4)}, t=np.arange(5))
    steady = replace(model(), frames=None)
    with files.opened(source, steady) as found:
        assert not found.remark


def test_a_number_per_sample_is_no_time_of_frames(tmp_path: Path) -> None:
    source = tmp_path / "samples.npz"
    many = {"coordinates": np.tile(POINTS[:, :2], (5, 1, 1)), "start": np.zeros((5, 2, 4))}
    single = many | {"start": np.zeros((5, 4))}
    for info, arrays in ((model(2), many), (model(), single), (model(), single | {"heat": np.zeros((5, 3, 4))})):
        np.savez(source, **arrays, t=np.arange(5))
        with files.opened(source, info) as found:
            assert not found.remark
    np.savez(source, **single, heat=np.zeros((5, 5, 4)), t=np.arange(5))  # as many as there are frames
    with files.opened(source, model()) as found:
        assert "times 0 and 1 are 1 apart" in found.remark
    np.savez(source, **many, t=np.array([0.0, 0.2]))
    with pytest.raises(ValueError, match=r'by "t", times 0 and 0\.2'), files.opened(source, model(2)):
        pass


@pytest.mark.parametrize("name", ["time", "number"])
def test_coordinates_of_labelled_arrays_are_times_by_their_name(name: str) -> None:
    inputs: Any = {"coordinates": POINTS[:, :2]}
    for times, fits in (([0, 0.2, 0.4], name != "time"), ([0, 0.1, 0.2], True)):
        start = xarray.DataArray(np.zeros((3, 4)), dims=(name, "point"), coords={name: times})
        if fits:
            assert check_input(model(3), inputs, {"start": start}).inputs[1].array.shape == (3, 4)
        else:
            with pytest.raises(InvalidInput, match=r'by its coordinate "time", times 0 and 0\.2 are 0\.2 apart'):
                check_input(model(3), inputs, {"start": start})
