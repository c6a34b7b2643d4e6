"""The graph that meets small tolerances: the model with more iterations, in a model of its own beside it.

It has the inputs and outputs of the model. The gateway calls it for the samples whose `error_bound` is above the
tolerance of a request, before the classical solver.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from export import parity
from export.card import card
from export.certificate import certificate
from export.graphs import to_onnx
from export.graphs.deployable import Deployable
from export.layout import CARD, CERTIFICATE, sha256
from training.files import write_json

if TYPE_CHECKING:
    from torch import nn

    from export.signature import Signature
    from training.checkpoint import Checkpoint

KEY = "refinement"  # of the certificate
#: Keys of a model's card that its refinement does not have.
MODEL_ONLY = ("formats", "calibration")


def build(checkpoint: Checkpoint, signature: Signature, version: Path, folder: Path) -> None:
    """Write the refinement of a model's version into a folder, and compare it with its network.

    Args:
        checkpoint: What is published.
        signature: The signature of the model.
        version: The version folder of the model, with its graph and its card.
        folder: The version folder of the refinement.

    Raises:
        GraphError: The graph cannot be deployed.
        ParityError: The graph differs from the network by more than the tolerance.
    """
    folder.mkdir(parents=True)
    artefact = folder / to_onnx.FILE
    artefact.write_bytes(graph(checkpoint, signature))
    run, operators = to_onnx.read(artefact)
    comparisons = parity.compare(run, network_of(checkpoint), signature)
    parity.gate(comparisons)
    described = card_of(checkpoint, version.parent.name, int(version.name))
    write_json(folder / CARD, described, finite=True)
    of = {KEY: {"sha256": sha256(version / to_onnx.FILE)}}
    write_json(folder / CERTIFICATE, certificate(artefact, operators, comparisons, described) | of, finite=True)


def graph(checkpoint: Checkpoint, signature: Signature) -> bytes:
    """Return the bytes of the refinement's graph."""
    with TemporaryDirectory() as aside:
        path = Path(aside) / to_onnx.FILE
        to_onnx.write(Deployable(network_of(checkpoint), signature.argument_names), signature, path)
        return path.read_bytes()


def network_of(checkpoint: Checkpoint) -> nn.Module:
    """Return the network with more iterations.

    Raises:
        ValueError: The operator offers none.
    """
    network = checkpoint.refined
    if network is None:
        raise ValueError(f"expected an operator with more iterations but {checkpoint.problem.name!r} has none")
    return network


def card_of(checkpoint: Checkpoint, name: str, version: int) -> dict[str, Any]:
    """Return the card of a refinement.

    Args:
        checkpoint: What is published.
        name: The model's name.
        version: The number of the model's version.
    """
    own = card(checkpoint, f"{name}_refined", version, "onnx")
    kept = {key: value for key, value in own.items() if key not in MODEL_ONLY}
    return kept | {"title": f"{own['title']}: more iterations", "product": {"of": name, "kind": "refined"}}
