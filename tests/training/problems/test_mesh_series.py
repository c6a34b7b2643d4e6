"""Series of meshes in time: lists of ParaView, folders of numbered files and XDMF with steps, and clouds in arrays."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import meshio
import numpy as np
import pytest
from typer.testing import CliRunner

from tests.toy_meshes import cooling, padded, write_series
from training.commands import app
from training.data.dataset import SampleFile
from training.data.prepare import checksum, prepare
from training.data.readers import ReadError, open_file
from training.problems.problem_file import ProblemFile, ProblemFileError, read_problem_file
from training.problems.sections import DataError, unconfirmed

CONFIRMED = re.compile(r"  # guess: (samples are counted by folders|time is the first axis).*")


def described(source: Path, *options: str) -> ProblemFile:
    """Return the problem file that `describe` prints, whose guesses of samples and time are confirmed."""
    result = CliRunner().invoke(app, ["describe", str(source), *options], catch_exceptions=False)
    path = source.with_suffix(".toml")
    path.write_text(CONFIRMED.sub("", result.stdout[result.stdout.index("# ") :]))
    return read_problem_file(path)


def assert_prepared(problem: ProblemFile, folder: Path, count: int) -> None:
    """Check that what is prepared is what was drawn."""
    samples, drawn = SampleFile(prepare(problem, folder, folder / "data"), problem), cooling(count, 4)
    found = samples.read(range(count))
    assert found["heat"].shape == (count, 4, max(len(one.points) for one in drawn))
    for number, one in enumerate(drawn):
        points = len(one.points)
        assert found["coordinates"][number, :points] == pytest.approx(one.points, abs=1e-6)
        assert found["heat"][number, :, :points] == pytest.approx(one.heat, abs=1e-6)
        if "rate" in found:
            assert found["rate"][number, :points] == pytest.approx(one.rate, rel=1e-6)


def test_a_folder_of_lists_is_described_and_prepared(tmp_path: Path) -> None:
    write_series(tmp_path / "runs", cooling(4, 4))
    drafted = CliRunner().invoke(app, ["describe", str(tmp_path / "runs"), "--outputs", "heat"], catch_exceptions=False)
    assert "# guess:" not in drafted.stdout  # a list is one sample by itself
    problem = described(tmp_path / "runs")
    assert problem.data.files == (f"{tmp_path}/runs/*/out.pvd",)
    assert problem.argument_names == ("coordinates", "boundary", "distance", "heat_first", "rate", "counts")
    assert problem.states == {"heat_first": "heat"}
    assert problem.time is not None
    assert problem.time.step == pytest.approx(0.02)
    assert_prepared(problem, tmp_path, 4)


@pytest.mark.parametrize("outputs", ["heat", "wind,heat"])
def test_arrays_of_frames_beside_a_series_are_states_or_known_in_advance(outputs: str, tmp_path: Path) -> None:
    write_series(tmp_path / "runs", cooling(4, 4))
    expected = {}
    for number, (run, one) in enumerate(zip(sorted(tmp_path.glob("runs/*")), cooling(4, 4), strict=True)):
        wind, power = (number + 1) * one.heat, number + np.arange(4.0)
        np.save(run / "wind.npy", wind)
        np.save(run / "power.npy", power)
        expected[number] = wind, power
    text = CliRunner().invoke(app, ["describe", str(tmp_path / "runs"), "--outputs", outputs]).stdout
    assert {*unconfirmed(text).values()} == {"inputs"}
    (tmp_path / "runs.toml").write_text(re.sub(r"  # guess:.*", "", text[text.index("# ") :]))
    problem = read_problem_file(tmp_path / "runs.toml")
    assert problem["power"].per_frame
    assert ("wind" in problem.output_names) == (outputs != "heat")
    samples = SampleFile(prepare(problem, tmp_path, tmp_path / "data"), problem).read(range(4))
    for number, (wind, power) in expected.items():
        assert samples["wind"][number, :, : wind.shape[1]] == pytest.approx(wind, rel=1e-6)
        assert samples["power"][number] == pytest.approx(power)


def test_a_folder_of_numbered_meshes_is_one_sample(tmp_path: Path) -> None:
    write_series(tmp_path / "runs", cooling(4, 4))
    for path in tmp_path.glob("runs/*/*.pvd"):
        path.unlink()
    marked = CliRunner().invoke(app, ["describe", str(tmp_path / "runs")], catch_exceptions=False).stdout
    assert "step = 1.0  # guess: the file does not say how much time" in marked
    assert "# guess: samples are counted by folders" in marked
    problem = described(tmp_path / "runs")
    assert problem.data.files == (f"{tmp_path}/runs/*",)
    assert_prepared(problem, tmp_path, 4)


def test_xdmf_with_steps_is_a_series(tmp_path: Path) -> None:
    for number, one in enumerate(cooling(4, 4)):
        with meshio.xdmf.TimeSeriesWriter(tmp_path / f"run_{number}.xdmf", data_format="XML") as writer:
            writer.write_points_cells(np.column_stack([one.points, 0 * one.points[:, 0]]), {"triangle": one.triangles})
            for frame, heat in enumerate(one.heat):
                writer.write_data(0.5 * frame, point_data={"heat": heat})
    with open_file(tmp_path / "run_0.xdmf") as file:
        assert file.array("heat").shape[:2] == (1, 4)
        assert file.array("boundary").read().sum() > 3
    problem = described(tmp_path / "run_0.xdmf")
    assert problem.time is not None
    assert problem.time.step == 0.5
    files = problem.data.model_copy(update={"files": ("run_*.xdmf",)})
    assert_prepared(problem.model_copy(update={"data": files}), tmp_path, 4)


def plate(run: Path, listed: tuple[str, ...] = ()) -> None:
    """Write three steps of a plate that bends out of its plane, and that many lists of them."""
    run.mkdir(parents=True)
    one = cooling(1, 3)[0]
    points = np.column_stack([one.points, 0 * one.points[:, 0]])
    for step in range(3):
        data = {"u": step * points[:, [2, 2, 0]], "v": points + step, "distance": points[:, 0] - step}
        data["v"][:, 2] = 0
        meshio.Mesh(points, {"triangle": one.triangles}, data).write(run / f"o{step}.vtu")
    steps = "".join(f'<DataSet timestep="{step}" file="o{step}.vtu"/>' for step in range(3))
    for name in listed:
        (run / name).write_text(f'<VTKFile type="Collection"><Collection>{steps}</Collection></VTKFile>')


def test_what_leaves_the_plane_in_a_later_step_has_three_components_in_all(tmp_path: Path) -> None:
    plate(tmp_path / "plate")
    with open_file(tmp_path / "plate") as file:
        points = file.array("coordinates").read()[0]
        u, v, distance = (file.array(name) for name in ("u", "v", "distance"))
        assert u.shape == (1, 3, len(points), 3)
        assert u.read()[0, 2, :, 2] == pytest.approx(2 * points[:, 0], abs=1e-6)
        assert v.shape == v.read().shape == (1, 3, len(points), 2)
        assert distance.read()[0, :, 0] == pytest.approx(points[0, 0] - np.arange(3), abs=1e-6)


def test_cell_data_that_change_are_no_regions_and_late_fields_are_named(tmp_path: Path) -> None:
    one = cooling(1, 3)[0]
    points = np.column_stack([one.points, 0 * one.points[:, 0]])
    for step in range(3):
        data = {"heat": one.heat[step]} | ({"flux": one.heat[step]} if step else {})
        cells = {"broken": np.arange(len(one.triangles)) < 40 * step, "material": one.triangles[:, 0] % 2}
        of_cells = {name: [values.astype(int)] for name, values in cells.items()}
        meshio.Mesh(points, {"triangle": one.triangles}, data, of_cells).write(tmp_path / f"o{step}.vtu")
    with open_file(tmp_path) as file:
        assert {"material=0", "material=1"} < file.arrays.keys()
        assert "broken=0" not in file.arrays
        assert file.regions.keys() == {"material"}
        means = file.array("broken").read()[0].mean(axis=1)
        assert 0 == means[0] < means[1] < means[2]
        assert file.left_out == {"flux": "the first step has none"}


def collections(path: Path, times: Sequence[Sequence[float]], names: str = "up", moved: float = 0.0) -> None:
    """Write a temporal collection for each name, as FEniCS does, which has its mesh in the first and the last step."""
    corners, cells = "0 0  1 0  1 1  0 1", "0 1 2  0 2 3"

    def mesh(last: bool) -> str:
        shift = f"{moved if last else 0} {corners[2:]}"
        return (
            f'<Topology NumberOfElements="2" TopologyType="Triangle"><DataItem Dimensions="2 3" NumberType="UInt" '
            f'Format="XML">{cells}</DataItem></Topology><Geometry GeometryType="XY"><DataItem Dimensions="4 2" '
            f'Format="XML">{shift}</DataItem></Geometry>'
        )

    def step(name: str, number: int, time: float, last: bool) -> str:
        values = " ".join(str(number + corner + 10 * (name == "p")) for corner in range(4))
        return (
            f'<Grid Name="{name}" GridType="Uniform">{mesh(last) if last or not number else ""}<Time Value="{time}"/>'
            f'<Attribute Name="{name}" AttributeType="Scalar" Center="Node"><DataItem Dimensions="4 1" Format="XML">'
            f"{values}</DataItem></Attribute></Grid>"
        )

    grids = "".join(
        f'<Grid Name="TimeSeries_{name}" GridType="Collection" CollectionType="Temporal">'
        + "".join(step(name, number, time, number == len(each) - 1) for number, time in enumerate(each))
        + "</Grid>"
        for name, each in zip(names, times, strict=True)
    )
    path.write_text(f'<Xdmf Version="3.0"><Domain>{grids}</Domain></Xdmf>')


def test_collections_of_steps_are_one_series(tmp_path: Path) -> None:
    collections(tmp_path / "both.xdmf", [(0, 0.5, 1), (0, 0.5, 1)])
    with open_file(tmp_path / "both.xdmf") as file:
        assert list(file.coordinates["time"]) == [0, 0.5, 1]
        assert file.array("u").read()[0, :, 0].tolist() == [0, 1, 2]
        assert file.array("p").read()[0, :, 0].tolist() == [10, 11, 12]


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        (
            "same times but TimeSeries_u has 3 from 0 to 1 and TimeSeries_p 2 from 0 to 1",
            {"times": [(0, 0.5, 1), (0, 1)]},
        ),
        ("TimeSeries_u and TimeSeries_u .1. both have 'u': rename one", {"times": [(0, 1), (0, 1)], "names": "uu"}),
        ("the points move, point 0 at step 1 first", {"times": [(0, 1), (0, 1)], "moved": 0.1}),
        ("expected an XDMF file of version 3, with steps on one mesh", {"times": [(), ()]}),
    ],
)
def test_collections_that_are_no_series_have_their_sentence(
    sentence: str, said: dict[str, Any], tmp_path: Path
) -> None:
    collections(tmp_path / "both.xdmf", **said)
    with pytest.raises(ReadError, match=sentence), open_file(tmp_path / "both.xdmf") as file:
        file.array("u").read()


def test_checkpoints_of_fenics_are_named(tmp_path: Path) -> None:
    collections(tmp_path / "u.xdmf", [(0, 1)], "u")
    text = (tmp_path / "u.xdmf").read_text()
    more = 'ItemType="FiniteElementFunction" Center="Other"><DataItem Dimensions="1 1" Format="XML">0</DataItem>'
    (tmp_path / "u.xdmf").write_text(text.replace('Center="Node">', more))
    with pytest.raises(ReadError, match=r"it is a checkpoint of FEniCS, which write"), open_file(tmp_path / "u.xdmf"):
        pass


def test_a_folder_with_a_list_is_what_it_lists(tmp_path: Path) -> None:
    plate(tmp_path / "one", ("o.pvd",))
    with open_file(tmp_path / "one") as file:
        assert list(file.coordinates["time"]) == [0, 1, 2]
    plate(tmp_path / "two", ("o.pvd", "b.pvd"))
    for layout in ("auto", "series"):
        with (
            pytest.raises(ReadError, match=r"two: .* several, b.pvd, o.pvd: name one"),
            open_file(tmp_path / "two", layout),
        ):
            pass


def test_results_made_again_are_noticed_behind_lists_and_xdmf(tmp_path: Path) -> None:
    known, one = tmp_path / "known.json", cooling(1, 3)[0]
    plate(tmp_path / "run", ("o.pvd",))
    first = checksum([tmp_path / "run" / "o.pvd"], known)
    copy = (tmp_path / "run").rename(tmp_path / "copy")
    assert checksum([copy / "o.pvd"], known) == first
    mesh = meshio.read(copy / "o1.vtu")
    mesh.point_data["u"] += 1
    mesh.write(copy / "o1.vtu")
    assert checksum([copy / "o.pvd"], known) != first

    def write(factor: float) -> tuple[str, float]:
        points = np.column_stack([one.points, 0 * one.points[:, 0]])
        values = {"heat": factor * one.points[:, 0]}
        # The writer names the HDF5 file by the path that it is called with, and files are only read beside.
        with contextlib.chdir(tmp_path):
            meshio.Mesh(points, {"triangle": one.triangles}, values).write("mesh.xdmf")
            with meshio.xdmf.TimeSeriesWriter("steps.xdmf") as writer:
                writer.write_points_cells(points, {"triangle": one.triangles})
                for step in range(2):
                    writer.write_data(float(step), point_data=values)
        with open_file(tmp_path / "steps.xdmf") as file:
            heat = file.array("heat").read()[0, 1, 0]
        return " ".join(checksum([tmp_path / f"{name}.xdmf"], known) for name in ("mesh", "steps")), heat

    (mesh_and_steps, heat), (again, hotter) = write(1), write(3)
    assert all(old != new for old, new in zip(mesh_and_steps.split(), again.split(), strict=True))
    assert hotter == pytest.approx(3 * heat)


def test_steady_fields_of_discontinuous_elements_are_merged_with_those_that_change(tmp_path: Path) -> None:
    write_series(tmp_path / "runs", cooling(4, 4))
    for path in tmp_path.glob("runs/*/*.vtu"):  # nodes of their own for every triangle
        mesh = meshio.read(path)
        nodes = mesh.cells_dict["triangle"].ravel()
        data = {name: values[nodes] for name, values in mesh.point_data.items()}
        triangles = np.arange(len(nodes)).reshape(-1, 3)
        meshio.Mesh(mesh.points[nodes], {"triangle": triangles}, data).write(path)
    problem = described(tmp_path / "runs")
    assert problem.points is not None
    assert problem.points.merge
    samples = SampleFile(prepare(problem, tmp_path, tmp_path / "data"), problem)
    found = samples.read(range(4))
    for number, one in enumerate(cooling(4, 4)):
        assert found["counts"][number] == len(one.points)
        assert found["rate"][number, : len(one.points)] == pytest.approx(one.rate, rel=1e-6)
        assert found["heat"][number, :, : len(one.points)].sum() == pytest.approx(one.heat.sum(), rel=1e-4)


def test_other_steps_than_those_of_the_problem_file_and_of_other_samples_are_told(tmp_path: Path) -> None:
    write_series(tmp_path / "runs", cooling(4, 4))
    problem = described(tmp_path / "runs")
    assert problem.time is not None

    def said(step: float) -> str:
        one = problem.model_copy(update={"time": problem.time.model_copy(update={"step": step})})
        samples = SampleFile(prepare(one, tmp_path, tmp_path / "data"), one)
        return str(samples.file.attrs["remarks"])

    assert "between two frames" not in said(0.02)
    assert "the data have 0.02 between two frames and [time] says step = 0.7" in said(0.7)
    listed = tmp_path / "runs" / "run-03" / "out.pvd"
    listed.write_text(re.sub(r'timestep="(.*?)"', lambda at: f'timestep="{5 * float(at[1])}"', listed.read_text()))
    with pytest.raises(DataError, match=r"run-03/out.pvd: expected 0.02 between two frames, as in .* but found 0.1"):
        said(0.02)


def test_frames_of_a_cloud_in_arrays_are_drafted(tmp_path: Path) -> None:
    np.savez(tmp_path / "cloud.npz", t=0.02 * np.arange(4), **padded(cooling(4, 4)))
    marked = CliRunner().invoke(app, ["describe", str(tmp_path / "cloud.npz"), "--outputs", "heat"]).stdout
    (tmp_path / "marked.toml").write_text(marked[marked.index("# ") :])
    with pytest.raises(ProblemFileError, match="not confirmed"):
        read_problem_file(tmp_path / "marked.toml")
    problem = described(tmp_path / "cloud.npz", "--outputs", "heat")
    assert problem.argument_names == ("coordinates", "heat_first", "counts", "rate")
    assert problem.time is not None
    assert problem.time.step == pytest.approx(0.02)
    assert SampleFile(prepare(problem, tmp_path, tmp_path / "data"), problem).frames == 4


def moving(run: Path) -> None:
    mesh = meshio.read(run / "out_2.vtu")
    mesh.points[3] += 0.1
    mesh.write(run / "out_2.vtu")


def changing(run: Path) -> None:
    mesh = meshio.read(run / "out_2.vtu")
    mesh.point_data["rate"][1] += 1
    mesh.write(run / "out_2.vtu")


def coarser(run: Path) -> None:
    one = cooling(1, 4, rings=(2, 2))[0]
    data = {"heat": one.heat[0], "rate": one.heat[0]}
    meshio.Mesh(np.column_stack([one.points, 0 * one.points[:, 0]]), {"triangle": one.triangles}, data).write(
        run / "out_2.vtu"
    )


def without_a_field(run: Path) -> None:
    mesh = meshio.read(run / "out_2.vtu")
    del mesh.point_data["heat"]
    mesh.write(run / "out_2.vtu")


def without_a_file(run: Path) -> None:
    (run / "out_2.vtu").unlink()


def another(old: str, new: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (run / "out.pvd").write_text((run / "out.pvd").read_text().replace(old, new))

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (moving, "the points move, point 3 at step 2 first: expected points that stay where they are"),
        (changing, r"'rate': it changes in time, in sample \d+ at frame 2 first: `per_frame = true`"),
        (coarser, "step 2 has 19 points and the first one .*: expected one mesh in all steps"),
        (without_a_field, "expected 'heat' in every step but step 2 has none"),
        (without_a_file, "it lists 'out_2.vtu', and there is no such file"),
        (another("0.06", "0.1"), "expected steps of equal length but step 3 takes 0.06 and most take 0.02"),
        (another("out_2", "../run-00/out_2"), "expected mesh files beside it or in folders below"),
        (another("0.04", "nan"), "expected the time of every step, or of none, but one is no finite number"),
        (another("0.04", "0.02"), "expected one mesh for each time but it lists out_1.vtu and out_2.vtu at 0.02"),
    ],
)
def test_series_that_cannot_be_used_have_their_sentence(
    change: Callable[[Path], None], sentence: str, tmp_path: Path
) -> None:
    write_series(tmp_path / "runs", cooling(4, 4))
    problem = described(tmp_path / "runs")
    change(tmp_path / "runs" / "run-03")
    with pytest.raises((ReadError, DataError), match=sentence):
        prepare(problem, tmp_path, tmp_path / "data")
