"""Graphs beside a model, each a model of its own whose versions have the numbers of the model's.

.. code-block:: text

    model_repository/
      darcy/          1/{model.onnx, card.json, …}
      darcy_vjp/      1/{model.onnx, card.json, certificate.json}   and darcy_jvp/: products with its Jacobian
      darcy_refined/  1/{model.onnx, card.json, certificate.json}   the same with more iterations, for small tolerances
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from export.derivatives import publication as derivatives
from export.derivatives.signatures import KINDS, Kind
from export.derivatives.signatures import signature_of as signature_of_product
from export.graphs import refinement, to_onnx
from export.layout import CERTIFICATE, sha256

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

    from export.signature import Signature
    from training.checkpoint import Checkpoint

Companion = Kind | Literal["refined"]
REFINED: Literal["refined"] = "refined"
COMPANIONS: tuple[Companion, ...] = (*KINDS, REFINED)


def companions(checkpoint: Checkpoint, signature: Signature) -> tuple[Companion, ...]:
    """Return what is published beside a model; one of sequences has no derivatives."""
    kinds = () if signature.vocabulary else KINDS
    return (*kinds, *((REFINED,) if checkpoint.refined is not None else ()))


def signature_of(companion: Companion, model: Signature) -> Signature:
    """Return the signature of a companion of a model."""
    return model if companion == REFINED else signature_of_product(companion, model)


def paths_of(model: Path) -> dict[Companion, Path]:
    """Return the folders of a model's companions."""
    return {companion: model.with_name(f"{model.name}_{companion}") for companion in COMPANIONS}


def is_published(version: Path, companion: Companion) -> bool:
    """Return whether the companion of a model's version is published.

    Args:
        version: The version folder of the model.
        companion: Which one.
    """
    folder = paths_of(version.parent)[companion] / version.name
    key = refinement.KEY if companion == REFINED else derivatives.KEY
    try:
        certified = json.loads((folder / CERTIFICATE).read_text())
        of = certified[key]["sha256"] == sha256(version / to_onnx.FILE)
        return bool(of and certified["artefact"]["sha256"] == sha256(folder / to_onnx.FILE))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def build(checkpoint: Checkpoint, signature: Signature, version: Path, companion: Companion, folder: Path) -> None:
    """Write the companion of a model's version into a folder, and compare it with its network.

    Args:
        checkpoint: What is published.
        signature: The signature of the model.
        version: The version folder of the model, with its graph and its card.
        companion: Which one.
        folder: The version folder of the companion.

    Raises:
        GraphError: The graph cannot be made.
        ParityError: The graph differs from the network by more than the tolerance.
    """
    if companion == REFINED:
        refinement.build(checkpoint, signature, version, folder)
    else:
        derivatives.build(version, companion, checkpoint.operator, signature, folder)


def graph(checkpoint: Checkpoint, signature: Signature, model: onnx.ModelProto, companion: Companion) -> bytes:
    """Return the bytes of a companion's graph, as `build` writes it.

    Args:
        checkpoint: What is published.
        signature: The signature of the model.
        model: The model's own graph.
        companion: Which one.
    """
    if companion == REFINED:
        return refinement.graph(checkpoint, signature)
    return derivatives.graph_of(model, companion, signature).SerializeToString(deterministic=True)
