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
from training.data.readers import ReadError

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


def airfoils(folder: Path) -> None:
    """Write the coordinates of curved grids in files beside the flow, as Geo-FNO's."""
    np.save(folder / "NACA_Cylinder_Q.npy", np.stack([K, 2 * K, 3 * K], 1))
    np.save(folder / "NACA_Cylinder_X.npy", K + 1)
    np.save(folder / "NACA_Cylinder_Y.npy", K + 2)


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


def wide_table(folder: Path) -> None:
    """Write a line for each sample, with a column for each point, as pandas does."""
    heads = [*(f"k_{number}" for number in range(72)), *(f"u_{number}" for number in range(72)), "nu"]
    lines = np.column_stack([*LINES.values(), NU])
    np.savetxt(folder / "wide.csv", lines, delimiter=",", header=",".join(heads), comments="")


def many_columns_beside(folder: Path) -> None:
    """Write coefficients of an expansion, which are no points, in a table beside fields."""
    np.savez(folder / "fields.npz", **TWICE)
    heads = ",".join(f"xi_{number}" for number in range(20))
    lines = NU[:, None] + np.arange(20)
    np.savetxt(folder / "runs.csv", lines, delimiter=",", header=heads, comments="")


def table_alone(folder: Path) -> None:
    np.save(folder / "u.npy", 2 * K)
    table_beside(folder)


TWICE: Arrays = {"k": K, "u": 2 * K}
LINES: Arrays = {name: one.reshape(SAMPLES, -1) for name, one in TWICE.items()}
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
    "a table with a column for each point": Case(wide_table, ("wide.csv",), "u", set(), {**LINES, "nu": NU}),
    "arrays without names in tables": Case(
        lambda folder: [np.savetxt(folder / f"{name}.txt", one) for name, one in LINES.items()],
        *(("*.txt",), "u", set(), LINES),
    ),
    "many numbers in a table beside": Case(
        many_columns_beside, ("fields.npz", "runs.csv"), "u", set(), {**TWICE, "xi_0": NU, "xi_19": NU + 19}
    ),
    "a table of parameters as the only input": Case(
        table_alone, ("u.npy", "runs.csv"), "u", set(), {"u": 2 * K, "nu": NU}
    ),
    "Geo-FNO: coordinates of curved grids": Case(
        airfoils,
        ("*.npy",),
        "",
        {"outputs"},
        {
            "naca_cylinder_q": np.stack([K, 2 * K, 3 * K], 1),
            "naca_cylinder_x": K + 1,
            "naca_cylinder_y": K + 2,
        },
        ("[inputs.naca_cylinder_x]", "[inputs.naca_cylinder_y]", "[outputs.naca_cylinder_q]"),
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


def test_points_of_one_solution_are_asked_about(tmp_path: Path) -> None:
    """As Raissi's wake of a cylinder: they were samples, and their coordinates parameters, unsaid."""
    fields = {"U_star": RNG.random((50, 2, 9)), "X_star": RNG.random((50, 2)), "p_star": RNG.random((50, 9))}
    savemat(tmp_path / "wake.mat", {**fields, "t": np.arange(9.0)[:, None]})
    text = described(tmp_path, "wake.mat", "p_star")
    assert "# guess: samples are counted by the first axis (50), or are these the points of one solution" in text


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
