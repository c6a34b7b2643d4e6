"""Layouts of public data sets, and of files that programs of the field write: what `describe` drafts is read right."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import meshio
import numpy as np
import pytest
import xarray
import zarr
from numpy.typing import NDArray
from scipy.io import savemat
from scipy.ndimage import gaussian_filter

from tests.drafts import Case, described, read
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.data.readers import LazyArray, ReadError, open_file
from training.data.readers.hdf5 import unpacked
from training.problems.draft import draft
from training.problems.draft_file import DraftError
from training.problems.problem_file import ProblemFile
from training.problems.sections import DataError, ProblemFileError

RNG = np.random.default_rng(0)
SAMPLES = 12
K = 1 + np.abs(gaussian_filter(RNG.standard_normal((SAMPLES, 8, 9)), (0, 2, 2)))
NU = RNG.uniform(0.1, 1, SAMPLES)
FRAMES = K[:, None] * np.arange(1.0, 6)[None, :, None, None]
XY = RNG.random((SAMPLES, 25, 2))
STRESS = XY.sum(axis=2)
Arrays = dict[str, NDArray[Any]]


def pdearena(folder: Path) -> None:
    with h5py.File(folder / "NavierStokes2D_train_1.h5", "w") as file:
        group = file.create_group("train")
        group["u"], group["vx"], group["vy"] = FRAMES, FRAMES + 1, FRAMES + 2
        group["buo_y"], group["t"] = NU, np.tile(np.arange(5.0), (SAMPLES, 1))
        group["x"], group["y"] = np.tile(np.arange(8.0), (SAMPLES, 1)), np.tile(np.arange(9.0), (SAMPLES, 1))


def incompressible(folder: Path) -> None:
    """PDEBench's fourth layout: components last, and the times of every sample."""
    with h5py.File(folder / "ns_incom_inhom_2d_512-0.h5", "w") as file:
        file["velocity"] = np.stack([FRAMES, 2 * FRAMES], -1)
        file["particles"], file["force"] = FRAMES[..., None], np.stack([K, 2 * K], -1)
        file["t"] = np.tile(np.arange(0.0, 1, 0.2), (SAMPLES, 1))


def groups_with_extremes(folder: Path) -> None:
    """Write samples in groups, and the extremes of all of them beside, as the benchmarks of CNO do."""
    with h5py.File(folder / "PoissonData.h5", "w") as file:
        for number, k in enumerate(K):
            file[f"Sample_{number}/input"], file[f"Sample_{number}/output"] = k, 2 * k
        file["max_inp"], file["beta"] = K.max(), NU


def packed(folder: Path) -> None:
    data = xarray.Dataset({"k": (("sample", "x", "y"), K), "u": (("sample", "x", "y"), 2 * K)})
    integers = {"dtype": "i2", "scale_factor": 1e-4, "add_offset": 2.0, "_FillValue": -32767}
    data.to_netcdf(folder / "packed.h5", encoding={"k": integers, "u": integers})


def packed_by_hand(folder: Path) -> None:
    with h5py.File(folder / "packed.h5", "w") as file:
        file["k"], file["u"] = np.round(K * 1e4).astype("i2"), 2 * K
        file["k"].attrs["scale_factor"] = 1e-4


def records(folder: Path) -> None:
    with h5py.File(folder / "records.h5", "w") as file:
        cells = np.zeros(K.shape, [("k", "f8"), ("u", "f8")])
        cells["k"], cells["u"] = K, 2 * K
        runs = np.zeros(SAMPLES, [("nu", "f8"), ("run", "i4")])
        runs["nu"], runs["run"] = NU, np.arange(SAMPLES)
        file["data"], file["params"] = cells, runs


def split_groups(folder: Path) -> None:
    with h5py.File(folder / "all.h5", "w") as file:
        for name, part in (("test", slice(9, None)), ("train", slice(7)), ("valid", slice(7, 9))):
            file[f"{name}/k"], file[f"{name}/u"] = K[part], 2 * K[part]


def split_files(folder: Path) -> None:
    for name, part in (("test", slice(9, None)), ("train", slice(7)), ("valid", slice(7, 9))):
        np.savez(folder / f"ns_{name}.npz", k=K[part], u=2 * K[part])


def elasticity(folder: Path) -> None:
    """Write samples last, and files of one array each, as Geo-FNO's."""
    np.save(folder / "Random_UnitCell_XY_10.npy", np.moveaxis(XY, 0, -1))
    np.save(folder / "Random_UnitCell_sigma_10.npy", STRESS.T)


def cfdbench(folder: Path) -> None:
    """Write a folder of a run each, with a file per tensor and the parameters in JSON."""
    for number, frames in enumerate(FRAMES):
        run = folder / "cavity" / "bc" / f"case{number:04}"
        run.mkdir(parents=True)
        np.save(run / "u.npy", frames)
        np.save(run / "v.npy", 2 * frames)
        (run / "case.json").write_text(json.dumps({"vel_in": NU[number], "note": "lid", "time": {"step": 0.1}}))


def result_per_run(folder: Path) -> None:
    for number, (k, nu) in enumerate(zip(K, NU, strict=True)):
        (folder / "runs" / f"run{number}").mkdir(parents=True)
        np.savez(folder / "runs" / f"run{number}" / "result.npz", k=k, u=2 * k, nu=nu)
        (folder / "runs" / f"run{number}" / "log.txt").write_text("done")


TRIANGLES = np.array([[0, 1, 2], [0, 2, 7]])
NODES = np.unique(TRIANGLES)


def meshes_per_run(folder: Path) -> None:
    """Write AirfRANS' mesh and boundary for each run, with the run in their names, and pressures as of ShapeNet-Car.

    Of these some are at points of the mesh that no cell has.
    """
    for number, xy in enumerate(XY):
        run = folder / "runs" / f"airFoil2D_{number}"
        run.mkdir(parents=True)
        meshio.Mesh(xy, [("triangle", TRIANGLES)], {"p": STRESS[number]}).write(run / f"{run.name}_internal.vtu")
        meshio.Mesh(xy[:5], [("line", [[0, 1], [1, 2]])]).write(run / f"{run.name}_aerofoil.vtu")
        np.save(run / "press.npy", 2 * STRESS[number])


def file_per_run(folder: Path) -> None:
    """Write netCDF files without a dimension of samples: the state of one run each."""
    for number, (k, frames) in enumerate(zip(K, FRAMES, strict=True)):
        data = {"k": (("y", "x"), k), "u": (("time", "y", "x"), frames), "nu": ((), NU[number])}
        xarray.Dataset(data, {"time": np.arange(5.0)}).to_netcdf(folder / f"run{number:02}.nc")


def tensors_of_splits(folder: Path) -> None:
    for split, part in (("test", slice(9, None)), ("train", slice(9))):
        np.save(folder / f"x_{split}.npy", K[part])
        np.save(folder / f"y_{split}.npy", 2 * K[part])


HEAD = (
    '% Model,heat.mph\n% Version,COMSOL 6.1\n% Date,"Jan 1 2024, 10:00"\n% Dimension,2\n% Nodes,25\n% Expressions,{}\n'
)


def comsol(folder: Path) -> None:
    """Write a spreadsheet of COMSOL for each sample, one with spaces between the columns."""
    for number, xy in enumerate(XY):
        rows = np.column_stack([xy, STRESS[number], 1 + STRESS[number]])
        head = f'{HEAD.format(2)}% Description,"Temperature, Conductivity"\n% x,y,T (K),ht.k_iso (W/(m*K))\n'
        np.savetxt(folder / f"run{number:02}.csv", rows, "%.17g", ",", header=head.rstrip("\n"), comments="")


def comsol_text(folder: Path) -> None:
    for number, xy in enumerate(XY):
        head = "% Model:              heat.mph\n% Dimension:          2\n% x                 y                 T (K)"
        rows = np.column_stack([xy, STRESS[number]])
        np.savetxt(folder / f"run{number:02}.txt", rows, "%-25.17g", " ", header=head, comments="")


def comsol_sweep(folder: Path) -> None:
    """Write a sweep over two parameters as COMSOL does: a column for every value on one mesh."""
    labels = ",".join(f"T (K) @ {number}: nu={nu:.6g}, q={number}" for number, nu in enumerate(NU, 1))
    rows = np.column_stack([XY[0], *(NU[:, None] * STRESS[0])])
    np.savetxt(folder / "sweep.csv", rows, "%.17g", ",", header=f"{HEAD.format(12)}% X,Y,{labels}", comments="")


def json_lines(folder: Path) -> None:
    samples = [{"nu": nu, "k": k.tolist(), "u": (2 * k).tolist()} for nu, k in zip(NU, K, strict=True)]
    (folder / "runs.jsonl").write_text("\n".join(map(json.dumps, samples)))


def vtk_array(name: str, values: NDArray[Any], components: int = 1) -> str:
    text = " ".join(map(repr, values.ravel().tolist()))
    return (
        f'<DataArray type="Float64" Name="{name}" NumberOfComponents="{components}" format="ascii">{text}</DataArray>'
    )


def vtk_images(folder: Path) -> None:
    """Write a plane of points as an image of VTK for each sample."""
    for number, k in enumerate(K):
        vectors = np.stack([k, 2 * k, 3 * k], -1)
        data = vtk_array("k", k) + vtk_array("u", 2 * k) + vtk_array("v", vectors, 3)
        (folder / f"run{number}.vti").write_text(
            '<VTKFile type="ImageData" byte_order="LittleEndian"><ImageData WholeExtent="0 8 0 7 0 0" '
            'Origin="0 0 0" Spacing="0.125 0.25 1"><Piece Extent="0 8 0 7 0 0">'
            f"<PointData>{data}</PointData></Piece></ImageData></VTKFile>"
        )


def vtk_rectilinear(folder: Path) -> None:
    """Write a plane of cells between given coordinates for each sample."""
    along = "".join(vtk_array(name, np.linspace(0, 1, count)) for name, count in (("x", 10), ("y", 9), ("z", 1)))
    for number, k in enumerate(K):
        (folder / f"run{number}.vtr").write_text(
            '<VTKFile type="RectilinearGrid" byte_order="LittleEndian"><RectilinearGrid WholeExtent="0 9 0 8 0 0">'
            f'<Piece Extent="0 9 0 8 0 0"><CellData>{vtk_array("k", k) + vtk_array("u", 2 * k)}</CellData>'
            f"<Coordinates>{along}</Coordinates></Piece></RectilinearGrid></VTKFile>"
        )


def zipped(folder: Path) -> None:
    with zarr.storage.ZipStore(folder / "heat.zarr.zip", mode="w") as store:
        group = zarr.create_group(store)
        group["k"], group["u"] = K, 2 * K


def zipped_by_xarray(folder: Path) -> None:
    data = xarray.Dataset(
        {"k": (("y", "x", "realization"), np.moveaxis(K, 0, -1)), "u": (("realization", "y", "x"), 2 * K)}
    )
    data.to_zarr(folder / "made.zarr", consolidated=False)
    shutil.make_archive(str(folder / "heat"), "zip", folder / "made.zarr")


def table_beside(folder: Path) -> None:
    np.savez(folder / "fields.npz", k=K, u=2 * K)
    rows = "\n".join(f"{number},{nu},steel" for number, nu in enumerate(NU))
    (folder / "runs.csv").write_text(f"run,nu,material\n{rows}\n")


def cells(folder: Path) -> None:
    runs = np.empty((1, SAMPLES), object)
    for number, k in enumerate(K):
        runs[0, number] = 2 * k
    savemat(folder / "cells.mat", {"k": K, "u": runs})


def cells73(folder: Path) -> None:
    with h5py.File(folder / "cells.mat", "w", userblock_size=512) as file:
        file["k"] = K.T
        for number, k in enumerate(K):
            file[f"#refs#/{number}"] = 2 * k.T
        references = [[file[f"#refs#/{number}"].ref] for number in range(SAMPLES)]
        file.create_dataset("u", data=np.array(references, h5py.ref_dtype), dtype=h5py.ref_dtype)


def table_alone(folder: Path) -> None:
    np.save(folder / "u.npy", 2 * K)
    table_beside(folder)


TWICE: Arrays = {"k": K, "u": 2 * K}
CASES = {
    "PDEArena: a group of a split, times and coordinates of every sample": Case(
        pdearena, ("*.h5",), "", {"outputs", "time"}, {"u": FRAMES, "vx": FRAMES + 1, "vy": FRAMES + 2, "buo_y": NU}
    ),
    "PDEBench: incompressible flow": Case(
        incompressible,
        ("*.h5",),
        "velocity",
        {"inputs"},  # the particles, which the flow moves
        {"force": np.stack([K, 2 * K], 1), "velocity": np.stack([FRAMES, 2 * FRAMES], 2)},
    ),
    "CNO: groups of samples with numbers beside": Case(
        groups_with_extremes, ("*.h5",), "output", set(), {"input": K, "output": 2 * K, "beta": NU}
    ),
    "netCDF with another suffix, packed": Case(packed, ("packed.h5",), "u", set(), TWICE),
    "HDF5, packed": Case(packed_by_hand, ("packed.h5",), "u", set(), TWICE),
    "records of HDF5": Case(records, ("records.h5",), "u", set(), {"data_k": K, "data_u": 2 * K, "params_nu": NU}),
    "groups of splits": Case(split_groups, ("all.h5",), "u", set(), TWICE),
    "files of splits": Case(split_files, ("ns_*.npz",), "u", set(), TWICE),
    "CFDBench: a folder per run, a file per tensor, parameters in JSON": Case(
        cfdbench,
        ("cavity",),
        "u,v",
        {"samples", "time"},
        {"u": FRAMES, "v": 2 * FRAMES, "vel_in": NU},
    ),
    "a folder per run": Case(result_per_run, ("runs",), "u", {"samples"}, {**TWICE, "nu": NU}),
    "AirfRANS, ShapeNet-Car: a mesh per run, and a field of it in a file of its own": Case(
        meshes_per_run,
        ("runs",),
        "p,press",
        set(),
        {"coordinates": XY[:, NODES], "p": STRESS[:, NODES], "press": 2 * STRESS[:, NODES]},
    ),
    "a netCDF file per run": Case(file_per_run, ("run*.nc",), "u", {"samples"}, {"k": K, "u": FRAMES, "nu": NU}),
    "files of a tensor and a split": Case(tensors_of_splits, ("*.npy",), "y", set(), {"x": K, "y": 2 * K}),
    "COMSOL: a spreadsheet per sample": Case(
        comsol, ("run*.csv",), "T", set(), {"coordinates": XY, "ht_k_iso": 1 + STRESS, "t": STRESS}
    ),
    "COMSOL: columns of text": Case(comsol_text, ("run*.txt",), "", set(), {"coordinates": XY, "t": STRESS}),
    "COMSOL: a sweep": Case(
        comsol_sweep,
        ("sweep.csv",),
        "T",
        set(),
        {"coordinates": np.broadcast_to(XY[0], XY.shape), "nu": NU, "t": NU[:, None] * STRESS[0]},
    ),
    "cells of MATLAB": Case(cells, ("cells.mat",), "u", set(), TWICE),
    "cells of MATLAB 7.3": Case(cells73, ("cells.mat",), "u", set(), TWICE),
    "images of VTK": Case(vtk_images, (".",), "u", {"samples"}, {**TWICE, "v": np.stack([K, 2 * K, 3 * K], 1)}),
    "rectilinear grids of VTK": Case(vtk_rectilinear, ("*.vtr",), "u", {"samples"}, TWICE),
    "JSON lines": Case(json_lines, ("runs.jsonl",), "u", set(), {**TWICE, "nu": NU}),
    "zarr in an archive": Case(zipped, ("heat.zarr.zip",), "u", set(), TWICE),
    "zarr of xarray in an archive, a dimension of realizations": Case(
        zipped_by_xarray, ("heat.zip",), "u", set(), TWICE
    ),
    "a table of parameters beside": Case(table_beside, ("fields.npz", "runs.csv"), "u", set(), {**TWICE, "nu": NU}),
    "a table of parameters as the only input": Case(
        table_alone, ("u.npy", "runs.csv"), "u", set(), {"u": 2 * K, "nu": NU}
    ),
    "Geo-FNO: clouds with samples last": Case(
        elasticity,
        ("*.npy",),
        "Random_UnitCell_sigma_10",
        {"samples"},
        {"coordinates": XY, "random_unitcell_sigma_10": STRESS},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_draft_reads_the_right_values_or_asks(name: str, tmp_path: Path) -> None:
    CASES[name].check(tmp_path, rtol=1e-4)


@pytest.mark.parametrize("write", [split_groups, split_files])
def test_samples_of_splits_stay_in_them(write: Callable[[Path], object], tmp_path: Path) -> None:
    write(tmp_path)
    files = ("all.h5",) if write is split_groups else ("ns_*.npz",)
    text = described(tmp_path, files, "u")
    assert read(text, tmp_path)[1].counts == (7, 2, 3)


@pytest.mark.parametrize("given", [(".",), ("train", "val", "test"), ("test", "val", "train")])
def test_folders_of_splits_are_told_by_their_names(given: tuple[str, ...], tmp_path: Path) -> None:
    for split, part in (("train", slice(7)), ("val", slice(7, 9)), ("test", slice(9, None))):
        (tmp_path / split).mkdir()
        np.savez(tmp_path / split / "heat.npz", k=K[part], u=2 * K[part])
    text = described(tmp_path, given, "u")
    assert read(text, tmp_path)[1].counts == (7, 2, 3)


def test_folders_of_other_names_are_no_set(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "heat.npz", **TWICE)
    with pytest.raises(ReadError, match="give the files in it, or the folder that holds it"):
        described(tmp_path, ("a", "b"), "u")


def test_values_that_a_file_calls_missing_are_outside_of_the_domain(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "sea.h5", "w") as file:
        file["k"], file["u"] = K, np.where(K > 1.05, 2 * K, -999)
        file["u"].attrs["_FillValue"] = -999.0
    text = described(tmp_path, ("sea.h5",), "u")
    assert 'nan = "u"' in text
    inside = read(text, tmp_path)[1].read(range(SAMPLES))["inside"]
    assert np.array_equal(inside, K > 1.05)


@pytest.mark.parametrize(
    ("kind", "attributes", "absent"),
    [
        ("u1", {"missing_value": -1}, set[int]()),
        ("u1", {"missing_value": np.int16(255)}, {255}),
        ("u2", {"scale_factor": 2.0, "missing_value": np.nan}, set[int]()),
        ("i2", {"scale_factor": 2.0, "_FillValue": 0.5, "missing_value": np.inf}, set[int]()),
    ],
)
def test_no_number_that_is_none_of_the_stored_ones_is_missing(
    kind: str, attributes: dict[str, Any], absent: set[int]
) -> None:
    stored = np.array([0, 1, 255], kind)
    found = unpacked(LazyArray.of("k", stored), attributes).read()
    assert {*stored[np.isnan(found)].tolist()} == absent
    assert np.nanmax(found) == np.max([*({0, 1, 255} - absent)]) * attributes.get("scale_factor", 1)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("index", np.arange(1, SAMPLES + 1)),
        ("sim_id", np.delete(np.arange(SAMPLES + 3), [2, 5, 6])),  # of runs of which some failed
        ("uid", RNG.permutation(10**6)[:SAMPLES].astype(float)),
    ],
)
def test_numbers_of_samples_are_no_parameter(name: str, numbers: NDArray[Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "heat.npz", **TWICE, **{name: numbers}, nu=NU)
    text = described(tmp_path, ("heat.npz",), "u")
    assert f"# left out: {name}: it numbers the samples" in text
    assert "[parameters.nu]" in text


def test_fixed_points_alone_are_no_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "cavity.npz", branch=RNG.random((30, 400)), trunk=XY[0], y=RNG.random((30, 25)))
    with pytest.raises(DraftError, match=r"beside the points of all samples but found branch \[30 x 400\]"):
        described(tmp_path, ("cavity.npz",), "y")


def test_what_is_left_out_is_listed_where_an_output_is_not_found(tmp_path: Path) -> None:
    np.savez(tmp_path / "heat.npz", **TWICE)
    with pytest.raises(DraftError, match=r"among the arrays k \[12 x 8 x 9\] float64, u .* but got 'v'"):
        described(tmp_path, ("heat.npz",), "v")


@pytest.mark.parametrize("last", [False, True])
def test_weights_of_one_mesh_are_those_of_all_samples(last: bool, tmp_path: Path) -> None:
    k, weights = RNG.random((SAMPLES, 25)), RNG.random(25)
    arrays = {"k": k, "u": 2 * k} if not last else {"k": k.T, "u": 2 * k.T}
    np.savez(tmp_path / "cloud.npz", xy=XY[0], area=weights, **arrays)
    (tmp_path / "problem.toml").write_text(
        'name = "cloud"\n[data]\nfiles = ["cloud.npz"]\n'
        + ('sample = "last"\n' if last else "")
        + '[inputs.k]\n[outputs.u]\n[points]\ncoordinates = "xy"\nweights = "area"\n'
    )
    found = read((tmp_path / "problem.toml").read_text(), tmp_path)[1].read(range(SAMPLES))
    assert found["weights"] == pytest.approx(np.broadcast_to(weights, (SAMPLES, 25)), rel=1e-6)
    assert found["k"] == pytest.approx(k, rel=1e-6)


def test_a_series_of_steps_is_a_trajectory_and_points_that_move_are_refused(tmp_path: Path) -> None:
    for run in ("a/VTK", "b/VTK"):
        (tmp_path / "foam" / run).mkdir(parents=True)
        for step in (0, 100, 200):
            meshio.Mesh(XY[0], [("triangle", TRIANGLES)], {"p": STRESS[0] + step}).write(
                tmp_path / "foam" / run / f"case_{step}.vtu"
            )
    text = described(tmp_path, ("foam",), "p")
    assert "[time]\nstep = 1.0  # guess: the file does not say" in text
    assert '[inputs.p_first]\nkey = "p"' in text
    for number in range(3):
        (tmp_path / "eagle" / str(number)).mkdir(parents=True)
        np.savez(tmp_path / "eagle" / str(number) / "sim.npz", pointcloud=XY[:6], VX=STRESS[:6])
    with pytest.raises(DraftError, match=r"those of pointcloud \[1 x 6 x 25 x 2\] float64 beside VX .* move"):
        described(tmp_path, ("eagle",), "VX")


def test_runs_that_lack_a_file_are_named(tmp_path: Path) -> None:
    cfdbench(tmp_path)
    text = described(tmp_path, ("cavity",), "u,v")
    (tmp_path / "cavity" / "bc" / "case0003" / "v.npy").unlink()
    (tmp_path / "cavity" / "bc" / "case0005" / "u.npy").unlink()  # as many files of each are left
    with pytest.raises(ProblemFileError, match=r"files: expected a file in every folder .*case000[35]"):
        read(text, tmp_path)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("train.tfrecord", "records of TensorFlow, as MeshGraphNets has them: save arrays"),
        ("data.pkl", "never unpickled"),
        ("runs.xlsx", "a spreadsheet: save it as .csv"),
        ("case.cgns", "save a .vtu file per sample"),
        ("grid.vti", "expected a grid of VTK, but it is damaged"),
        ("grid.vts", "a curved grid of VTK"),
        ("notes.txt", "expected one of the formats"),
    ],
)
def test_other_files_are_refused_by_what_they_are(name: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"some bytes")
    with pytest.raises(ReadError, match=sentence):
        described(tmp_path, (name,), "")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1,2\n3,4\n", "expected a line of names"),
        ("a,b\n3\n", r"expected 2 columns \(a, b\) in every line but found 1 in line 1"),
        ("% Dimension,1\n% x,T (K)\n0,1\n", "found the dimension 1, 2 names and 2 columns"),
        ("x,y,u (m/s),u (1),T\n0,0,1,2,3\n1,1,2,3,4\n", "expected columns with names of their own .* named 'u'"),
        ("k,T,T\n0,1,2\n", "several named 'T'"),
        ("x,y,coordinates\n0,0,1\n1,1,1\n", "several named 'coordinates'"),
        ("% Dimension,2\n% x,y,k (W/m) @ 1: k=5,k (W/m) @ 2: k=6\n0,1,2,3\n", "several named 'k'"),
        ("% Dimension,2\n% x,y,k (1),k (m)\n0,1,2,3\n1,2,3,4\n", "several named 'k'"),
        ("% Dimension,2\n% x,y,T @ 1: q=1,T @ 2: q=1\n0,1,2,3\n", "several named 'T'"),
        ("% Dimension,2\n% x,y,T @ t=0,T @ t=1\n0,1,2,3\n", "expected values at one time but found 2"),
        ("% Dimension,2\n% x,y,T @ q=0,U @ q=1\n0,1,2,3\n", "expected the same expressions for all values"),
    ],
)
def test_tables_that_are_none_are_refused(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(ReadError, match=sentence):
        described(tmp_path, ("table.csv",), "")


@pytest.mark.parametrize(("names", "extra", "found"), [("s{}", "initial", "*/s*.npz"), ("{}1", "initial", None)])
def test_a_file_that_is_left_out_becomes_no_sample(names: str, extra: str, found: str | None, tmp_path: Path) -> None:
    for number in range(SAMPLES):
        run = tmp_path / "runs" / names.format(number)
        run.mkdir(parents=True)
        for name in (run.name, extra):
            np.savez(run / f"{name}.npz", k=K[number], u=2 * K[number])
    if found is None:
        with pytest.raises(ReadError, match=r"expected a pattern for 01.npz, … alone but .*initial.npz has such a nam"):
            described(tmp_path, ("runs",), "u")
        return
    text = described(tmp_path, ("runs",), "u")
    assert found in text
    assert "initial.npz" in text  # as a file that is left out
    assert len(read(text, tmp_path)[1].file["u"]) == SAMPLES


def test_runs_with_more_files_of_one_tensor_than_of_another_are_named(tmp_path: Path) -> None:
    cfdbench(tmp_path)
    text = described(tmp_path, ("cavity",), "u,v").replace("v.npy", "v*.npy")
    folder = tmp_path / "cavity" / "bc" / "case0003"
    shutil.copy(folder / "v.npy", folder / "v_old.npy")
    with pytest.raises(
        ProblemFileError, match=r"files: expected as many files in .*case0003 as .* found [12] and [12]"
    ):
        read(text, tmp_path)


def test_keys_that_only_later_samples_have_are_left_out_by_name(tmp_path: Path) -> None:
    lines = [{"k": [1, 2, 3, 4], "u": [4, 5, 6, 7]}, {"k": [2, 3, 4, 5], "u": [1, 2, 3, 4], "nu": 3}]
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with open_file(tmp_path / "runs.jsonl") as file:
        assert {*file.arrays} == {"k", "u"}
        assert file.left_out == {"nu": "it is no number or list of numbers of one size in every sample"}
    (tmp_path / "runs.jsonl").write_text('{"k": 1, "k": 2}')
    with pytest.raises(ReadError, match=r"expected keys .* several named 'k'"), open_file(tmp_path / "runs.jsonl"):
        pass


@pytest.mark.parametrize(("name", "parameter"), [("x", False), ("t", False), ("nu", True)])
def test_as_many_coordinates_as_samples_are_no_parameter(name: str, parameter: bool, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "runs.h5", "w") as file:
        for number in range(SAMPLES):
            field = np.resize(K[number], (SAMPLES, SAMPLES))
            file[f"run_{number}/k"], file[f"run_{number}/u"] = field, 2 * field
            file[f"run_{number}/time"] = NU[number]
            file[f"run_{number}"].attrs["y"] = NU[number]  # of each group, whatever its name
        file[name] = np.linspace(0, 1, SAMPLES)
    text = described(tmp_path, ("runs.h5",), "u")
    assert (f"[parameters.{name}]" in text) == parameter
    assert "[parameters.y]" in text
    assert "[parameters.time]" in text


def test_values_of_cells_keep_their_length_wherever_the_grid_begins(tmp_path: Path) -> None:
    for number, k in enumerate(K):
        data = vtk_array("k", k[:, :8]) + vtk_array("u", 2 * k[:, :8])
        (tmp_path / f"run{number}.vti").write_text(
            '<VTKFile type="ImageData" byte_order="LittleEndian"><ImageData WholeExtent="0 8 0 8 0 0" '
            'Origin="-1 0.5 0" Spacing="0.25 0.5 1"><Piece Extent="0 8 0 8 0 0">'
            f"<CellData>{data}</CellData></Piece></ImageData></VTKFile>"
        )
    axes = read(described(tmp_path, (".",), "u"), tmp_path)[0].axes
    assert {axis.name: (axis.length, axis.points) for axis in axes} == {"y": (4.0, "cells"), "x": (2.0, "cells")}


@pytest.mark.parametrize("outputs", ["drag", "u,drag"])
def test_a_row_of_the_numbers_of_all_samples_is_an_output_in_a_file_of_its_own(outputs: str, tmp_path: Path) -> None:
    np.save(tmp_path / "k.npy", K)
    np.save(tmp_path / "u.npy", 2 * K)
    np.save(tmp_path / "drag.npy", NU[np.newaxis])
    _, samples = read(described(tmp_path, ("k.npy", "u.npy", "drag.npy"), outputs), tmp_path)
    assert samples.file["drag"][:] == pytest.approx(NU, rel=1e-6)


def forecasts(path: Path, start: str, lead: str, *others: str) -> NDArray[Any]:
    """Write a temperature on the globe for some starts and times since then, and more dimensions of two."""
    rng = np.random.default_rng(0)
    values = rng.random((20, *(2 for _ in others), 5, 8, 16)).astype(np.float32)
    dims = (start, *others, lead, "latitude", "longitude")
    axes = {start: np.arange(20) * 6, lead: np.arange(5) * 12.0, "latitude": np.linspace(90, -90, 8)}
    data = xarray.Dataset({"t2m": (dims, values)}, axes | {"longitude": np.arange(16) * 22.5})
    data.to_netcdf(path)
    return values


@pytest.mark.parametrize(
    ("start", "lead"), [("init_time", "lead_time"), ("time", "step"), ("time", "prediction_timedelta")]
)
def test_forecasts_are_trajectories_that_their_starts_count(start: str, lead: str, tmp_path: Path) -> None:
    values = forecasts(tmp_path / "t2m.nc", start, lead)
    with open_file(tmp_path / "t2m.nc") as file:
        assert file.arrays["t2m"].dimensions == ("time", "latitude", "longitude")
        assert file.samples == f"the dimension {start}"
        made = draft(file, [tmp_path / "t2m.nc"], outputs=("t2m",))
        np.testing.assert_array_equal(file.arrays["t2m"].read(), values)
    assert made.moving
    assert made.step == 12
    assert made.axes["longitude"] == {"length": 360.0, "boundary": "periodic", "points": "left"}
    assert made.axes["latitude"] == {"length": 180.0, "boundary": "open", "points": "nodes"}


def test_a_step_behind_other_axes_of_samples_is_an_axis_of_the_grid(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((20, 8, 9, 6))
    xarray.Dataset(dict.fromkeys("ab", (("sample", "x", "y", "step"), values))).to_netcdf(tmp_path / "g.nc")
    for order, refused in ("x y step", False), ("y x step", False), ("y x z", True):
        axes = {axis: {"length": 1.0} for axis in order.split()}
        found = ProblemFile.model_validate(
            {"name": "g", "data": {"files": ["g.nc"]}, "inputs": {"a": {}}, "outputs": {"b": {}}, "axes": axes}
        )
        if refused:
            with pytest.raises(DataError, match=r"their order, sample, y, x, z in 'a' .*: 'x' is another"):
                prepare(found, tmp_path, tmp_path / "data")
        else:
            samples = SampleFile(prepare(found, tmp_path, tmp_path / "data"), found)
            turned = np.einsum(f"nxys->n{order.replace(' ', '')[:3]}", values)
            assert samples.read(range(20))["a"] == pytest.approx(turned)


def test_frames_of_runs_keep_their_time_beside_the_iterations_of_a_solver(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    fields = {"u": (("run", "time", "x"), rng.random((20, 6, 8))), "residual": (("run", "step"), rng.random((20, 50)))}
    fields["w"] = (("run", "time", "step", "x"), rng.random((20, 6, 50, 8)))
    xarray.Dataset(fields, {"time": 0.1 * np.arange(6), "x": np.arange(8) / 8}).to_netcdf(tmp_path / "runs.nc")
    with open_file(tmp_path / "runs.nc") as file:
        assert {name: one.dimensions for name, one in file.arrays.items()} == {
            "u": ("time", "x"),
            "residual": ("step",),
            "w": ("time", "step", "x"),
        }
        assert file.coordinates["time"] == pytest.approx(0.1 * np.arange(6))
        assert (file.remarks, file.left_out, file.samples) == ((), {}, "the dimension run")


def test_a_field_beside_forecasts_counts_none_of_them(tmp_path: Path) -> None:
    forecasts(tmp_path / "t2m.nc", "time", "step")
    with xarray.open_dataset(tmp_path / "t2m.nc", decode_times=False) as data:
        data.assign(land=data["t2m"][0, 0]).to_netcdf(tmp_path / "more.nc")
    with open_file(tmp_path / "more.nc") as file:
        assert file.remarks == ("step is the time of forecasts, which time counts",)
        assert file.samples == "the dimension time"


def test_forecasts_of_several_members_are_left_out_by_name(tmp_path: Path) -> None:
    forecasts(tmp_path / "t2m.nc", "time", "step", "number")
    with open_file(tmp_path / "t2m.nc") as file:
        assert "t2m" not in file.arrays
        assert file.left_out["t2m"].startswith("time and number both count samples: make them one dimension")


def test_a_single_series_in_time_is_marked_as_samples_without_steps(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    axes = {"time": np.arange(20) * 6, "latitude": np.linspace(90, -90, 8), "longitude": np.arange(16) * 22.5}
    fields = {name: (("time", "latitude", "longitude"), rng.random((20, 8, 16))) for name in ("t2m", "z500")}
    xarray.Dataset(fields, axes).to_netcdf(tmp_path / "era5.nc")
    with open_file(tmp_path / "era5.nc") as file:
        made = draft(file, [tmp_path / "era5.nc"], outputs=("z500",))
    assert "samples are counted by time (20), so that no step in time is learned" in made.guesses["files"]


def test_meshes_have_numbers_from_a_table_and_integrals_by_their_areas(tmp_path: Path) -> None:
    """A file per sample, and a row of a table for each, in the order of the numbers in the names of the files."""
    rng = np.random.default_rng(0)
    drag, angle, pressure = rng.random(12), rng.random(12), rng.uniform(1, 2, 12)
    across, cells = np.mgrid[0:1:4j, 0:2:3j].reshape(2, -1).T, [(0, 1, 4, 3), (1, 2, 5, 4)]
    cells += [tuple(np.add(one, step)) for step in (3, 6) for one in cells[:2]]
    for sample in range(12):
        data = {"p": pressure[sample] * (1 + across[:, 0]), "k": across[:, 1] + drag[sample]}
        meshio.Mesh(across, [("quad", np.array(cells))], point_data=data).write(tmp_path / f"run{sample}.vtu")
    rows = "".join(f"{one},{other}\n" for one, other in zip(drag, angle, strict=True))
    (tmp_path / "forces.csv").write_text(f"drag,angle\n{rows}")
    number = {"files": ["forces.csv"]}
    found = ProblemFile.model_validate(
        {
            "name": "wing",
            "data": {"files": ["run*.vtu"], "validation": 2, "test": 2},
            "points": {"weights": "area"},
            "inputs": {"k": {}, "area": {}},
            "parameters": {"angle": number},
            "outputs": {"p": {}, "drag": {"scalar": True, **number}, "force": {"integral_of": "p"}},
        }
    )
    samples = SampleFile(prepare(found, tmp_path, tmp_path / "data"), found)
    assert samples.file["drag"][:] == pytest.approx(drag)
    assert samples.file["angle"][:] == pytest.approx(angle)
    assert samples.file["force"][:] == pytest.approx(pressure * 3, rel=1e-5)  # of 1 + x over [0, 1] x [0, 2]


def a_mesh_each(folder: Path) -> None:
    nodes = np.array([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)], float)
    cells = [("triangle", np.array([(0, 1, 2), (0, 2, 3)]))]
    (folder / "plates").mkdir()
    for number, nu in enumerate(NU):
        meshio.Mesh(nodes, cells, {"u": nu * nodes[:, 0]}).write(folder / f"plates/run{number}.vtu")


def a_grid_each(folder: Path) -> None:
    for number, k in enumerate(K):
        np.savez(folder / f"run{number}.npz", k=k, u=2 * k)


def a_folder_each(folder: Path) -> None:
    for number, k in enumerate(K):
        (folder / "runs" / str(number)).mkdir(parents=True)
        np.savez(folder / "runs" / str(number) / "fields.npz", k=k, u=2 * k)


@pytest.mark.parametrize(
    ("write", "files", "table"),
    [
        (a_mesh_each, ("plates",), "plates/forces.csv"),
        (a_mesh_each, ("plates", "forces.csv"), "forces.csv"),
        (a_mesh_each, ("plates/*.vtu", "forces.csv"), "forces.csv"),
        (a_grid_each, ("run*.npz", "forces.csv"), "forces.csv"),
        (a_folder_each, ("runs",), "runs/forces.csv"),
    ],
)
def test_a_table_has_a_row_for_each_file_or_folder(
    write: Callable[[Path], None], files: tuple[str, ...], table: str, tmp_path: Path
) -> None:
    write(tmp_path)
    rows = "".join(f"{number},{nu},{0.5 - nu},steel\n" for number, nu in enumerate(NU))
    (tmp_path / table).write_text(f"id,speed,drag,material\n{rows}")
    text = described(tmp_path, files, "u,drag")
    assert "forces.csv has a row for each of 12 samples, in the order of their names" in text
    assert "left out: forces.csv: id: it numbers the samples" in text
    assert "left out: forces.csv: material: a column that does not hold numbers alone" in text
    problem, samples = read(text, tmp_path)
    assert samples.file["speed"][:] == pytest.approx(NU, rel=1e-6)
    assert samples.file["drag"][:] == pytest.approx(0.5 - NU, rel=1e-6)
    assert problem["drag"] in problem.scalars
    (tmp_path / table).write_text("speed,drag\n1,2\n3,4\n")
    text = described(tmp_path, files, "u")
    assert "left out: forces.csv: a table, but not of numbers in a row for each of 12 samples" in text
    assert "[parameters." not in text


@pytest.mark.parametrize(
    ("write", "folder", "files"),
    [
        (a_mesh_each, "plates", ("plates",)),
        (a_mesh_each, "plates", ("plates/*.vtu", "plates/*.json")),
        (a_grid_each, ".", (".",)),
        (a_grid_each, ".", ("run*.json", "run*.npz")),
    ],
)
def test_a_file_of_settings_is_beside_each_file(
    write: Callable[[Path], None], folder: str, files: tuple[str, ...], tmp_path: Path
) -> None:
    write(tmp_path)
    for number, nu in enumerate(NU):
        settings = {"nu": nu, "length": 2.0, "solver": "cg", "loads": [1, 2]}
        (tmp_path / folder / f"run{number}.json").write_text(json.dumps(settings))
    text = described(tmp_path, files, "u")
    assert "[parameters.nu]  # guess: a setting of each run" in text
    assert "left out: length: it is 2.0 in run0.json and in run11.json" in text
    problem, samples = read(text, tmp_path)
    assert samples.file["nu"][:] == pytest.approx(NU, rel=1e-6)
    assert {"length", "solver", "loads"}.isdisjoint(problem.argument_names)


@pytest.mark.parametrize("name", ["heat.json", "numbers.json", "heat.csv"])
def test_numbers_of_all_samples_are_beside_their_file_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "heat.npz", k=K, u=2 * K)
    text = json.dumps({"nu": NU.tolist()}) if name.endswith("json") else "nu\n" + "\n".join(map(str, NU))
    (tmp_path / name).write_text(text)
    _, samples = read(described(tmp_path, ("heat.npz", name), "u"), tmp_path)
    assert samples.file["nu"][:] == pytest.approx(NU, rel=1e-6)


def test_a_lone_variable_along_time_is_refused_with_the_lines_that_cut_it(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((20, 8, 16))
    xarray.Dataset({"t2m": (("time", "latitude", "longitude"), values)}).to_netcdf(tmp_path / "era5.nc")
    with open_file(tmp_path / "era5.nc") as file, pytest.raises(DraftError) as refused:
        draft(file, [tmp_path / "era5.nc"])
    line = str(refused.value).partition("with ")[2]
    save, _, load = line.partition(", a = ")
    a = eval(load.replace("era5.nc", str(tmp_path / "era5.nc")), {"xarray": xarray})  # noqa: S307 -- our own line
    exec(save.replace("cut.npz", str(tmp_path / "cut.npz")), {"np": np, "a": a})  # noqa: S102
    with np.load(tmp_path / "cut.npz") as cut:
        assert cut["u"].ndim == 4
        np.testing.assert_array_equal(cut["u"].reshape(-1, 8, 16), values[: cut["u"].shape[0] * cut["u"].shape[1]])


@pytest.mark.parametrize(
    ("positions", "points", "length"),
    [
        (np.arange(20) / 10 - 0.95, "cells", 2.0),
        (np.arange(21) / 10 - 1.0, "nodes", 2.0),
        (np.linspace(-np.pi, np.pi, 20), "nodes", 6.28319),
        (np.arange(20) * 2.0 + 101, "cells", 40.0),
        (np.arange(20) / 10 + 0.05, "cells", 2.0),
    ],
)
def test_centres_of_cells_away_from_zero_are_told_from_nodes(
    positions: NDArray[Any], points: str, length: float, tmp_path: Path
) -> None:
    k, u = np.random.default_rng(0).random((2, 10, len(positions)))
    dims = ("sample", "x")
    xarray.Dataset({"k": (dims, k), "u": (dims, u)}, {"x": positions}).to_netcdf(tmp_path / "line.nc")
    with open_file(tmp_path / "line.nc") as file:
        made = draft(file, [tmp_path / "line.nc"], outputs=("u",))
    assert made.axes["x"] == {"length": length, "boundary": "open", "points": points}
    assert ("axes.x.points" in made.guesses) == (points == "cells" and positions[0] != 0.05)
