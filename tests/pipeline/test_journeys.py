"""From a file of simulations to a model by the commands that a person types, for every format."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from click.testing import Result
from numpy.typing import NDArray
from safetensors.numpy import load_file
from typer.testing import CliRunner

from training.commands import app as training
from training.messages import UserError

Arrays = dict[str, NDArray[Any]]

ROOT = Path(__file__).parents[2]
DUMMY = ROOT / "tests" / "fixtures" / "own_data" / "the_well_dummy.hdf5"
SMALL = ("fit.epochs=1", "operator.layers=1", "operator.channels=8", "operator.detail=4", "operator.modes=4")
SAMPLES = 12


def command(app: Any, *arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def heat(samples: int = SAMPLES, sides: tuple[int, ...] = (48, 64)) -> Arrays:
    rng = np.random.default_rng(0)
    k, f, wind = rng.uniform(1, 2, (samples, *sides)), rng.standard_normal((samples, *sides)), rng.random(samples)
    return {"k": k, "f": f, "wind": wind, "T": f / k + wind[:, None, None] + 3}


def write_hdf5(path: Path, arrays: Arrays) -> None:
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            file[name] = value


def vectors(folder: Path) -> str:
    rng = np.random.default_rng(1)
    velocity = rng.standard_normal((SAMPLES, 2, 60, 90))
    np.savez(folder / "flow.npz", x=velocity, y=velocity[:, ::-1] + 2)
    return "flow.npz"


def matlab(folder: Path) -> str:
    """Write HDF5 whose axes are reversed, behind a header of 512 bytes, as MATLAB's `save -v7.3` does."""
    with h5py.File(folder / "run.mat", "w", userblock_size=512) as file:
        for name, value in heat(sides=(16, 20)).items():
            file.create_dataset(name, data=value.T).attrs["MATLAB_class"] = np.bytes_("double")
    return "run.mat"


def pdebench(folder: Path) -> str:
    arrays = heat(sides=(16, 16))
    with h5py.File(folder / "2D_DarcyFlow_beta1.0_Train.hdf5", "w") as file:
        file["nu"], file["tensor"] = arrays["k"].astype("f4"), arrays["T"][:, None].astype("f4")
        file["x-coordinate"] = file["y-coordinate"] = (np.arange(16, dtype="f4") + 0.5) / 16
        file.attrs["beta"] = 1.0
    return "2D_DarcyFlow_beta1.0_Train.hdf5"


def the_well(folder: Path) -> str:
    """Write six files of two trajectories: that of The Well's own tool, with other values in each."""
    for part in range(6):
        copy = folder / f"well-{part}.hdf5"
        copy.write_bytes(DUMMY.read_bytes())
        with h5py.File(copy, "r+") as file:
            for dataset in (file["t0_fields/constant_field"], file["t1_fields/field"]):
                dataset[...] = np.random.default_rng(part).standard_normal(dataset.shape)
    return "well-*.hdf5"


def neuraloperator(folder: Path) -> str:
    wheels = [*(ROOT / ".third_party").glob("neuraloperator-0.3.0-*.whl")]
    if not wheels:
        pytest.skip("no neuraloperator-0.3.0-*.whl in .third_party: `make test` downloads it")
    with zipfile.ZipFile(wheels[0]) as wheel:
        [member] = [name for name in wheel.namelist() if name.endswith("darcy_test_16.pt")]
        (folder / "darcy_test_16.pt").write_bytes(wheel.read(member))
    return "darcy_test_16.pt"


def zarr_store(folder: Path) -> str:
    group = zarr.open_group(folder / "store.zarr", mode="w")
    for name, value in heat(sides=(16, 20)).items():
        group.create_array(name, data=value, chunks=(2, *value.shape[1:]))
    return "store.zarr"


def hdf5(folder: Path) -> str:
    write_hdf5(folder / "heat.h5", heat())
    return "heat.h5"


JOURNEYS: dict[str, tuple[Callable[[Path], str], set[str]]] = {
    "hdf5": (hdf5, {"f", "k", "wind", "t"}),
    "npz": (vectors, {"x", "y"}),
    "matlab 7.3": (matlab, {"f", "k", "wind", "t"}),
    "pdebench": (pdebench, {"nu", "tensor"}),
    "the well": (the_well, {"constant_field", "field_first", "field", "a", "b", "time_varying_scalar"}),
    "neuraloperator": (neuraloperator, {"x", "y"}),
    "zarr": (zarr_store, {"f", "k", "wind", "t"}),
}
#: Which array is the output; the other layouts say it themselves.
NAMED = {"hdf5": "T", "npz": "y", "matlab 7.3": "T", "zarr": "T"}
#: An export reads a checkpoint, which does not know what file its samples came from: `test_several_tensors.py` exports
#: models of fields and vectors, `test_points.py` those of described files, and `test_trajectories.py` those of frames.
#: A training reads the samples that a file has become, whatever its format: fields with numbers, and trajectories.
TRAINED = {"hdf5", "the well"}
BOUNDARIES = 'boundary = "wall"\n', 'boundary = "periodic"\n'


@pytest.mark.parametrize("name", JOURNEYS)
def test_a_file_is_described_and_its_samples_are_ready(name: str, tmp_path: Path) -> None:
    (tmp_path / "problem.toml").write_text(described(name, tmp_path))
    checked = command(training, "check", tmp_path / "problem.toml", "--data", tmp_path / "data")
    assert checked.exit_code == 0, checked.output


def described(name: str, folder: Path) -> str:
    """Write the files of a journey, and return the problem file that the command writes for them."""
    write, _ = JOURNEYS[name]
    files = sorted(folder.glob(write(folder)))
    done = command(training, "describe", *files, *(("--outputs", NAMED[name]) if name in NAMED else ()))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(
    "name", [name if name in TRAINED else pytest.param(name, marks=pytest.mark.deep) for name in JOURNEYS]
)
def test_a_file_becomes_a_model(name: str, tmp_path: Path) -> None:
    tensors, problem = JOURNEYS[name][1], described(name, tmp_path)
    if name == "hdf5":  # its author knows the boundaries, which the file does not say
        for boundary in BOUNDARIES:
            problem = re.sub(r'boundary = "open".*\n', boundary, problem, count=1)
        assert all(boundary in problem for boundary in BOUNDARIES)
    (tmp_path / "problem.toml").write_text(problem)
    sizes = [change.replace("operator.", "operator.step.") if "[time]" in problem else change for change in SMALL]
    options = [part for change in sizes for part in ("--set", change)]
    folder = tmp_path / "own-tiny"
    fit = ("fit", tmp_path / "problem.toml", "--preset", "tiny", "--data", tmp_path / "data", "--out", folder)
    trained = command(training, *fit, *options)
    assert trained.exit_code == 0, trained.output
    assert (folder / "report.html").is_file()
    assert load_file(folder / "examples.safetensors").keys() == tensors


PROBLEM = """
name = "heat"
[data]
files = ["FILE"]
[inputs.k]
[inputs.f]
[parameters.wind]
[outputs.t]
key = "T"
[axes.row]
[axes.column]
"""


def spoilt(name: str, index: tuple[int, ...], value: float) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        arrays = heat(40, (6, 8))
        arrays[name][index] = value
        write_hdf5(path, arrays)

    return write


def changed(name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        arrays = heat(480, (6, 8))
        write_hdf5(path, arrays | {name: change(arrays[name])})

    return write


def truncated(path: Path) -> None:
    write_hdf5(path, heat())
    path.write_bytes(path.read_bytes()[:4000])


def pickled(path: Path) -> None:
    np.save(path, np.array([{"k": 1}], dtype=object), allow_pickle=True)


BAD: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "wrong name": ("heat.h5", lambda path: write_hdf5(path, {"kappa": np.ones((4, 6, 8))}), "an array 'k' but found"),
    "nan": ("heat.h5", spoilt("f", (17, 3, 5), np.nan), r"'f' is nan at sample 17, index \(3, 5\)"),
    "zero output": ("heat.h5", spoilt("T", (21,), 0.0), "'T' is zero everywhere in sample 21"),
    "one output fewer": ("heat.h5", changed("T", lambda t: t[:479]), "'T' as in 'k' but found 479 and 480"),
    "strings": ("heat.h5", changed("k", lambda k: np.full(k.shape, b"a")), r"'k' holds \|S1; expected real numbers"),
    "truncated": ("heat.h5", truncated, "an HDF5 file, but it is damaged"),
    "pickled": ("heat.npy", pickled, "never unpickled"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_file_is_refused_before_any_training(fault: str, tmp_path: Path) -> None:
    name, write, message = BAD[fault]
    write(tmp_path / name)
    (tmp_path / "heat.toml").write_text(PROBLEM.replace("FILE", name))
    failed = command(training, "fit", tmp_path / "heat.toml", "--data", tmp_path / "data", "--out", tmp_path / "run")
    assert isinstance(failed.exception, UserError)
    assert re.search(f"{re.escape(name)}.*{message}", str(failed.exception))
    assert not (tmp_path / "run").exists()
