"""Files as programs of the field write them, which say less than a person who knows them: right values, or a mark."""

from __future__ import annotations

import contextlib
import json
from contextlib import ExitStack
from glob import glob
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
import xarray
from numpy.typing import NDArray
from pyarrow import feather, parquet
from scipy.io import savemat

from tests.drafts import read, values
from training.data.readers import open_file
from training.data.readers.sets import open_set
from training.problems.draft import draft
from training.problems.draft_file import Draft, DraftError
from training.problems.sections import DataError, unconfirmed
from training.problems.wire_names import wire_name

RNG = np.random.default_rng(0)
SAMPLES = 12
K = 1 + RNG.random((SAMPLES, 8, 9))
NU = RNG.uniform(0.1, 1, SAMPLES)
FRAMES = RNG.random((SAMPLES, 1, 8, 9)) * np.linspace(1, 2, 6)[:, np.newaxis, np.newaxis]


def drafted(folder: Path, files: str, *outputs: str) -> Draft:
    """Describe the files of a pattern."""
    with ExitStack() as stack:
        found = open_set(stack, [Path(each) for each in sorted(glob(str(folder / files)))])  # noqa: PTH207 -- as typed
        return draft(found.file, found.files, found.folder, outputs, found.runs)


def numbers_of_runs(folder: Path) -> None:
    """Write a file per run, with what a solver records of a run among its attributes."""
    for number in range(SAMPLES):
        with h5py.File(folder / f"run_{number:02}.h5", "w") as file:
            file.attrs.update(nu=NU[number], seed=17 * number, created=1.7e9 + number, dt=0.01, Re=100 + number)
            file.attrs.update(git_hash="0af3", wallTime=3.0 + number)
            file["k"], file["u"] = K[number], NU[number] * K[number]


def test_records_of_a_run_are_no_parameters_and_other_attributes_are_marked(tmp_path: Path) -> None:
    numbers_of_runs(tmp_path)
    made = drafted(tmp_path, "run_*.h5", "u")
    assert {one.name: bool(one.guess) for one in made.of("parameters")} == {"nu": True, "re": True}
    assert {*made.left_out} == {"seed", "created", "wallTime", "dt"}
    assert "[parameters.seed]" in made.left_out["seed"]
    assert {*unconfirmed(made.toml()).values()} == {"samples"}
    np.testing.assert_allclose(values(made, tmp_path)["nu"], NU, rtol=1e-6)


def test_a_record_of_a_run_is_an_output_where_it_is_named_as_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", k=K, iterations=np.arange(SAMPLES) % 5, tolerance=np.full(SAMPLES, 1e-6))
    made = drafted(tmp_path, "a.npz", "iterations")
    assert [one.name for one in made.of("outputs")] == ["iterations"]
    assert made.left_out == {"tolerance": "it is 1e-06 for all samples"}


def test_the_step_that_a_solver_records_is_that_of_frames_by_a_guess(tmp_path: Path) -> None:
    for number in range(SAMPLES):
        run = tmp_path / "runs" / f"case{number:02}"
        run.mkdir(parents=True)
        np.save(run / "u.npy", FRAMES[number])
        (run / "case.json").write_text(json.dumps({"vel_in": NU[number], "time_step": 0.1, "seed": number}))
    made = drafted(tmp_path, "runs", "u")
    assert made.step == 0.1
    assert "solver" in made.guesses["step"]
    assert [one.name for one in made.of("parameters")] == ["vel_in"]


# One array alone, and the data of DeepONets


@pytest.mark.parametrize("last", [False, True])
def test_channels_of_a_lone_array_are_fields_after_they_are_confirmed(last: bool, tmp_path: Path) -> None:
    stacked = np.stack([K, 2 * K, K - 5], -1 if last else 1)
    np.save(tmp_path / "stacked.npy", stacked)
    made = drafted(tmp_path, "stacked.npy")
    assert {*unconfirmed(made.toml()).values()} == {"outputs"}
    assert [one.name for one in made.of("outputs")] == ["array_2"]
    found = values(made, tmp_path)
    for name, expected in {"array_0": K, "array_1": 2 * K, "array_2": K - 5}.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-6)


def with_hole(values: NDArray[np.float64], fill: float) -> NDArray[np.float64]:
    found = values.copy()
    found[:, 2:5, 3:6] = fill
    return found


@pytest.mark.parametrize("last", [False, True])
def test_what_is_nan_in_any_channel_of_a_lone_array_is_outside(last: bool, tmp_path: Path) -> None:
    together = np.stack([K, 2 * K, with_hole(3 * K, np.nan)], axis=-1 if last else 1)
    np.save(tmp_path / "a.npy", together)
    made = drafted(tmp_path, "a.npy")
    assert (made.mask, "mask" in made.guesses) == ('nan = "array"', True)
    found = values(made, tmp_path)
    np.testing.assert_array_equal(found["inside"] == 0, with_hole(K, 0) == 0)
    np.testing.assert_allclose(found["array_2"], with_hole(3 * K, 0), rtol=1e-6)


def test_frames_of_a_lone_array_are_asked_for_and_may_have_components(tmp_path: Path) -> None:
    flow = np.stack([FRAMES, 2 * FRAMES], 2)  # [sample, time, component, row, column]
    np.save(tmp_path / "flow.npy", flow)
    made = drafted(tmp_path, "flow.npy")
    assert {*unconfirmed(made.toml()).values()} == {"time"}
    np.testing.assert_allclose(values(made, tmp_path)["array"], flow, rtol=1e-6)


@pytest.mark.parametrize("axis", [2, -1])
def test_frames_of_a_lone_array_may_have_one_channel(axis: int, tmp_path: Path) -> None:
    lines = FRAMES[:, :, 0]  # [sample, time, point]
    np.save(tmp_path / "lines.npy", np.expand_dims(lines, axis))
    np.testing.assert_allclose(values(drafted(tmp_path, "lines.npy"), tmp_path)["array"], lines, rtol=1e-6)


def test_a_lone_series_of_frames_is_refused_with_the_lines_that_cut_it(tmp_path: Path) -> None:
    waves = np.sin(np.linspace(0, 6, 60)[:, np.newaxis, np.newaxis] + np.linspace(0, 3, 72).reshape(8, 9))
    np.save(tmp_path / "waves.npy", waves)
    with pytest.raises(DraftError, match=r"a\[:60\].reshape\(10, 6, 8, 9\)\), a = np.load\('waves.npy'\)"):
        drafted(tmp_path, "waves.npy")


SENSORS = RNG.standard_normal((SAMPLES, 20))
PLACES = RNG.random((15, 2))
RESPONSES = SENSORS @ RNG.random((20, 15))


@pytest.mark.parametrize(
    ("trunk", "names"),
    [
        (np.linspace(0, 2, 15)[:, np.newaxis], ("branch", "trunk", "output")),
        (PLACES, ("branch", "trunk", "output")),
        (PLACES, ("X0", "X1", "y")),
        (np.tile(PLACES, (SAMPLES, 1, 1)), ("branch", "trunk", "output")),
    ],
)
def test_a_branch_is_a_parameter_and_a_trunk_says_where_outputs_are(
    trunk: NDArray[np.float64], names: tuple[str, str, str], tmp_path: Path
) -> None:
    np.savez(tmp_path / "deeponet.npz", **dict(zip(names, (SENSORS, trunk, RESPONSES), strict=True)))
    made = drafted(tmp_path, "deeponet.npz")
    found = values(made, tmp_path)
    np.testing.assert_allclose(found[made.of("parameters")[0].name], SENSORS, rtol=1e-6)
    np.testing.assert_allclose(found[names[2]], RESPONSES, rtol=1e-6)
    if trunk.shape[-1] == 1:
        assert made.axes["point"]["length"] == 2
    else:
        np.testing.assert_allclose(found["coordinates"][-1], PLACES, rtol=1e-6)


def test_objects_of_deepxde_are_refused_with_the_lines_that_save_them(tmp_path: Path) -> None:
    objects = np.empty(2, object)
    objects[:] = [SENSORS, PLACES]
    np.savez(tmp_path / "train.npz", X=objects, y=RESPONSES)
    with pytest.raises(DraftError, match="never unpickled") as refused:
        drafted(tmp_path, "train.npz")
    lines = str(refused.value).partition("arrays of numbers, ")[2]
    with contextlib.chdir(tmp_path):
        known: dict[str, Any] = {"np": np}
        exec(lines, known)  # noqa: S102 -- the lines that the message shows
        known["d"].close()
    with np.load(tmp_path / "arrays.npz") as saved:
        assert {name: saved[name].shape for name in saved} == {"X0": (12, 20), "X1": (15, 2), "y": (12, 15)}


@pytest.mark.parametrize("suffix", ["parquet", "feather", "arrow"])
def test_columns_of_numbers_and_of_lists_are_arrays(suffix: str, tmp_path: Path) -> None:
    nested = [[row.tolist() for row in sample] for sample in K]
    table = pa.table({"nu": NU, "k": nested, "u": [*RESPONSES], "note": ["a"] * SAMPLES, "uneven": [[1.0]] * 11 + [[]]})
    pairs = pa.array([[("a", 1.0)]] * SAMPLES, pa.map_(pa.string(), pa.float64()))
    table = table.append_column("pairs", pairs)
    path = tmp_path / f"runs.{suffix}"
    if suffix == "parquet":
        parquet.write_table(table, path)
    elif suffix == "feather":
        feather.write_feather(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    with open_file(path) as file:
        assert {*file.left_out} == {"note", "uneven", "pairs"}
        for name, expected in {"nu": NU, "k": K, "u": RESPONSES}.items():
            np.testing.assert_array_equal(file.arrays[name].read(), expected)


# Splits of a file, by the names of its arrays, and samples on the last axis


def turned(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.moveaxis(values, 0, -1)


SMOOTH = np.sin(np.linspace(0, 3, 72).reshape(8, 9) + RNG.uniform(0, 6, (SAMPLES, 1, 1))) * RNG.random((SAMPLES, 1, 1))


@pytest.mark.parametrize(("test", "layout"), [(3, "first"), (3, "last"), (6, "last"), (3, "new"), (3, "structs")])
def test_arrays_of_splits_are_one_whichever_axis_counts_samples(test: int, layout: str, tmp_path: Path) -> None:
    splits = {"train": slice(0, -test), "test": slice(-test, None)}
    arrays = {
        f"{name}_{split}": turned(each[part]) if layout != "first" else each[part]
        for split, part in splits.items()
        for name, each in {"x": SMOOTH, "y": 2 * SMOOTH}.items()
    }
    if layout == "new":  # version 7.3
        with h5py.File(tmp_path / "all.mat", "w", userblock_size=512) as file:
            for name, each in arrays.items():
                file[name] = each.T
    elif layout == "structs":
        savemat(tmp_path / "all.mat", {split: {name: arrays[f"{name}_{split}"] for name in "xy"} for split in splits})
    else:
        savemat(tmp_path / "all.mat", arrays)
    made = drafted(tmp_path, "all.mat", "y")
    assert made.test == test
    found = values(made, tmp_path)
    for name, expected in {"x": SMOOTH, "y": 2 * SMOOTH}.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-6)


def test_a_problem_file_may_name_the_array_of_one_split(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x_train=K, y_train=2 * K, x_test=K[:3] + 9, y_test=2 * K[:3])
    made = drafted(tmp_path, "all.npz", "y").toml()
    text = made.replace('key = "x"', 'key = "x_train"').replace('key = "y"', 'key = "y_train"')
    _, samples = read(text.replace("test = 3", "test = 2"), tmp_path)
    assert sum(samples.counts) == SAMPLES


def test_names_that_hold_a_split_by_chance_stay(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", strain=K, stress=2 * K, test_load=NU)
    made = drafted(tmp_path, "a.npz", "stress")
    assert [one.name for one in made.tensors] == ["strain", "stress", "test_load"]
    for split in ("train", "test"):
        np.savez(tmp_path / f"{split}.npz", strain=K, stress=2 * K)
        with open_file(tmp_path / f"{split}.npz") as file:
            assert [*file.arrays] == ["strain", "stress"]
    np.savez(tmp_path / "train.npz", xtrain=K, ytrain=NU)
    with open_file(tmp_path / "train.npz") as file:
        assert [*file.arrays] == ["x", "y"]


def test_samples_of_all_files_of_a_split_are_counted_on_the_axis_that_counts_them(tmp_path: Path) -> None:
    for name, part in {"train_1": slice(0, 5), "train_2": slice(5, 10), "test": slice(10, 12)}.items():
        savemat(tmp_path / f"d_{name}.mat", {"x": turned(SMOOTH[part]), "y": turned(2 * SMOOTH[part])})
    made = drafted(tmp_path, "d_*.mat", "y")
    assert (made.sample, made.test) == ("last", 2)


def test_as_many_samples_on_the_last_axis_as_points_are_asked_for(tmp_path: Path) -> None:
    wave = np.sin(np.linspace(0, 3, 144).reshape(12, 12) + RNG.uniform(0, 6, (12, 1, 1)))
    savemat(tmp_path / "cube.mat", {"x": turned(wave), "y": turned(2 * wave)})
    made = drafted(tmp_path, "cube.mat", "y")
    assert {*unconfirmed(made.toml()).values()} == {"samples"}
    np.testing.assert_allclose(values(made, tmp_path)["x"], wave, rtol=1e-5, atol=1e-6)


# Dedalus


# Names, and numbers that are no values


def test_greek_names_are_spelled_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "λ.npz", **{"κ": K, "Δt": NU, "∂u": 2 * K})
    made = drafted(tmp_path, "λ.npz", "∂u")
    assert made.name == "lambda"
    assert [one.name for one in made.tensors] == ["kappa", "u", "delta_t"]
    np.testing.assert_allclose(values(made, tmp_path)["kappa"], K, rtol=1e-6)


def test_fields_of_a_cloud_with_one_name_on_the_wire_are_numbered(tmp_path: Path) -> None:
    points = {"xy": RNG.random((SAMPLES, 72, 2)), "Δ": K.reshape(SAMPLES, 72), "delta": 2 * K.reshape(SAMPLES, 72)}
    np.savez(tmp_path / "cloud.npz", **points, u=K.reshape(SAMPLES, 72), delta_2=3 * K.reshape(SAMPLES, 72))
    made = drafted(tmp_path, "cloud.npz", "u")
    assert [one.name for one in made.tensors] == ["delta", "delta_3", "u", "delta_2"]
    np.testing.assert_allclose(values(made, tmp_path)["delta_3"], points["delta"], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("κ", "kappa"),
        ("Δt", "delta_t"),
        ("pressão", "pressao"),
        ("λ₁ (m)", "lambda_1_m"),
        ("U", "u"),
        ("2nd", "field_2nd"),
        ("流速", "field"),
    ],
)
def test_a_name_of_a_file_becomes_one_of_the_wire(name: str, made: str) -> None:
    assert wire_name(name) == made


def test_frames_that_are_saved_backwards_are_refused(tmp_path: Path) -> None:
    times = {"time": ("time", np.arange(6)[::-1] / 10)}
    xarray.Dataset({"u": (("run", "time", "y", "x"), FRAMES)}, times).to_netcdf(tmp_path / "back.nc")
    with pytest.raises(DataError, match=r"back.nc: its times descend, from 0\.5 to 0; .* in that order"):
        values(drafted(tmp_path, "back.nc", "u"), tmp_path)


def test_a_table_has_units_in_its_names_and_nan_in_its_empty_cells(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", k=SMOOTH, u=2 * SMOOTH)
    rows = [f"{NU[row]},{'NA' if row == 4 else row},x,{row}" for row in range(SAMPLES)]
    (tmp_path / "b.csv").write_text("\n".join(["nu [m^2/s],Re,note,log(T)", *rows]))
    made = drafted(tmp_path, "[ab].*", "u")
    assert {one.name: one.array.units for one in made.of("parameters")} == {"nu": "m^2/s", "re": "", "log_t": ""}
    assert made.left_out == {"b.csv: note": "a column that does not hold numbers alone"}
    with pytest.raises(DataError, match=r"b\.csv: 'Re' is nan at sample 4; expected"):
        values(made, tmp_path)
    with open_file(tmp_path / "b.csv") as file:
        np.testing.assert_allclose(file.array("nu [m^2/s]").read(), NU)


def test_a_point_of_a_period_that_is_stored_twice_and_numbers_of_kinds_are_said(tmp_path: Path) -> None:
    wave = np.concatenate([SMOOTH, SMOOTH[:, :, :1]], 2)
    material = RNG.integers(0, 4, wave.shape)
    material[:, :, -1] = material[:, :, 0]
    np.savez(tmp_path / "ring.npz", material=material, u=wave)
    made = drafted(tmp_path, "ring.npz", "u")
    assert [each.partition(" have")[0] for each in made.remarks if "periodic" in each] == [
        "the first and the last points along column"
    ]
    assert any(each.startswith("material is 0, 1, 2, 3 alone") for each in made.remarks)


# Sets of files


def test_numbers_in_the_names_of_files_are_asked_about(tmp_path: Path) -> None:
    for viscosity in (0.1, 0.01):
        with h5py.File(tmp_path / f"1D_Burgers_Sols_Nu{viscosity}.hdf5", "w") as file:
            file["tensor"], file["x-coordinate"] = viscosity * FRAMES[:, :, 0], np.linspace(0.05, 0.85, 9)
            file["nu"] = viscosity  # which is that of no sample
    made = drafted(tmp_path, "*.hdf5")
    assert "names have other numbers, 0.01, 0.1" in made.guesses["files"]
    assert {*unconfirmed(made.toml()).values()} == {"samples"}
    assert "nu" in made.left_out


def test_settings_beside_the_data_are_named(tmp_path: Path) -> None:
    for number in range(3):
        run = tmp_path / "runs" / f"nu_{NU[number]:.3f}"
        run.mkdir(parents=True)
        np.savez(run / "data.npz", k=K[number], u=2 * K[number])
        (run / "params.yaml").write_text(f"nu: {NU[number]}\n")
    made = drafted(tmp_path, "runs", "u")
    assert "save them as .json" in made.left_out["params.yaml"]
    assert "names have other numbers" in made.guesses["sample"]


def test_splits_of_several_files_with_all_tensors_in_each_are_in_their_order(tmp_path: Path) -> None:
    for split, part in {"train": slice(0, 4), "test": slice(4, 6)}.items():
        (tmp_path / split).mkdir()
        for name, first in {"bubbles": 0, "gliders": 6}.items():
            chosen = slice(first + part.start, first + part.stop)
            np.savez(tmp_path / split / f"{name}.npz", k=K[chosen], u=2 * K[chosen])
    made = drafted(tmp_path, "*/*.npz", "u")
    assert made.test == 4
    order = [0, 1, 2, 3, 6, 7, 8, 9, 4, 5, 10, 11]
    np.testing.assert_allclose(values(made, tmp_path)["k"], K[order], rtol=1e-6)


# Meshes of OpenFOAM
