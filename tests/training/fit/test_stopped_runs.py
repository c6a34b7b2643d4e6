"""A run that was stopped, moved or begun anew keeps what it has learned, and its folder is its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from tests.training.fit.test_budget import BATCHES, Stepped, trained, workload
from training.checkpoint import CheckpointError
from training.commands import app
from training.fit import search
from training.fit.operator_workload import OperatorWorkload
from training.fit.run import advance, finish, train
from training.fit.run_folder import RunError, RunFolder, line, read_log
from training.fit.turns import Turn
from training.losses import Batch
from training.recipe import RecipeError, changed


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def finished(work: OperatorWorkload, folder: Path) -> RunFolder:
    """Train and measure, for three epochs."""
    run = RunFolder(folder)
    finish(work, trained(work, folder, Stepped(work)).network.eval(), run, {})
    return run


def stopped(work: OperatorWorkload, folder: Path, *, resume: bool = False) -> None:
    """Train for an epoch, and stop in the next one."""
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        trained(work, folder, Stepped(work, last=1), resume=resume)


def test_a_complete_training_that_goes_on_keeps_the_mean_of_its_last_weights(tmp_path: Path) -> None:
    """As one that was killed while it was measured: it has all epochs of its recipe, and no step is left."""
    work = workload(tmp_path)
    work.recipe = changed(work.recipe, ["fit.keep='last'", "fit.epochs=3", "fit.average=0.9"])
    first = trained(work, tmp_path / "run", Stepped(work, second=1e-6))
    assert len(first.rates) == 3 * BATCHES
    again = trained(work, tmp_path / "run", Stepped(work, second=1e-6), resume=True)
    assert again.rates == []
    for one, other in zip(again.parameters(), first.parameters(), strict=True):
        assert torch.equal(one, other)
    raw = torch.load(tmp_path / "run/state/epoch=2.ckpt", weights_only=True)["current_model_state"]
    assert not all(torch.equal(raw[name], one) for name, one in again.named_parameters())


def test_a_full_disk_stops_a_race_and_a_divergence_loses_it(tmp_path: Path) -> None:
    """The file /dev/full accepts no bytes, as a full disk."""
    recipe = changed(workload(tmp_path).recipe, ["fit.epochs=1"])
    run = RunFolder(tmp_path / "0")
    run.state.mkdir(parents=True)
    run.recipe.write_text(recipe.model_dump_json())
    (run.state / f".best.ckpt.{os.getpid()}.part").symlink_to("/dev/full")
    with pytest.raises(RunError, match="expected to save the state"):
        advance(0, Turn("full", recipe, run, 1.0), tmp_path, None)
    wild = changed(recipe, ["fit.learning_rate=1e30", "fit.clip=1e30", "fit.epochs=3"])
    assert advance(0, Turn("wild", wild, RunFolder(tmp_path / "1"), 1.0), tmp_path, None) == search.LOST


def test_a_checkpoint_is_measured_anew_beside_a_stopped_training_which_can_go_on(tmp_path: Path) -> None:
    work = workload(tmp_path)
    run = finished(work, tmp_path / "run")
    assert not run.unfinished
    stopped(work, run.path)
    assert run.unfinished
    newest, written = run.newest(), ("evaluate", run.path, "--data", tmp_path, "--write")
    assert command(*written).exit_code == 0
    assert run.newest() == newest is not None
    assert run.began() == work.recipe
    run.saved.touch()  # as of a run whose checkpoint is written, and could not be measured
    assert command(*written).exit_code == 0
    assert not run.state.exists()
    assert not run.recipe.exists()


@pytest.mark.parametrize("name", ["metrics.csv", "config.json", "state/mine.txt"])
def test_a_folder_that_holds_something_else_is_no_folder_for_a_run(tmp_path: Path, name: str) -> None:
    work, file = workload(tmp_path), tmp_path / "results" / name
    file.parent.mkdir(parents=True)
    file.write_text('{"recipe": "of bread"}')
    with pytest.raises(RunError, match=rf"results: expected a new folder, .* but found {name.partition('/')[0]}: name"):
        train(work.recipe, tmp_path / "results", tmp_path)
    assert [path for path in (tmp_path / "results").rglob("*") if path.is_file()] == [file]


def test_the_folder_of_a_run_is_known_while_it_trains_and_afterwards(tmp_path: Path) -> None:
    work, run = workload(tmp_path), RunFolder(tmp_path / "run")
    run.expect_own()
    stopped(work, run.path)
    run.expect_own()
    run = finished(work, run.path)
    (run.path / "notes.txt").touch()
    run.expect_own()


class Scored(Stepped):
    """Its validation errors grow from epoch to epoch."""

    def validation_step(self, batch: Batch) -> None:
        self.log(self.work.metric.name, 1.0 + self.current_epoch, batch_size=len(batch.outputs[0]))


def test_a_run_whose_folder_was_moved_keeps_its_best_epoch_and_two_states(tmp_path: Path) -> None:
    work, run = workload(tmp_path), RunFolder(tmp_path / "moved")
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        trained(work, tmp_path / "run", Scored(work, last=2))
    (tmp_path / "run").rename(run.path)
    trained(work, run.path, Scored(work), resume=True)
    assert torch.load(run.best, weights_only=True)["epoch"] == 0
    assert {path.name for path in run.state.glob("*.ckpt")} == {"best.ckpt", "epoch=1.ckpt", "epoch=2.ckpt"}


def test_a_run_that_is_killed_while_it_is_closed_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    work, run = workload(tmp_path), RunFolder(tmp_path / "run")
    network = trained(work, run.path, Stepped(work)).network.eval()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            finish(work, network, run, {})
    assert run.finished(work.recipe)


def test_a_mistake_in_the_arguments_leaves_an_earlier_run_as_it_is(tmp_path: Path) -> None:
    work, run = workload(tmp_path), RunFolder(tmp_path / "run")
    stopped(work, run.path)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match=r"expected a file .*typo"):
        train(work.recipe, run.path, tmp_path, init=tmp_path / "typo")
    with pytest.raises(RecipeError, match=r"fit\.warmup"):
        changed(work.recipe, ["fit.warmup=1.5"])
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_a_training_of_very_many_epochs_says_how_long_it_takes(tmp_path: Path) -> None:
    """After the first one its share is 1e-6, and is logged as such."""
    work, run = workload(tmp_path), RunFolder(tmp_path / "run")
    work.recipe = changed(work.recipe, ["fit.epochs=1000000", "fit.seconds=1e9"])
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        trained(work, run.path, Stepped(work, second=1e-6, last=1))
    assert line(read_log(run.metrics)).startswith("epoch 1, 0%: loss ")
