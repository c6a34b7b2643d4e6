"""Runs of Dedalus and OpenFOAM as these programs write them."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import meshio
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.drafts import described, values
from tests.training.problems.test_programs import FRAMES, SAMPLES, drafted
from training.data.readers import ReadError, open_file
from training.problems.draft_file import DraftError
from training.problems.sections import unconfirmed


def dedalus(path: Path, first: float = 0) -> NDArray[np.float64]:
    """Write frames of one run, and return its velocity."""
    velocity = np.stack([FRAMES[0], first + FRAMES[1]], 1)  # [time, component, x, z]
    with h5py.File(path, "w") as file:
        scales = {"sim_time": np.arange(6) / 4, "iteration": np.arange(6), "wall_time": np.arange(6) * 1.3}
        scales |= {"x_hash_0a": np.linspace(0, 4, 8, endpoint=False), "z_hash_1b": -np.cos(np.linspace(0.1, 3, 9))}
        for name, each in scales.items():
            file[f"scales/{name}"] = each
            file[f"scales/{name}"].make_scale(name.partition("_hash")[0])
        for name, each in {"buoyancy": first + FRAMES[2], "velocity": velocity}.items():
            task = file.create_dataset(f"tasks/{name}", data=each)
            for number, label in enumerate(("t", "", "x", "z") if each.ndim == 4 else ("t", "x", "z")):
                task.dims[number].label = label
            task.dims[0].attach_scale(file["scales/sim_time"])
            task.dims[each.ndim - 2].attach_scale(file["scales/x_hash_0a"])
            task.dims[each.ndim - 1].attach_scale(file["scales/z_hash_1b"])
    return velocity


def test_runs_of_dedalus_are_trajectories_with_vectors(tmp_path: Path) -> None:
    written = [dedalus(tmp_path / f"run_{number:02}.h5", number) for number in range(SAMPLES)]
    made = drafted(tmp_path, "run_*.h5")
    assert {*unconfirmed(made.toml()).values()} == {"samples", "outputs"}
    assert made.axes["x"] == {"length": 4.0, "boundary": "periodic", "points": "left"}
    assert (made.step, made.of("outputs")[1].components) == (0.25, 2)
    np.testing.assert_allclose(values(made, tmp_path)["velocity"], written, rtol=1e-6)


def test_a_run_of_dedalus_without_frames_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "run.h5", "w") as file:
        file["scales/sim_time"], file["tasks/u"] = np.zeros(0), np.zeros((0, 8, 9))
    with pytest.raises(ReadError, match="expected frames of a run"), open_file(tmp_path / "run.h5"):
        pass


def test_one_run_of_dedalus_is_refused_in_its_words(tmp_path: Path) -> None:
    dedalus(tmp_path / "snapshots_s1.h5")
    with pytest.raises(DraftError, match=r"files of several runs.*buoyancy=f\['tasks/buoyancy'\]\[:5\]\.reshape\(1, 5"):
        drafted(tmp_path, "snapshots_s1.h5")


def case_of_openfoam(folder: Path, number: int, times: int) -> NDArray[np.float64]:
    """Write what foamToVTK makes of a case, and return the pressure of all times."""
    x, y = (each.ravel() for each in np.meshgrid(np.arange(4.0), np.arange(3.0), indexing="ij"))
    corners = np.array([3 * i + j for i in range(3) for j in range(2)])
    cells = np.stack([corners, corners + 3, corners + 4, corners + 1], 1)
    pressure = (1 + number) * x + np.arange(times)[:, np.newaxis] * y
    for step, values_ in enumerate(pressure):
        frame = folder / "VTK" / f"case_{10 * step}"
        frame.mkdir(parents=True)
        for name in ("internal", "inlet"):
            points = np.stack([x, (1 + number) * y, 0 * x], 1)
            meshio.Mesh(points, [("quad", cells)], {"p": values_ if name == "internal" else 0 * values_}).write(
                frame / f"{name}.vtu"
            )
        blocks = "".join(f'<DataSet name="{name}" file="{frame.name}/{name}.vtu"/>' for name in ("inlet", "internal"))
        (folder / "VTK" / f"case_{10 * step}.vtm").write_text(
            f"<VTKFile><vtkMultiBlockDataSet>{blocks}</vtkMultiBlockDataSet></VTKFile>"
        )
    files = [{"name": f"case_{10 * step}.vtm", "time": 0.5 * step} for step in range(times)]
    (folder / "VTK" / "case.vtm.series").write_text(json.dumps({"file-series-version": "1.0", "files": files}))
    return pressure


def test_times_of_cases_of_openfoam_are_frames_and_no_samples(tmp_path: Path) -> None:
    written = [case_of_openfoam(tmp_path / "runs" / f"run_{number}", number, 4) for number in range(5)]
    made = drafted(tmp_path, "runs")
    assert made.step == 0.5
    np.testing.assert_allclose(values(made, tmp_path)["p"], written, rtol=1e-6)


def test_steady_cases_of_openfoam_are_samples(tmp_path: Path) -> None:
    written = [case_of_openfoam(tmp_path / "runs" / f"run_{number}", number, 1)[0] for number in range(5)]
    np.testing.assert_allclose(values(drafted(tmp_path, "runs", "p"), tmp_path)["p"], written, rtol=1e-6)


def test_a_list_of_meshes_of_one_run_is_a_series(tmp_path: Path) -> None:
    case_of_openfoam(tmp_path / "case", 0, 4)
    for name in ("case", "case/VTK/case.vtm.series"):
        assert drafted(tmp_path, name).step == 0.5


def test_exports_of_openfoam_are_runs_by_the_names_of_their_cases(tmp_path: Path) -> None:
    square = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0.5, 0.5, 0]])
    triangles = np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]])
    for number in range(3):
        folder = tmp_path / "cases" / f"case{number}" / "VTK"
        folder.mkdir(parents=True)
        fields = {"p": number + square[:, 0], "T": number * square[:, 1]}
        meshio.Mesh(square, {"triangle": triangles}, fields).write(folder / f"case{number}_100.vtk")
    text = described(tmp_path / "cases")
    assert f'files = ["{tmp_path / "cases"}/*/*/*_100.vtk"]' in text
    assert {*unconfirmed(text).values()} == {"outputs"}
