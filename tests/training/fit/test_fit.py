"""Training runs: they learn, they survive a kill, and the same seed gives the same weights."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import torch
from click.testing import Result
from safetensors.torch import load_file
from typer.testing import CliRunner

from training import calibration, checkpoint, recipes
from training import recipe as config
from training.commands import app
from training.data.views import read
from training.files import read_json, write_json
from training.fit import run_folder as runlog
from training.fit.run import averaged, finish, fit, train, workload
from training.fit.run_folder import RunError, RunFolder, StateIO
from training.metrics.fields import relative_l2
from training.problems.problem import PROBLEMS

FILES = {checkpoint.WEIGHTS, checkpoint.CONFIG, checkpoint.CARD, checkpoint.EXAMPLES, calibration.FILE, "metrics.csv"}
#: Changes of the tiny recipes, which the deep suite trains as they are: networks learn with these, too. Smaller ones of
#: `darcy` and `burgers` learn in `tests/pipeline/test_attention_types.py`.
SMALLER = ("data.mesh=9", "data.grids=[9]", "operator.layers=1")
WHOLE = ("darcy", "burgers", "darcy_inverse", "poisson")
#: A classical solver makes them, and is measured on the test fields, too, which takes longer than to train.
FEW = ("data.test=2", "data.train=24")
EPOCHS = [word for each in ("fit.epochs=6", "fit.average=0.5", *FEW) for word in ("--set", each)]


def command(*arguments: object) -> Result:
    """Run a command of `python -m training` in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    recipe = recipes.read(recipes.find("burgers-tiny"), EPOCHS[1::2])
    return train(recipe, tmp_path_factory.mktemp("runs") / f"my [{recipe.name}]", data)


@pytest.mark.parametrize(
    ("model", "changes"),
    [("poisson", SMALLER), *(pytest.param(name, (), marks=pytest.mark.deep) for name in WHOLE)],
    ids=lambda value: value if isinstance(value, str) else "smaller" if value else "whole",
)
def test_a_tiny_run_beats_the_mean_field(model: str, changes: tuple[str, ...], data: Path, tmp_path: Path) -> None:
    recipe = recipes.read(recipes.find(f"{model}-tiny"), [*changes])
    found = checkpoint.load(train(recipe, tmp_path, data))
    path, points = workload(recipe, data).prepare(), recipe.data.grids[0]
    counts = {"train": recipe.data.train, "test": recipe.data.test}
    fields = {
        split: read(path, split, count, points, problem=PROBLEMS[model]).targets for split, count in counts.items()
    }
    mean, truth = torch.from_numpy(fields["train"]).mean(0), torch.from_numpy(fields["test"])
    [row] = [row for row in found.card.errors if set(row["grid"]) == {points} and "noise" not in row]
    assert row["relative_l2"] < 0.7 * relative_l2(mean.expand_as(truth), truth).mean()


def test_a_killed_run_resumes_to_the_same_weights(finished: Path, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    fitting = [sys.executable, "-m", "training", "fit", "burgers-tiny", *EPOCHS, "--out", folder, "--data", data]
    with subprocess.Popen(fitting, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for_epochs(folder, 2)
        process.send_signal(signal.SIGSTOP)
        second = command(*fitting[3:])
        process.send_signal(signal.SIGKILL)
    assert "expected no other command that writes there but one is running" in str(second.exception)
    assert not (folder / checkpoint.WEIGHTS).exists()
    train(recipes.read(recipes.find("burgers-tiny"), EPOCHS[1::2]), folder, data, resume=True)
    assert [int(row["epoch"]) for row in runlog.read_log(folder / "metrics.csv")] == list(range(6))
    expected, found = (load_file(run / checkpoint.WEIGHTS) for run in (finished, folder))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert {each.name for each in folder.iterdir()} == FILES


def wait_for_epochs(folder: Path, epochs: int) -> None:
    deadline = time.monotonic() + 120
    while len(runlog.read_log(folder / "metrics.csv")) < epochs:
        assert time.monotonic() < deadline, f"no {epochs} epochs within two minutes"
        time.sleep(0.05)


def test_an_interrupted_run_does_not_go_on_with_another_recipe(data: Path, tmp_path: Path) -> None:
    recipe = recipes.read(recipes.find("burgers-tiny"), ["fit.epochs=2"])
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    with pytest.raises(config.RecipeError, match=r"found another recipe, fit\.epochs 2 instead of 3: go on"):
        train(recipes.read(recipes.find("burgers-tiny"), ["fit.epochs=3"]), tmp_path, data, resume=True)


def test_a_finished_run_is_kept_and_says_how_to_train_anew(finished: Path, data: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in finished.iterdir()}
    again = ("fit", "burgers-tiny", *EPOCHS, "--out", finished, "--data", data, "--resume")
    repeated = command(*again)
    assert repeated.exit_code == 0, repeated.output
    assert f"finished; `rm -r '{finished}'`, or" in repeated.stderr
    assert "without --resume" in repeated.stderr
    other = command(*again, "--set", "fit.clip=2")
    assert isinstance(other.exception, config.RecipeError)
    assert "holds the finished run of another recipe, fit.clip 1.0 instead of 2.0: " in str(other.exception)
    assert f"`rm -r '{finished}'`" in str(other.exception)
    assert {path.name: path.stat().st_mtime_ns for path in finished.iterdir()} == before


def test_a_torn_state_is_passed_over(tmp_path: Path, data: Path) -> None:
    changes = ["fit.epochs=3", "fit.average=0.9", *FEW]  # the mean of the weights is in the newest state
    recipe, run = recipes.read(recipes.find("burgers-tiny"), changes), RunFolder(tmp_path)
    work = workload(recipe, data)
    fit(work.task(), work, run, run.open(recipe, resume=False))
    before, last = sorted(run.state.glob("epoch=*.ckpt"))
    assert run.open(recipe, resume=True) == last
    for torn in (last.read_bytes()[:-1000], bytes(len(last.read_bytes())), b""):
        last.write_bytes(torn)
        with pytest.warns(UserWarning, match=r"epoch=2.ckpt: left out, as it cannot be read"):
            assert run.open(recipe, resume=True) == before
    with pytest.warns(UserWarning, match="left out"):
        train(recipe, tmp_path, data, resume=True)
    assert [int(row["epoch"]) for row in runlog.read_log(run.metrics)] == [0, 1, 2]


def test_a_state_from_a_gpu_is_read_where_there_is_none(tmp_path: Path, data: Path) -> None:
    recipe = recipes.read(recipes.find("burgers-tiny"), ["fit.epochs=1", "fit.average=0.9", *FEW])
    work, run = workload(recipe, data), RunFolder(tmp_path)
    task, again = work.task(), work.task()
    fit(task, work, run, run.open(recipe, resume=False))
    state = run.newest()
    assert state is not None
    with zipfile.ZipFile(state) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(state, "w") as archive:  # the pickled names of devices: 3 letters, and 6
        for name, part in parts.items():
            archive.writestr(name, part.replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0"))
    fit(again, work, run, state)
    expected = task.network.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in again.network.state_dict().items())


def test_a_training_that_diverges_fails(data: Path, tmp_path: Path) -> None:
    changes = ("fit.learning_rate=1e30", "fit.clip=1e30", "fit.epochs=3", *FEW)
    wild = [word for each in changes for word in ("--set", each)]
    failed = command("fit", "burgers-tiny", *wild, "--out", tmp_path, "--data", data)
    assert isinstance(failed.exception, RunError)
    assert "loss is nan after epoch" in str(failed.exception)
    assert not (tmp_path / checkpoint.WEIGHTS).exists()


def test_a_state_for_which_there_is_no_room_is_reported(tmp_path: Path) -> None:
    """The file /dev/full accepts no bytes, as a full disk."""
    path = tmp_path / "epoch=0.ckpt"
    path.write_bytes(b"the state before")
    (tmp_path / f".epoch=0.ckpt.{os.getpid()}.part").symlink_to("/dev/full")
    with pytest.raises(RunError, match="expected to save the state"):
        StateIO().save_checkpoint({"weights": torch.zeros(10_000)}, path)
    assert path.read_bytes() == b"the state before"


@pytest.mark.deep
def test_a_checkpoint_that_cannot_be_measured_is_kept_and_completed(data: Path, tmp_path: Path) -> None:
    recipe = recipes.read(recipes.find("burgers-tiny"), ["fit.epochs=1", *FEW])
    shutil.copytree(data, tmp_path / "data")  # to take the samples away, and to make more of them
    work, run = workload(recipe, tmp_path / "data"), RunFolder(tmp_path / "run")
    run.path.mkdir()
    task = work.task()
    fit(task, work, run, run.open(recipe, resume=False))
    samples = work.prepare()
    samples.rename(tmp_path / "away.h5")
    with pytest.raises(RunError, match=r"checkpoint is saved .* evaluate .*run --write"):
        finish(work, task.network.eval(), run, {})
    found = checkpoint.load(run.path)
    assert found.card.missing == ("errors", "classical", "clock")
    (tmp_path / "away.h5").rename(samples)
    evaluated = command("evaluate", run.path, "--data", work.data, "--write", "--fields", 3)
    assert evaluated.exit_code == 0, evaluated.output
    completed = checkpoint.load(run.path)
    card = completed.card
    assert card.errors[0]["fields"] == completed.recipe.data.test == 3 != recipe.data.test
    assert card.missing == ()
    assert {path.name for path in run.path.iterdir()} == FILES


def test_weights_can_start_from_a_checkpoint(finished: Path, data: Path, tmp_path: Path) -> None:
    recipe = recipes.read(recipes.find("burgers-tiny"), ["fit.epochs=1", "fit.learning_rate=1e-9", *FEW])
    found = checkpoint.load(train(recipe, tmp_path, data, init=finished)).card.errors
    expected = checkpoint.load(finished).card.errors
    assert found[0]["relative_l2"] == pytest.approx(expected[0]["relative_l2"], rel=1e-3)


def test_the_mean_of_the_weights_is_over_the_last_tenth_of_the_steps_until_the_decay_is_shorter() -> None:
    mean, behind = torch.zeros(1), dict[int, float]()
    for step in range(1, 5001):
        averaged([mean], [torch.full((1,), float(step))], torch.tensor(step), decay=0.99)
        behind[step] = step - mean.item()
    assert behind[500] == pytest.approx(50, rel=0.05)
    assert behind[5000] == pytest.approx(99, rel=0.05)  # d / (1 - d)


def test_the_mean_of_the_weights_is_kept(finished: Path, data: Path, tmp_path: Path) -> None:
    def kept(average: float) -> torch.Tensor:
        recipe = recipes.read(recipes.find("burgers-tiny"), ["fit.epochs=2", f"fit.average={average}", *FEW])
        work, run = workload(recipe, data), RunFolder(tmp_path / str(average))
        run.path.mkdir()
        task = work.task(finished)
        fit(task, work, run, run.open(recipe, resume=False))
        return torch.cat([each.detach().ravel() for each in task.network.parameters()])

    last = kept(0.0)
    assert 1e-4 < (kept(0.99) - last).norm() / last.norm() < 0.5


def test_who_writes_into_a_checkpoint_keeps_others_out(finished: Path, data: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    with RunFolder(finished).alone():
        refused = [command("evaluate", finished, "--data", data, "--write"), command("calibrate", finished)]
    assert all(isinstance(each.exception, RunError) for each in refused)
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before
    for name in ("evaluate", "calibrate"):
        assert isinstance(command(name, tmp_path / "none").exception, checkpoint.CheckpointError)
    assert not (tmp_path / "none").exists()


def test_the_commands_measure_and_explain(finished: Path, data: Path) -> None:
    assert "relative errors" in command("evaluate", finished, "--data", data).stdout
    written = command("calibrate", finished, "--samples", 20, "--data", data).stderr
    assert "error below estimate" in written
    assert {*re.findall(r"errors, part (.*), .*: (.*) fields", written)} == {
        ("1 of 3", "10 of 10"),
        ("2 of 3", "20 of 20"),
        ("3 of 3", "20 of 20"),
    }
    account = checkpoint.load(finished).card.calibration
    assert (account["fitted"], account["errors"]) == (10 * len(account["test"]), 20)
    assert all(0.5 <= row["coverage"] <= 1 for row in account["test"])
    failed = command("fit", "nothing")
    assert isinstance(failed.exception, config.RecipeError)
    assert "burgers-tiny" in str(failed.exception)


def test_a_calibration_that_the_card_does_not_know_is_made_anew(finished: Path, data: Path, tmp_path: Path) -> None:
    """As a kill leaves it between the file of the calibration and the card."""
    folder = shutil.copytree(finished, tmp_path / "run")
    card = read_json(folder / checkpoint.CARD)
    assert card.pop("calibration")["test"]
    write_json(folder / checkpoint.CARD, card)
    assert command("evaluate", folder, "--data", data, "--write").exit_code == 0
    account = checkpoint.load(folder).card.calibration
    assert account is not None
    assert account["test"]


@pytest.mark.deep
def test_a_calibration_of_an_earlier_version_is_replaced(finished: Path, data: Path) -> None:
    calibrating = ("calibrate", finished, "--samples", 40, "--data", data)
    assert command(*calibrating).exit_code == 0
    account = checkpoint.load(finished).card.calibration
    (finished / calibration.FILE).write_bytes(b"of an earlier version")
    assert command(*calibrating).exit_code == 0
    assert checkpoint.load(finished).card.calibration == account
