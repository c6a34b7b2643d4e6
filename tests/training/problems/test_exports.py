"""Tables that solvers export: points and fields under the names that they have there, and what is no field."""

from __future__ import annotations

import contextlib
import sys
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import h5py
import meshio
import numpy as np
import pytest
import torch
import xarray

from tests.drafts import values
from training.data.readers import ReadError, open_file
from training.data.readers.sets import open_set
from training.problems.draft import draft
from training.problems.draft_file import Draft, DraftError

RNG = np.random.default_rng(0)
SAMPLES, POINTS = 6, 20
XY = RNG.random((SAMPLES, POINTS, 2)).round(4)
P, V = RNG.random((2, SAMPLES, POINTS)).round(4)
TABLES = {  # names, lines above them, what separates, and lines below
    "Basilisk.dat": ("# 1:x 2:y 3:p 4:v", "", " ", ""),
    "Fluent": ("nodenumber,    x-coordinate,    y-coordinate,    p,    v", "", ",", ""),
    "CFD-Post.csv": (
        "Node Number, X [ m ], Y [ m ], p [ Pa ], v [ m s^-1 ]",
        "\n[Name]\nPlane 1\n\n[Data]\n",
        ", ",
        "\n[Faces]\n0, 1, 2\n",
    ),
    "ANSYS.txt": ("Node Number\tX Location (mm)\tY Location (mm)\tp (Pa)\tv", "", "\t", ""),
    "Abaqus.csv": ("Node Label,X,Y,p,v", "", ",", ""),
    "SimJEB.csv": ("node_id,x,y,p,v", "", ",", ""),
}


def drafted(*files: Path) -> Draft:
    """Describe files, of which all fields but `p` are inputs."""
    with ExitStack() as stack:
        found = open_set(stack, files)
        return draft(found.file, found.files, found.folder, ["p"], found.runs)


@pytest.mark.parametrize("program", TABLES)
def test_tables_of_solvers_are_clouds_without_the_numbers_of_their_nodes(program: str, tmp_path: Path) -> None:
    names, above, mark, below = TABLES[program]
    numbers = [np.arange(POINTS)] if "ode" in names else []
    for sample in range(SAMPLES):
        columns = np.column_stack([*numbers, XY[sample], P[sample], V[sample]])
        lines = [mark.join(f"{value:.10g}" for value in line) for line in columns]
        path = tmp_path / f"case-{sample}{Path(program).suffix}"
        path.write_text("\n".join([above + names, *lines, below]))
    found = values(drafted(tmp_path), tmp_path)
    assert {*found} - {"counts"} == {"coordinates", "p", "v"}
    for name, expected in {"coordinates": XY, "p": P, "v": V}.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-6)


def test_a_table_of_several_steps_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    lines = [f"{x},{y},{step},{x * step}" for step in range(3) for x, y in XY[0]]
    path.write_text("\n".join(["x,y,t,p", *lines]))
    with pytest.raises(ReadError, match=r"found 60 lines at 20 points, as of several steps in time, which t counts"):
        drafted(path)


def test_meshes_in_hdf5_are_refused_by_what_saves_them_otherwise(tmp_path: Path) -> None:
    for group, sentence in {"topologies": "VTKFile", "Function": r"name the \.xdmf file", "VTKHDF": r"\.vtu"}.items():
        with h5py.File(tmp_path / f"{group}.h5", "w") as file:
            file[f"{group}/u"] = P
        with pytest.raises(ReadError, match=sentence), open_file(tmp_path / f"{group}.h5"):
            pass


@pytest.mark.parametrize("time", ["valid_time", "ocean_time", "time_counter"])
def test_times_of_models_of_the_ocean_and_the_air_are_no_axis_of_a_grid(time: str, tmp_path: Path) -> None:
    frames = RNG.random((SAMPLES, 5, 6, 7))
    for sample, each in enumerate(frames):
        dims = {"p": ((time, "lat", "lon"), each)}
        times = {time: (time, 3600.0 * np.arange(5), {"units": "seconds since 2020-01-01"})}
        xarray.Dataset(dims, times).to_netcdf(tmp_path / f"run_{sample}.nc", engine="h5netcdf")
    made = drafted(*sorted(tmp_path.glob("*.nc")))
    assert made.moving
    assert {*made.axes} == {"lat", "lon"}
    np.testing.assert_allclose(values(made, tmp_path)["p"].reshape(frames.shape), frames, rtol=1e-6)


@pytest.mark.parametrize("name", ["step_{}", "u_{:04}", "sample_{}", "records/run{}"])
def test_arrays_that_differ_by_a_number_are_refused_with_the_lines_that_stack_them(name: str, tmp_path: Path) -> None:
    record = np.zeros(POINTS, [("x", "f8"), ("u", "f8", 2)])
    with h5py.File(tmp_path / "run.h5", "w") as file:
        for number in range(12):
            file[name.format(number)] = record if "records" in name else P + number
    with pytest.raises(DraftError, match="found 12 of one shape") as refused:
        drafted(tmp_path / "run.h5")
    lines = str(refused.value).partition("stack them, ")[2].partition(", f the open")[0]
    with h5py.File(tmp_path / "run.h5") as file:
        stacked = eval(lines, {"np": np, "f": file})  # noqa: S307 -- the line that the message shows
    assert len(stacked) == 12
    if "records" not in name:
        np.testing.assert_array_equal(stacked[:, 0, 0], P[0, 0] + np.arange(12))


def test_arrays_of_a_name_and_a_small_number_are_fields(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", p=P, **{f"k_{number}": V for number in range(4)})
    assert len(drafted(tmp_path / "set.npz").of("inputs")) == 4


def test_series_in_xdmf_in_folders_of_runs_are_read_without_the_files_of_their_numbers(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    frames = RNG.random((SAMPLES, 3, 4))
    for sample, each in enumerate(frames):
        (folder := runs / f"run_{sample}").mkdir(parents=True)
        with contextlib.chdir(folder), meshio.xdmf.TimeSeriesWriter("p.xdmf") as writer:  # with p.h5 beside it
            writer.write_points_cells(corners, [("triangle", np.array([[0, 1, 2], [1, 3, 2]]))])
            for step, field in enumerate(each):
                writer.write_data(0.5 * step, point_data={"p": field})
    made = drafted(runs)
    assert made.format == "series"
    np.testing.assert_allclose(values(made, tmp_path)["p"].reshape(frames.shape), frames, rtol=1e-6)


def test_graphs_of_pytorch_geometric_are_refused_with_the_line_that_saves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("torch_geometric")
    graph = type("Data", (), {"__module__": module.__name__})
    monkeypatch.setattr(module, "Data", graph, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)  # it is not installed
    torch.save([graph()], tmp_path / "set.pt")
    with pytest.raises(ReadError, match=r"torch\.save\(\[each\.to_dict\(\)"), open_file(tmp_path / "set.pt"):
        pass


def test_graphs_of_a_set_are_cut_where_each_begins(tmp_path: Path) -> None:
    begins = torch.tensor([0, 5, 11, 15])
    whole = {"pos": torch.rand(15, 2), "k": torch.rand(15), "p": torch.rand(15), "edge_index": torch.ones(2, 6).long()}
    edges = torch.tensor([0, 2, 4, 6])
    torch.save((whole, {"pos": begins, "k": begins, "p": begins, "edge_index": edges}), tmp_path / "set.pt")
    found = values(drafted(tmp_path / "set.pt"), tmp_path)
    assert found["counts"].tolist() == [5, 6, 4]
    np.testing.assert_array_equal(found["p"][1, :6], whole["p"][5:11])
