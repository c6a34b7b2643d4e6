"""A run that was stopped, moved or begun anew keeps what it has learned, and its folder is its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from tests.training.fit.test_budget import BATCHES, Stepped, trained, workload
from training.fit import search
from training.fit.run import advance
from training.fit.run_folder import RunError, RunFolder
from training.fit.turns import Turn
from training.recipe import changed


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
