"""A run that was stopped, moved or begun anew keeps what it has learned, and its folder is its own."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.training.fit.test_budget import BATCHES, Stepped, trained, workload
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
