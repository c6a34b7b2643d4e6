"""Drafts mark what they guess, name what they leave out, and are refused until their guesses are confirmed."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
from click.testing import Result
from numpy.typing import NDArray
from scipy.io import savemat
from scipy.ndimage import gaussian_filter1d
from typer.testing import CliRunner

from export.signature import Signature
from training.commands import app
from training.data.dataset import SampleFile
from training.data.prepare import identity, prepare
from training.data.readers import ReadError, open_file
from training.messages import typed
from training.problems.draft import draft
from training.problems.draft_file import DraftError
from training.problems.problem_file import ProblemFile, read_problem_file
from training.problems.sections import ProblemFileError, unconfirmed

RNG = np.random.default_rng(0)
FLOW = ("diffusivity", "source", "velocity", "concentration")


def smooth(*shape: int, axes: tuple[int, ...]) -> NDArray[Any]:
    """Return values that change little along some axes and are independent along the others."""
    values = RNG.standard_normal(shape)
    for axis in axes:
        values = gaussian_filter1d(values, 3, axis=axis, mode="wrap")
    return values + 3


def described(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["describe", *map(str, arguments)])


def marks(*arguments: object) -> dict[str, str]:
    """Describe files and return the subjects of the marks that have to be confirmed, by the text before them."""
    result = described(*arguments)
    assert result.exit_code == 0, result.exception
    lines = result.stdout.splitlines()
    return {lines[number - 1].partition("  #")[0]: subject for number, subject in unconfirmed(result.stdout).items()}


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "flow.h5", "w") as file:
        for name in FLOW:
            file[name] = smooth(20, 12, 12, axes=(1, 2))
    return tmp_path / "flow.h5"


def test_a_guess_of_outputs_is_confirmed_before_a_training(flow: Path) -> None:
    problem = flow.with_suffix(".toml")
    problem.write_text(described(flow).stdout)
    assert [*marks(flow).values()] == ["outputs"]
    for command in ("fit", "data", "check"):
        refused = CliRunner().invoke(app, [command, str(problem), "--data", str(flow.parent / "data")])
        assert isinstance(refused.exception, ProblemFileError)
        message = str(refused.exception)
        assert "which arrays are outputs (line " in message
        assert f"`make describe FILE={flow} OUTPUTS=NAME`" in message
        assert f"`{typed('describe', str(flow), '--outputs', 'NAME', '--write')}`" in message
        assert all(name in message for name in FLOW)
    number = next(iter(unconfirmed(problem.read_text())))
    assert f"(line {number})" in message
    problem.write_text(re.sub(r"  # guess: outputs.*", "", problem.read_text()))  # it is right
    assert read_problem_file(problem).output_names == ("concentration",)


def in_one(folder: Path) -> None:
    np.savez(folder / "heat.npz", k=smooth(20, 12, 12, axes=(1, 2)), T=smooth(20, 12, 12, axes=(1, 2)))


def in_parts(folder: Path) -> None:
    for number in range(3):
        np.savez(folder / f"run-{number}.npz", k=smooth(8, 12, 12, axes=(1, 2)), T=smooth(8, 12, 12, axes=(1, 2)))


def in_tensors(folder: Path) -> None:
    for name in ("k", "T"):
        np.save(folder / f"{name}.npy", smooth(20, 12, 12, axes=(1, 2)))


def in_splits(folder: Path) -> None:
    for split, samples in (("train_1", 8), ("train_2", 8), ("test", 4)):
        fields = {name: smooth(samples, 12, 12, axes=(1, 2)) for name in ("k", "T")}
        np.savez(folder / f"heat_{split}.npz", **fields)


def in_runs(folder: Path) -> None:
    for number in range(8):
        run = folder / "runs" / str(number)
        run.mkdir(parents=True)
        for name in ("k", "T"):
            np.save(run / f"{name}.npy", smooth(12, 12, axes=(0, 1)))


SETS = {
    in_one: ["heat.npz"],
    in_parts: ["run-*.npz"],
    in_tensors: ["k.npy", "T.npy"],
    in_splits: ["."],
    in_runs: ["runs"],
}


def test_a_sign_that_the_values_have_is_a_guess(tmp_path: Path) -> None:
    values = {"above": smooth(20, 12, 12, axes=(1, 2)) + 20, "below": smooth(20, 12, 12, axes=(1, 2)) - 30}
    np.savez(tmp_path / "signs.npz", **values)
    found = described(tmp_path / "signs.npz", "--outputs", "below").stdout
    assert [line for line in found.splitlines() if line.startswith("positive")] == [
        "positive = true  # guess: every value is above 0; remove it where a value may be 0 or less, which is refused"
    ]


@pytest.mark.parametrize("write", SETS, ids=lambda write: write.__name__)
def test_the_command_that_a_refusal_names_reads_all_data(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["describe", "--write", *SETS[write]]).exit_code == 0
    [problem] = tmp_path.glob("*.toml")
    guessed = tomllib.loads(problem.read_text())
    message = str(CliRunner().invoke(app, ["check", problem.name, "--data", "data"]).exception)
    *_, command = re.findall("`([^`]*)`", message)
    named = shlex.split(command.partition(" -m training ")[2].replace("NAME", "t"))
    assert CliRunner().invoke(app, named).exit_code == 0
    assert [*tmp_path.glob("*.toml")] == [problem]
    assert "guess: outputs" not in problem.read_text()
    assert tomllib.loads(problem.read_text()) == guessed


def test_outputs_are_named_in_a_word(flow: Path) -> None:
    problem = flow.with_suffix(".toml")
    named = described(flow, "--outputs", "velocity, source")
    assert "guess: outputs" not in named.stdout
    problem.write_text(named.stdout)
    found = read_problem_file(problem)
    assert found.output_names == ("source", "velocity")
    assert [one.name for one in found.inputs] == ["concentration", "diffusivity"]
    wrong = described(flow, "--outputs", "temperature")
    assert isinstance(wrong.exception, DraftError)
    assert "velocity [20 x 12 x 12]" in str(wrong.exception)
    assert "got 'temperature'" in str(wrong.exception)


def test_a_mark_is_a_comment_and_no_text_in_quotes() -> None:
    lines = (
        'title = "# guess: outputs"',
        "name = '# guess: time'",
        "[outputs.u] # guess: outputs",
        "step = 1 # guess: x",
    )
    assert unconfirmed("\n".join(lines)) == {3: "outputs"}


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"k": smooth(40, 12, 12, axes=(1, 2))}, set()),
        ({"k": smooth(12, 12, 40, axes=(0, 1))}, {"samples"}),  # samples on the last axis, as in MATLAB
        ({"k": smooth(24, 60, axes=(0,))}, {"samples"}),
        ({"k": smooth(24, 60, axes=(1,))}, set()),
        ({"k": smooth(48, 48, axes=(0, 1))}, {"samples"}),  # one sample alone
        ({"k": RNG.random((32, 32, 200))}, {"samples"}),  # noise: by the shape
        ({"k": RNG.random((200, 32, 32))}, set()),
        ({"k": RNG.random((32, 32, 32)), "n": RNG.random(32)}, set()),
        ({"k": smooth(40, 10, 32, axes=(1, 2))}, {"time"}),
        ({"k": smooth(40, 12, 16, axes=(1, 2)), "t": np.arange(12.0)}, {"time", "inputs"}),
        ({"k": smooth(40, 9, 12, 12, axes=(1, 2, 3))}, {"time"}),
        ({"k": smooth(40, 12, 12, 12, axes=(1, 2, 3))}, set()),
    ],
)
def test_the_sample_axis_and_time_are_asked_for_where_nothing_tells_them(
    arrays: dict[str, NDArray[Any]], expected: set[str], tmp_path: Path
) -> None:
    np.savez(tmp_path / "own.npz", **arrays, u=2 * arrays["k"])
    assert {*marks(tmp_path / "own.npz", "--outputs", "u").values()} == expected


def test_files_of_one_sample_each_are_asked_for(tmp_path: Path) -> None:
    for number in range(12):
        k = RNG.random((24, 24))
        np.savez(tmp_path / f"run_{number:03}.npz", k=k, u=2 * k)
    found = marks(*sorted(tmp_path.glob("run_*.npz")), "--outputs", "u")
    assert found == {'sample = "file"': "samples"}


def test_a_dimension_that_no_name_tells_is_asked_for(tmp_path: Path) -> None:
    for name, expected in (("member", []), ("date", ["samples"])):
        values = (name, "lat", "lon"), RNG.random((20, 8, 9))
        xarray.Dataset({"k": values, "u": values}).to_netcdf(tmp_path / f"{name}.nc", engine="scipy")
        assert [*marks(tmp_path / f"{name}.nc", "--outputs", "u").values()] == expected


def left_out(*arguments: object) -> dict[str, str]:
    """Describe a file and return the arrays that are left out with the reasons."""
    result = described(*arguments)
    assert result.exit_code == 0, result.exception
    return dict(re.findall(r"^# left out: (.*?): (.*)$", result.stdout, re.MULTILINE))


def test_every_array_that_is_left_out_is_named_with_its_reason(tmp_path: Path) -> None:
    k = smooth(20, 8, 9, axes=(1, 2))
    more: dict[str, Any] = {
        "many": RNG.random((20, 40)),
        "x": np.arange(8.0),
        "t": np.arange(30.0),
        "frames": RNG.random((20, 8, 9, 30)),
        "fine": RNG.random((20, 16, 18)),
        "other": RNG.random((7, 8, 9)),
        "phase": np.exp(1j * RNG.random(20)),
        "note": np.array(["m/s"] * 20),
        "gravity": np.array(9.81),
    }
    np.savez(tmp_path / "own.npz", k=k, u=2 * k, nu=RNG.random(20), **more)
    found = left_out(tmp_path / "own.npz", "--outputs", "u")
    assert found.keys() == more.keys()
    reasons = {
        "many": "40 numbers per sample",
        "x": "it may hold the coordinates of an axis of 8 points",
        "t": "it holds times",
        "frames": "is it time?",
        "fine": "shape 20 x 16 x 18 is not that of the grid 8 x 9",
        "other": "it has 7 on its first axis, and the fields have 20 samples",
        "phase": "it holds a complex number per sample",
        "note": "text (<U3)",
        "gravity": "one number for all samples",
    }
    for name, reason in reasons.items():
        assert reason in found[name]
    table = described(tmp_path / "own.npz", "--outputs", "u").stderr
    assert "left out" in table
    assert "parameter" in table


def test_complex_and_structured_variables_of_matlab_are_named(tmp_path: Path) -> None:
    k = 1 + RNG.random((12, 8, 8))
    for compressed in (False, True):
        savemat(tmp_path / "wave.mat", {"k": k, "p": k * np.exp(1j * k), "u": k}, do_compression=compressed)
        assert "p" not in left_out(tmp_path / "wave.mat")
        with open_file(tmp_path / "wave.mat") as file:
            assert file.array("p").read().dtype.kind == "c"  # nothing drops the imaginary part
    savemat(tmp_path / "old.mat", {"p": k[0] + 1j}, format="4")
    with open_file(tmp_path / "old.mat") as file, pytest.raises(ReadError, match="'p' is complex"):
        file.array("p").read()
    with h5py.File(tmp_path / "new.mat", "w") as file:
        file.create_dataset("cells", (2, 1), h5py.ref_dtype)
        file["k"], file["u"] = k.T, k.T
        file["p"] = np.zeros(k.T.shape, [("real", "f8"), ("imag", "f8")])
    found = left_out(tmp_path / "new.mat")
    assert "p" not in found
    assert "cells of MATLAB" in found["cells"]


def test_numbers_may_be_outputs_and_are_asked_for_where_none_are_named(tmp_path: Path) -> None:
    shape = RNG.random((20, 8, 8))
    np.savez(tmp_path / "drag.npz", shape=shape, drag=shape.mean((1, 2)))
    text = described(tmp_path / "drag.npz").stdout
    assert "# guess: outputs: it may be shape or the numbers per sample (drag)" in text
    text = described(tmp_path / "drag.npz", "--outputs", "drag").stdout
    assert "[outputs.drag]\nkey" in text
    assert "scalar = true" in text


def test_guessed_axes_are_said_to_be_guessed_until_a_person_removes_the_comment(flow: Path) -> None:
    problem = flow.with_suffix(".toml")
    text = re.sub(r"  # guess: outputs.*", "", described(flow).stdout)
    text = text.replace('boundary = "open"  # guess: say "wall" or "periodic" if you know it', 'boundary = "wall"', 1)
    problem.write_text(text)
    found = read_problem_file(problem)
    assert [axis.guessed for axis in found.axes] == [("length", "points"), ("length", "boundary", "points")]
    described_problem = found.describe((12, 12), 16)
    assert described_problem.boundary == "row: walls; column: open ends (guessed)"
    assert described_problem.points.startswith("row: x_i = (i + 1/2) 1/n (guessed); column:")
    card = Signature.of(described_problem).grid.model_dump()
    assert card["guessed"] == ("row.length", "row.points", "column.length", "column.boundary", "column.points")
    assert identity(found) == identity(read_unmarked(problem))  # whose prepared samples are the same


def read_unmarked(problem: Path) -> ProblemFile:
    problem.write_text(re.sub(r"  # guess:.*", "", problem.read_text()))
    return read_problem_file(problem)


def test_what_changes_in_time_and_is_no_output_is_known_in_advance(tmp_path: Path) -> None:
    """A forcing beside the states, and a number per frame; the draft can be used once its guesses are confirmed."""
    rng = np.random.default_rng(0)
    f = rng.standard_normal((60, 10, 1)) * np.sin(np.linspace(0, 6.28, 32, endpoint=False))
    u = np.concatenate([np.zeros((60, 1, 32)), np.cumsum(f, axis=1)[:, :-1]], axis=1) + rng.standard_normal((60, 1, 1))
    arrays = {"u": u, "f": f, "power": rng.uniform(1, 2, (60, 10)), "t": np.arange(10) / 10}
    np.savez(tmp_path / "forcing.npz", **arrays)
    for outputs in (["u"], []):
        with open_file(tmp_path / "forcing.npz") as file:
            made = draft(file, [file.path], outputs=outputs)
        forced = {one.name: one.role for one in made.tensors if one.per_frame}
        assert forced == {"f": "inputs", "power": "parameters"}
        assert [one.name for one in made.of("outputs")] == ["u"]
        assert "per_frame = true" in made.toml()
        assert "[inputs.f]  # guess: inputs: it changes in time" in made.toml()
        assert ("[outputs.u]  # guess: outputs" in made.toml()) == (not outputs)
    (tmp_path / "forcing.toml").write_text(re.sub(r"  # guess: (time|outputs).*", "", made.toml()))
    with pytest.raises(ProblemFileError, match=r"which inputs are known in advance .* \(lines .*OUTPUTS="):
        read_problem_file(tmp_path / "forcing.toml")
    (tmp_path / "forcing.toml").write_text(re.sub(r"  # guess:.*", "", made.toml()))
    problem = read_problem_file(tmp_path / "forcing.toml")
    assert problem.timed == {"u", "f", "power"}
    samples = SampleFile(prepare(problem, tmp_path, tmp_path / "data"), problem)
    assert samples.file["power"].shape == (60, 10)


def test_values_beyond_float32_have_a_draft(tmp_path: Path) -> None:
    fields = np.random.default_rng(0).random((40, 16, 16)) + 0.5
    np.savez(tmp_path / "huge.npz", conductivity=fields, temperature=1e39 * fields)
    made = CliRunner().invoke(app, ["describe", str(tmp_path / "huge.npz"), "--outputs", "temperature"])
    assert made.exit_code == 0
    assert "offset" not in made.stdout


def test_a_field_of_booleans_may_have_equal_edges(tmp_path: Path) -> None:
    solid = np.zeros((20, 16, 17), bool)
    solid[:, 4:9, 5:8] = True
    solid[:, ::3, [0, -1]] = True
    np.savez(tmp_path / "flow.npz", solid=solid, u=RNG.random(solid.shape))
    text = described(tmp_path / "flow.npz", "--outputs", "u").stdout
    assert "[inputs.solid]" in text
    assert "the first and the last points along" not in text  # those of u differ
    np.savez(tmp_path / "flow.npz", solid=solid, u=solid)
    assert "the first and the last points along column" in described(tmp_path / "flow.npz", "--outputs", "u").stdout
