"""Tables, settings and numbers of all samples beside data files: matched with the right samples, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import meshio
import numpy as np
import pytest

from tests.drafts import described, read
from tests.training.problems.test_data_sets import NU, K
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.problems.problem_file import ProblemFile


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
