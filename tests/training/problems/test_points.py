"""Samples that have points of their own: from mesh files and padded arrays to prepared samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import meshio
import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from tests.toy_meshes import write_mesh, write_stars
from training.commands import app
from training.data.dataset import SampleFile
from training.data.prepare import identity, prepare
from training.data.readers import ReadError, open_file
from training.problems.problem_file import ProblemFile, read_problem_file
from training.problems.sections import DataError, ProblemFileError

Arrays = dict[str, NDArray[Any]]


def described(folder: Path) -> ProblemFile:
    """Return the problem file that `describe` prints for a folder, written beside it."""
    result = CliRunner().invoke(app, ["describe", str(folder), "--outputs", "solution"], catch_exceptions=False)
    path = folder.with_suffix(".toml")
    path.write_text(result.stdout[result.stdout.index("# ") :])
    return read_problem_file(path)


def prepared(problem: ProblemFile, folder: Path) -> SampleFile:
    return SampleFile(prepare(problem, folder, folder / "data"), problem)


def test_a_folder_of_meshes_is_described_and_prepared(tmp_path: Path) -> None:
    stars = write_stars(tmp_path / "stars", 12)
    problem = described(tmp_path / "stars")
    assert problem.data.files == (str(tmp_path / "stars" / "*.vtu"),)  # as it was named
    assert problem.argument_names == ("coordinates", "boundary", "distance", "source", "counts")
    assert problem.output_names == ("solution",)
    samples = prepared(problem, tmp_path)
    found, most = samples.read(range(12)), max(len(star.points) for star in stars)
    assert found["counts"].tolist() == [len(star.points) for star in stars]
    assert found["coordinates"].shape == (12, most, 2)
    for star, points, u, boundary, distance in zip(
        stars, *(found[name] for name in ("coordinates", "solution", "boundary", "distance")), strict=True
    ):
        count = len(star.points)
        assert points[:count] == pytest.approx(star.points, abs=1e-6)
        assert (points[count:] == points[0]).all()
        assert u[:count] == pytest.approx(star.solution, abs=1e-6)
        assert (u[count:] == 0).all()
        assert (boundary[:count] == (star.solution == 0)).all()
        assert (distance[:count] == 0).tolist() == (star.solution == 0).tolist()
    train = np.concatenate([star.points for star in stars[:10]])
    assert samples.box == pytest.approx(np.stack([train.min(0), train.max(0)], axis=1), abs=1e-6)
    values = np.concatenate([star.solution for star in stars])
    assert samples.statistic("solution", "deviation") == pytest.approx(values.std(), rel=1e-4)  # without padding


def test_a_recipe_keeps_the_problem_file(tmp_path: Path) -> None:
    write_stars(tmp_path / "stars", 1)
    problem = described(tmp_path / "stars")
    assert ProblemFile.model_validate_json(problem.model_dump_json()) == problem


def test_cell_data_are_means_at_the_nodes(tmp_path: Path) -> None:
    points = np.asarray([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
    mesh = meshio.Mesh(
        points,
        [("triangle", [[0, 1, 2], [1, 3, 2]])],
        {"flow": np.asarray([[1.0, 2, 0]] * 4)},
        {"load": [np.asarray([1.0, 3.0])]},
    )
    mesh.write(tmp_path / "plate.vtu")
    with open_file(tmp_path / "plate.vtu") as file:
        assert file.array("load").read().tolist() == [[1, 2, 2, 3]]
        assert file.array("flow").read().tolist() == [[[1, 2]] * 4]  # a vector of the plane
        assert file.array("boundary").read().tolist() == [[1, 1, 1, 1]]


def padded(count: int = 12, most: int = 9) -> Arrays:
    rng = np.random.default_rng(0)
    arrays = {"xy": rng.random((count, most, 2)), "f": rng.random((count, most)), "u": rng.random((count, most)) + 1}
    return arrays | {"n": rng.integers(5, most + 1, count)}


def on_points(**changes: object) -> ProblemFile:
    document: dict[str, object] = {
        "name": "cloud",
        "data": {"files": ["cloud.npz"]},
        "inputs": {"f": {}},
        "outputs": {"u": {"positive": True}},
        "points": {"coordinates": "xy", "counts": "n"},
    }
    return ProblemFile.model_validate(document | changes)


def test_padding_of_arrays_is_not_read(tmp_path: Path) -> None:
    arrays = padded()
    for name in ("xy", "f", "u"):
        arrays[name][np.arange(9) >= arrays["n"][:, None]] = np.nan
    np.savez(tmp_path / "cloud.npz", **arrays)
    found = prepared(on_points(), tmp_path).read(range(12))
    assert all(np.isfinite(values).all() for values in found.values())
    assert (found["f"][0, arrays["n"][0] :] == found["f"][0, 0]).all()


def test_one_mesh_serves_all_samples(tmp_path: Path) -> None:
    arrays = padded()
    np.savez(tmp_path / "cloud.npz", xy=arrays["xy"][0], f=arrays["f"], u=arrays["u"])
    found = prepared(on_points(points={"coordinates": "xy"}), tmp_path).read(range(12))
    assert (found["counts"] == 9).all()
    assert (found["coordinates"] == arrays["xy"][:1].astype(np.float32)).all()


def put(name: str, index: Any, value: Any) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[name][index] = value

    return change


def twice(arrays: Arrays) -> None:
    arrays["xy"][3, 4] = arrays["xy"][3, 2]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (put("f", (3, 1), np.nan), r"'f' is nan at sample 3, index \(1,\)"),
        (put("xy", (5, 2, 1), np.inf), r"'xy' is inf at sample 5, index \(2, 1\)"),
        (put("n", 4, 3), r"'n' is 3 at sample 4; expected a whole number from 4 to 9"),
        (put("n", 4, 10), r"'n' is 10 at sample 4; expected a whole number from 4 to 9"),
        (put("xy", (6, slice(None), 1), 0.5), "the points of sample 6 are degenerate, they span fewer than 2"),
        (twice, "points 2 and 4 of sample 3 are both at"),
        (put("u", (2, 0), -1), r"'u' is -1.0 at sample 2, index \(0,\); expected a positive number"),
    ],
)
def test_bad_points_have_their_sentence(change: Callable[[Arrays], None], sentence: str, tmp_path: Path) -> None:
    arrays = padded()
    change(arrays)
    np.savez(tmp_path / "cloud.npz", **arrays)
    with pytest.raises(DataError, match=sentence):
        prepare(on_points(), tmp_path, tmp_path)


def test_fields_have_as_many_points_as_coordinates(tmp_path: Path) -> None:
    arrays = padded()
    np.savez(tmp_path / "cloud.npz", **arrays | {"f": arrays["f"][:, :8]})
    with pytest.raises(DataError, match=r"'f' has 8 points and .* 'xy' 9; expected as many"):
        prepare(on_points(), tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"axes": {"row": {}}}, r"expected \[points\] or \[axes\]"),
        ({"symmetries": {"exact": ["flip_point"]}}, "symmetries.exact: expected none on points"),
    ],
)
def test_what_points_exclude(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        on_points(**changes)


def test_a_mesh_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "plate.vtu").write_text("no mesh")
    with pytest.raises(ReadError, match=r"plate.vtu: expected a mesh file"), open_file(tmp_path / "plate.vtu"):
        pass
    star = write_stars(tmp_path / "stars", 1)[0]
    write_mesh(tmp_path / "nan.vtu", replace(star, points=star.points * np.nan), {})
    nowhere = pytest.raises(ReadError, match="expected finite coordinates but those of point 0 are not")
    with nowhere, open_file(tmp_path / "nan.vtu"):
        pass


def test_weights_are_prepared_beside_the_fields(tmp_path: Path) -> None:
    stars = write_stars(tmp_path / "stars", 12)
    plain = described(tmp_path / "stars")
    text = (tmp_path / "stars.toml").read_text()
    assert '# weights = "area"' in text
    (tmp_path / "stars.toml").write_text(text.replace("# weights", "weights"))
    weighted = read_problem_file(tmp_path / "stars.toml")
    assert weighted.inputs == plain.inputs  # no input of the model
    assert b"weights" not in identity(plain)  # whose prepared files keep their names
    found = prepared(weighted, tmp_path).read(range(12))["weights"]
    for star, weights in zip(stars, found, strict=True):
        a, b, c = (star.points[star.triangles[:, corner]] for corner in range(3))
        sizes = np.abs(np.linalg.det(np.stack([b - a, c - a], axis=1))) / 2
        expected = np.bincount(star.triangles.ravel(), np.repeat(sizes / 3, 3), len(star.points))
        assert weights[: len(expected)] == pytest.approx(expected, rel=1e-5)
        assert not weights[len(expected) :].any()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [(-1.0, "expected a weight of at least 0"), (None, "is 0 everywhere in sample 2"), (np.nan, "expected a finite")],
)
def test_weights_that_weigh_nothing_are_refused(change: float | None, sentence: str, tmp_path: Path) -> None:
    rng, shape = np.random.default_rng(0), (20, 9)
    weights = rng.random(shape)
    weights[2] = np.where(np.arange(9) == 4, change, weights[2]) if change is not None else 0
    arrays = {"xy": rng.random((*shape, 2)), "f": rng.random(shape), "u": rng.random(shape), "w": weights}
    np.savez(tmp_path / "cloud.npz", **arrays)
    text = '[inputs.f]\n[outputs.u]\n[points]\ncoordinates = "xy"\nweights = "w"\n'
    (tmp_path / "cloud.toml").write_text(f'name = "cloud"\n[data]\nfiles = ["cloud.npz"]\n{text}')
    with pytest.raises(DataError, match=sentence):
        prepared(read_problem_file(tmp_path / "cloud.toml"), tmp_path)


def test_a_cloud_in_arrays_is_drafted_as_one(tmp_path: Path) -> None:
    arrays = padded()
    np.savez(tmp_path / "cloud.npz", load=arrays["u"][:, 0], **arrays)
    result = CliRunner().invoke(app, ["describe", str(tmp_path / "cloud.npz"), "--outputs", "u"])
    (tmp_path / "cloud.toml").write_text(result.stdout)
    problem = read_problem_file(tmp_path / "cloud.toml")
    assert problem.argument_names == ("coordinates", "f", "counts", "load")
    assert problem["coordinates"].array == "xy"
    assert problem["counts"].array == "n"
    assert prepared(problem, tmp_path).read(range(12))["u"].shape == (12, 9)


def test_one_mesh_is_not_turned_with_arrays_whose_last_axis_counts_samples(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"xy": rng.random((9, 2)), "f": rng.random((9, 12)), "u": rng.random((9, 12)) + 1}
    np.savez(tmp_path / "cloud.npz", **arrays)
    problem = on_points(data={"files": ["cloud.npz"], "sample": "last"}, points={"coordinates": "xy"})
    found = prepared(problem, tmp_path).read(range(12))
    assert found["coordinates"][5] == pytest.approx(arrays["xy"], rel=1e-6)
    assert found["u"] == pytest.approx(arrays["u"].T, rel=1e-6)


@pytest.mark.parametrize(("divisions", "points"), [((5, 7), 9), ((7, 5), 9), ((12,), 9), ((7, 5), 8)])
def test_points_of_tensors_in_files_of_their_own_are_compared_by_sample(
    divisions: tuple[int, ...], points: int, tmp_path: Path
) -> None:
    arrays, start = padded() | {"n": np.full(12, 9)}, 0
    for number, part in enumerate((5, 7)):
        cut = {name: value[5 * number :][:part] for name, value in arrays.items() if name != "u"}
        np.savez(tmp_path / f"cloud_{number}.npz", **cut)
    for number, part in enumerate(divisions):
        np.savez(tmp_path / f"u_{number}.npz", u=arrays["u"][start : start + part, :points])
        start += part
    outputs = {"u": {"positive": True, "files": ["u_*.npz"]}}
    problem = on_points(data={"files": ["cloud_*.npz"]}, outputs=outputs)
    if points < 9:
        with pytest.raises(DataError, match=r"u_0.npz: 'u' has 8 points and .*cloud_0.npz: 'xy' 9; expected as many"):
            prepared(problem, tmp_path)
    else:
        assert prepared(problem, tmp_path).read(range(12))["u"] == pytest.approx(arrays["u"], rel=1e-6)


@pytest.mark.parametrize(("first", "second"), [("a", "load"), ("x", "y")])
def test_what_may_be_a_cloud_is_asked_for(first: str, second: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.random((20, 30, 2) if first == "a" else (20, 30))
    np.savez(tmp_path / "cloud.npz", **{first: values, second: rng.random((20, 30))}, stress=rng.random((20, 30)))
    result = CliRunner().invoke(app, ["describe", str(tmp_path / "cloud.npz"), "--outputs", "stress"])
    (tmp_path / "cloud.toml").write_text(result.stdout)
    with pytest.raises(ProblemFileError, match=r"not confirmed: .*whether every sample has points of its own"):
        read_problem_file(tmp_path / "cloud.toml")


def test_a_folder_whose_name_holds_brackets_and_spaces_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "stars [2] old"
    write_stars(folder, 12)
    (tmp_path / "stars 2 old").mkdir()
    assert prepared(described(folder), tmp_path).counts == (10, 1, 1)


def test_regions_are_a_share_of_the_cells_for_each_and_all_of_them_are_named(tmp_path: Path) -> None:
    (tmp_path / "plates").mkdir()
    rng, materials = np.random.default_rng(0), [1, 2]

    def write(number: int, materials: list[int]) -> None:
        points = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]) * (1 + rng.random())
        fields, data = {"solution": rng.random(4)}, {"material": [np.array(materials)]}
        mesh = meshio.Mesh(points, [("triangle", [[0, 1, 2], [0, 2, 3]])], fields, data)
        mesh.write(tmp_path / "plates" / f"{number:02}.vtu")

    for number in range(12):
        write(number, materials if number != 4 else [2, 2])
    problem = described(tmp_path / "plates")
    assert [one.array for one in problem.inputs][-2:] == ["material=1", "material=2"]
    found = prepared(problem, tmp_path).read(range(12))
    assert found["material_1"][0].tolist() == [0.5, 1, 0.5, 0]
    assert found["material_2"][0].tolist() == [0.5, 0, 0.5, 1]
    assert not found["material_1"][4].any()
    write(7, [3, 1])
    with pytest.raises(DataError, match=r"07.vtu: expected an input with the key 'material=3'"):
        prepared(problem, tmp_path)


@pytest.mark.parametrize("cracked", [False, True])
def test_nodes_at_one_place_are_merged_where_the_problem_file_says_so(cracked: bool, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for number in range(12):
        points = np.random.default_rng(number).random((6, 3)) * [1, 1, 0]
        points[3 + cracked], u = points[1], np.arange(6.0) + number
        mesh = meshio.Mesh(points, [("triangle", [[0, 1, 2], [3, 4, 5]])], {"source": u, "solution": 2 * u})
        mesh.write(tmp_path / "runs" / f"run{number}.vtu")
    problem = described(tmp_path / "runs")
    assert problem.points is not None
    assert problem.points.merge
    found = prepared(problem, tmp_path).read(range(12))
    both = (1 + (3 + cracked)) / 2
    assert found["source"][2] == pytest.approx(2 + np.array([0, both, 2, *([4, 5] if not cracked else [3, 5])]))
    assert (found["counts"] == 5).all()
    text = (tmp_path / "runs.toml").read_text()
    (tmp_path / "runs.toml").write_text(text.replace("merge = true", "merge = false"))
    with pytest.raises(DataError, match=r"points 1 and . of sample 0 are both at .*`merge = true` in \[points\]"):
        prepared(read_problem_file(tmp_path / "runs.toml"), tmp_path)


def write_slices(folder: Path, planes: list[list[int]], heights: list[float]) -> None:
    """Write triangles in planes, whose axes and heights are given, with stresses of three components, 0 in one."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for number, (axes, height) in enumerate(zip(planes, heights, strict=True)):
        points = np.full((6, 3), height)
        points[:, axes] = rng.random((6, 2))
        fields = {"solution": rng.random(6), "stress": rng.random((6, 3)) * (number != 3)}
        mesh = meshio.Mesh(points, [("triangle", [[0, 1, 2], [3, 4, 5]])], fields)
        mesh.write(folder / f"{number:02}.vtu")


def test_a_vector_that_is_zero_in_a_sample_has_all_components_of_the_others(tmp_path: Path) -> None:
    write_slices(tmp_path / "slices", [[0, 2]] * 12, [0.0] * 12)
    found = prepared(described(tmp_path / "slices"), tmp_path).read(range(12))
    assert found["stress"].shape == (12, 6, 3)
    assert found["stress"].any(axis=(1, 2)).tolist() == [number != 3 for number in range(12)]


def test_planes_that_meshes_lie_in_are_compared(tmp_path: Path) -> None:
    write_slices(tmp_path / "slices", [[0, 1]] * 12, [1.0 + number for number in range(12)])
    problem = described(tmp_path / "slices")
    assert "its points have z = 1, which is left out" in (tmp_path / "slices.toml").read_text()
    sentence = "z is left out of plane meshes that have it from 1 in 00.vtu to 12 in 11.vtu"
    assert sentence in str(prepared(problem, tmp_path).file.attrs["remarks"])
    write_slices(tmp_path / "slices", [[0, 1]] * 7 + [[1, 2]] * 5, [0.0] * 12)
    with pytest.raises(DataError, match=r"07\.vtu: all its points have the same x, and those of .*00\.vtu the same z"):
        prepared(problem, tmp_path)


def test_numbers_of_a_file_are_those_of_its_sample_and_numbers_of_points_no_field(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    rng = np.random.default_rng(0)
    points = np.pad(rng.random((20, 2)), [(0, 0), (0, 1)])
    triangles = np.stack([np.arange(18), np.arange(1, 19), np.arange(2, 20)], axis=1)
    for number in range(12):
        fields = {"solution": rng.random(20), "GlobalNodeID": 100 + rng.permutation(20), "kind": np.arange(20) // 2}
        data = {"cellID": [rng.permutation(18)], "rank": [np.arange(18) // 9]}
        path = tmp_path / "runs" / f"{number:02}.vtu"
        meshio.Mesh(points, [("triangle", triangles)], fields, data).write(path)
        of_file = {"Re": f"{number + 0.5}", "TimeValue": f"{number}", "inflow": "1 2 3"}
        listed = "".join(
            f'<DataArray type="Float64" Name="{name}">{each}</DataArray>' for name, each in of_file.items()
        )
        whole = f'{listed}<Array type="String" Name="case">97 0</Array>'
        path.write_text(
            path.read_text().replace("<UnstructuredGrid>", f"<UnstructuredGrid><FieldData>{whole}</FieldData>")
        )
    problem = described(tmp_path / "runs")
    assert problem["re"].array == "Re"
    assert prepared(problem, tmp_path).read(range(12))["re"].tolist() == [number + 0.5 for number in range(12)]
    with open_file(path) as file:
        assert {*file.left_out} == {"GlobalNodeID", "cellID", "TimeValue", "inflow", "case"}
        assert "kind" in file.arrays
        assert file.array("TimeValue").read().tolist() == [11]  # which a problem file may name
        assert file.array("cellID").shape == (1, 20)
    with open_file(tmp_path / "runs") as series:  # steps of one run may have other numbers
        assert series.left_out["Re"].startswith("it is a number of one step")
        assert series.array("solution").read().shape == (1, 12, 20)
