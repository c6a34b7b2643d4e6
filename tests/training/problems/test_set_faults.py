"""What data sets leave open or lack: refused, left out or asked about, by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
from numpy.typing import NDArray

from tests.drafts import described, read
from tests.training.problems.test_data_sets import NU, RNG, SAMPLES, TWICE, XY, K, cfdbench, vtk_array
from training.data.readers import LazyArray, ReadError, open_file
from training.data.readers.hdf5 import unpacked
from training.problems.draft import draft
from training.problems.draft_file import DraftError
from training.problems.sections import ProblemFileError


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
