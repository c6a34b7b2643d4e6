"""The released models of trajectories as TorchScript, which their recipes do not list."""

from __future__ import annotations

from pathlib import Path

import pytest

from export import parity
from export.graphs import to_torchscript
from export.graphs.deployable import Deployable
from export.signature import Signature
from training import checkpoint

CHECKPOINTS = Path(__file__).parents[2] / "checkpoints"


@pytest.mark.parametrize("model", ["kuramoto_sivashinsky", pytest.param("navier_stokes", marks=pytest.mark.deep)])
def test_a_released_model_computes_the_same_as_torchscript(model: str, tmp_path: Path) -> None:
    trained = checkpoint.load(CHECKPOINTS / model)
    signature, path = Signature.of_checkpoint(trained), tmp_path / to_torchscript.FILE
    to_torchscript.write(Deployable(trained.deployed, signature.argument_names), signature, path)
    run, kinds = to_torchscript.read(path)
    assert kinds
    parity.gate(parity.compare(run, trained.deployed, signature))
