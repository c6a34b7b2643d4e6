"""What float32 does not hold of a component, and frames without an error: said or refused before any training."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import h5py
import meshio
import numpy as np
import pytest
from numpy.typing import NDArray

from training.data.prepare import prepare
from training.data.readers import open_file
from training.problems.draft import draft
from training.problems.draft_file import Draft
from training.problems.problem_file import ProblemFile
from training.problems.sections import DataError

RNG = np.random.default_rng(0)
UTM = np.array([500_000.0, 4_500_000.0])
CLOUD: dict[str, Any] = {"inputs": {"f": {}}, "points": {"coordinates": "xy"}}


def remarks(folder: Path, arrays: dict[str, NDArray[Any]], **tables: object) -> list[str]:
    """Return what the checks of some arrays remark, whose output is `u`."""
    np.savez(folder / "data.npz", **arrays)
    document = {"name": "checked", "data": {"files": ["data.npz"]}, "outputs": {"u": {}}, **tables}
    with h5py.File(prepare(ProblemFile.model_validate(document), folder, folder / "prepared")) as file:
        return str(file.attrs["remarks"]).splitlines()


def drafted(path: Path) -> Draft:
    with open_file(path) as file:
        return draft(file, [path], outputs=["u"])


def test_a_frame_of_zero_is_named_unless_the_network_starts_from_it(tmp_path: Path) -> None:
    u = RNG.random((20, 6, 8)) + 1
    u[:, :2] = 0
    tables: dict[str, Any] = {"axes": {"x": {}}, "inputs": {"start": {"key": "u"}}}
    assert not remarks(tmp_path, {"u": u}, **tables, time={"step": 0.1, "history": 2})
    u[[4, 5], 3] = 0
    sentence = (
        r"'u' is zero everywhere in frame 3 of sample 4: its relative error is not defined \(2 of these 20 samples"
    )
    with pytest.raises(DataError, match=sentence):
        remarks(tmp_path, {"u": u}, **tables, time={"step": 0.1, "history": 2})


def test_fields_of_zero_in_the_domain_are_zero_whatever_is_outside(tmp_path: Path) -> None:
    inside = np.arange(8) > 3
    u = np.where(inside, RNG.random((20, 6, 8)) + 1, np.nan)
    tables: dict[str, Any] = {"axes": {"x": {}}, "inputs": {"start": {"key": "u"}}, "mask": {"nan": "u"}}
    assert not remarks(tmp_path, {"u": u}, **tables, time={"step": 0.1})
    u[7, 5] = np.where(inside, 0, np.nan)
    with pytest.raises(DataError, match="frame 5 of sample 7"):
        remarks(tmp_path, {"u": u}, **tables, time={"step": 0.1})


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("time", [False, True])
def test_a_component_with_an_offset_of_its_own_is_named(last: bool, time: bool, tmp_path: Path) -> None:
    v = 10 * RNG.random((20, *((5,) if time else ()), 2, 8, 9)) + np.reshape([0, 1e7], (2, 1, 1))
    v = np.moveaxis(v, -3, -1) if last else v
    vector = {"components": ["x", "y"], "component_axis": "last" if last else "first", "per_frame": time}
    tables: dict[str, Any] = {"axes": {"row": {}, "column": {}}, "inputs": {"v": vector}}
    arrays = {"v": v, "u": RNG.random((20, *((5,) if time else ()), 8, 9)) + 1}
    if time:
        tables |= {"time": {"step": 0.1}, "inputs": {"v": vector, "start": {"key": "u"}}}
    [said] = remarks(tmp_path, arrays, **tables)
    assert re.match(r"v: y varies by (2\.9|3) about 1000000[45]\.\d+, where numbers of float32 are 1 apart", said)
    assert re.search(r"save its difference from 1000000[45], which the model then has", said)
    assert not remarks(tmp_path, arrays | {"v": v - 1e7 * (v > 1e6)}, **tables)


def test_a_component_with_an_offset_of_its_own_is_named_in_the_draft(tmp_path: Path) -> None:
    v = RNG.random((20, 2, 16, 17)) + np.reshape([0, 1e6], (2, 1, 1))
    for name, each in {"first": v, "last": np.moveaxis(v, 1, -1)}.items():
        np.savez(tmp_path / f"{name}.npz", v=each, u=RNG.random((20, 16, 17)))
        [said] = [each for each in drafted(tmp_path / f"{name}.npz").remarks if "float32" in each]
        assert re.match(r"v: c1 varies by 0\.29 about 1000000\.[45]", said)


def test_one_column_of_numbers_has_an_offset_of_its_own(tmp_path: Path) -> None:
    numbers = RNG.random((40, 2)) * [1e7, 1] + [0, 1e6]
    np.savez(tmp_path / "a.npz", p=numbers, k=RNG.random((40, 16, 17)), u=RNG.random((40, 16, 17)))
    offsets = [one.offset for one in drafted(tmp_path / "a.npz").tensors if one.array.name == "p"]
    assert offsets == [0, pytest.approx(1e6, rel=1e-6)]


def test_coordinates_far_from_the_origin_are_named(tmp_path: Path) -> None:
    shape = (20, 30)
    fields = {"f": RNG.random(shape), "u": RNG.random(shape) + 1}
    near = np.stack(
        [RNG.random(shape) * 100 + 1000 * np.arange(30), 1 + RNG.permuted(np.linspace(0, 98, 600)).reshape(shape)],
        axis=-1,
    )
    said = remarks(tmp_path, {"xy": near + UTM * [0, 1], **fields}, **CLOUD)
    assert [each[: each.index(" about")] for each in said] == ["coordinates: y varies by 28"]
    assert "subtract an origin, such as 4500050, here and in requests" in said[0]
    assert said[0] in drafted(tmp_path / "data.npz").remarks
    assert not remarks(tmp_path, {"xy": near, **fields}, **CLOUD)


@pytest.mark.parametrize(
    ("second", "advice"),
    [
        ((20.0, 30.1), r"subtract one, such as \(500000.0, 4500000.0\), from all coordinates, here and in requests"),
        ((20.0, 30.0), "`merge = true` in .points. makes them one"),
        ((20.0, 30.0 + 1e-8), "they are 1e-08 apart, which float32 does not tell: leave one out"),
    ],
)
def test_points_that_are_one_in_float32_are_told_apart(
    second: tuple[float, float], advice: str, tmp_path: Path
) -> None:
    xy = np.stack(np.meshgrid(np.arange(0, 100, 10.0), np.arange(0, 100, 10.0)), axis=-1).reshape(1, 100, 2) + UTM
    xy = np.concatenate([xy, np.reshape(second, (1, 1, 2)) + UTM], axis=1)
    fields = {"f": RNG.random((20, 101)), "u": RNG.random((20, 101)) + 1}
    with pytest.raises(DataError, match=rf"points 32 and 100 of sample 0 .* \(1 such points\): .*{advice}"):
        remarks(tmp_path, {"xy": np.repeat(xy, 20, axis=0), **fields}, **CLOUD)


def mesh(folder: Path, x: NDArray[np.float64], y: NDArray[np.float64], **fields: NDArray[Any]) -> Path:
    """Write a mesh of triangles between lines, with the output `u`."""
    rows, columns = np.meshgrid(y, x, indexing="ij")
    points = np.stack([columns.ravel(), rows.ravel(), np.zeros(rows.size)], axis=1)
    first = (np.arange(len(y) - 1)[:, None] * len(x) + np.arange(len(x) - 1)).ravel()
    cells = np.concatenate([first[:, None] + [0, 1, len(x)], first[:, None] + [1, len(x) + 1, len(x)]])
    data = {"f": RNG.random(len(points)), "u": RNG.random(len(points)), **fields}
    meshio.Mesh(points, [("triangle", cells)], data).write(folder / "a.vtu")
    return folder / "a.vtu"


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (0.3 * np.arange(20) + UTM[0], 0.3 * np.arange(20) + UTM[1], "xy"),  # float32 has every half of a metre of y
        (np.arange(11.0), 5000 + 0.01 * np.arange(101), "y"),
        (np.arange(11.0), 9900 + np.array([0, 1e-4, 1, 50, 100]), ""),  # all but the least distance has its digits
    ],
    ids=["far", "one axis", "graded"],
)
def test_nodes_of_a_mesh_far_from_the_origin_are_not_merged(
    x: NDArray[np.float64], y: NDArray[np.float64], said: str, tmp_path: Path
) -> None:
    made = drafted(mesh(tmp_path, x, y))
    assert "merge" not in made.points
    assert [each[: each.index(" by")] for each in made.remarks if "float32" in each] == [
        f"coordinates: {one} varies" for one in said
    ]
    with open_file(tmp_path / "a.vtu") as file:
        assert len(np.unique(file.array("coordinates").read()[0], axis=0)) == len(x) * len(y)


def test_nodes_that_differ_by_rounding_are_one_as_before(tmp_path: Path) -> None:
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 0.3, 0], [1, 0, 0], [1, 1, 0], [0, 0.1 + 0.2, 0]])
    data = {"f": np.arange(6.0), "u": np.arange(6.0)}
    meshio.Mesh(points, [("triangle", np.array([[0, 1, 2], [3, 4, 5]]))], data).write(tmp_path / "a.vtu")
    assert points[2, 1] != points[5, 1]
    made = drafted(tmp_path / "a.vtu")
    assert made.points["merge"]
    assert any(said.startswith("2 nodes are where others are") for said in made.remarks)


def test_a_vector_of_a_mesh_keeps_the_digits_of_every_component(tmp_path: Path) -> None:
    v = RNG.random((100, 3)) + np.array([0, 1e6, 0])
    path = mesh(tmp_path, np.arange(10.0), np.arange(10.0), v=v)
    with open_file(path) as file:
        assert np.array_equal(file.array("v").read()[0], v)
        assert file.array("coordinates").dtype == file.array("u").dtype == np.float32
    assert any(said.startswith("v: c1 varies by") for said in drafted(path).remarks)
