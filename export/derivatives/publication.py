"""Publication of derivatives beside their model: the version of a derivative has the number of the model's.

.. code-block:: text

    model_repository/
      darcy/      1/{model.onnx, card.json, …}
      darcy_vjp/  1/{model.onnx, card.json, certificate.json}
      darcy_jvp/  1/{model.onnx, card.json, certificate.json}
"""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import version as installed
from typing import TYPE_CHECKING, Any

import onnx
import torch

from export.card import ROLLOUT
from export.certificate import SOFTWARE
from export.derivatives import agreement
from export.derivatives.agreement import Agreement, Derivative
from export.derivatives.differentiate import differentiate
from export.derivatives.rollouts import differentiate_rollout
from export.derivatives.signatures import Kind, signature_of
from export.graphs import to_onnx
from export.graphs.deployable import Deployable, shape_checks_off
from export.layout import CARD, CERTIFICATE, sha256
from training.files import write_json

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from export.signature import Signature

KEY = "derivative"  # of the certificate
#: Keys of a model's card that its derivatives do not have.
MODEL_ONLY = ("formats", "parameters", "quality", "calibration", "frames", *ROLLOUT)


def build(version: Path, kind: Kind, network: nn.Module, signature: Signature, folder: Path) -> None:
    """Write the derivative of a model's version into a folder, and compare it with automatic differentiation.

    Args:
        version: The version folder of the model, with its graph and its card.
        kind: Which derivative.
        network: The network of the graph.
        signature: The signature of the model.
        folder: The version folder of the derivative.

    Raises:
        GraphError: An operator of the graph has no known derivative.
        ParityError: The derivative differs from automatic differentiation by more than the tolerance.
    """
    described, artefact = signature_of(kind, signature), folder / to_onnx.FILE
    model = graph_of(onnx.load(version / to_onnx.FILE), kind, signature)
    onnx.checker.check_model(model, full_check=True)
    to_onnx.check(model, described)
    folder.mkdir(parents=True)
    artefact.write_bytes(model.SerializeToString(deterministic=True))
    run, operators = to_onnx.read(artefact)
    single, double = (
        Derivative(kind, signature, plain(network, signature, dtype), dtype) for dtype in (torch.float32, torch.float64)
    )
    with shape_checks_off():
        compared, difference = agreement.compare(run, single, double), agreement.central_difference(double)
    agreement.gate(compared, difference)
    card = card_of(json.loads((version / CARD).read_text()), kind, described)
    write_json(folder / CARD, card, finite=True)
    certificate = {
        **{key: card[key] for key in ("model", "version", "format")},
        "artefact": {"file": artefact.name, "sha256": sha256(artefact), "bytes": artefact.stat().st_size},
        KEY: {"kind": kind, "sha256": sha256(version / to_onnx.FILE)},
        "checkpoint": {"sha256": card["checkpoint"]["sha256"]},
        "tolerance": agreement.TOLERANCE,
        "opset": to_onnx.OPSET,
        "operators": operators,
        "software": {name: installed(name) for name in SOFTWARE},
        "comparisons": [comparison(one) for one in compared],
        "central_difference": difference,
    }
    write_json(folder / CERTIFICATE, certificate, finite=True)


def comparison(one: Agreement) -> dict[str, Any]:
    """Return a comparison as a certificate has it: without frames where there are none."""
    return {key: value for key, value in asdict(one).items() if value is not None} | {"shape": list(one.shape)}


def graph_of(model: onnx.ModelProto, kind: Kind, signature: Signature) -> onnx.ModelProto:
    """Return the graph of a derivative.

    Args:
        model: The exported graph, of fields or of a rollout.
        kind: Which derivative.
        signature: The signature of the model.

    Raises:
        GraphError: An operator of the graph has no known derivative.
    """
    if signature.frames is not None:
        return differentiate_rollout(model, kind, signature)
    return differentiate(model, kind, signature_of(kind, signature))


def plain(network: nn.Module, signature: Signature, dtype: torch.dtype) -> nn.Module:
    """Return a network as it is exported, without its quality outputs."""
    deployed: Any = Deployable(network, signature.argument_names, dtype)
    deployed.forward = deployed.operator.forward
    found: nn.Module = deployed
    return found


def card_of(card: dict[str, Any], kind: Kind, signature: Signature) -> dict[str, Any]:
    """Return the card of a derivative.

    Args:
        card: The card of its model.
        kind: Which derivative.
        signature: Its signature.
    """
    name, kept = card["model"], {key: value for key, value in card.items() if key not in MODEL_ONLY}
    parameters = {"parameters": [spec.model_dump(mode="json") for spec in signature.parameters]}
    frames = {"frames": signature.frames.model_dump(mode="json")} if signature.frames else {}
    return {
        **kept,
        "model": f"{name}_{kind}",
        "title": f"{card['title']}: {TITLES[kind]}",
        "product": {"of": name, "kind": kind},
        "inputs": [spec.model_dump(mode="json") for spec in signature.inputs],
        **(parameters if signature.parameters else {}),
        **frames,
        "outputs": [spec.model_dump(mode="json") for spec in signature.outputs],
    }


TITLES: dict[Kind, str] = {"vjp": "vector-Jacobian product", "jvp": "Jacobian-vector product"}
