"""Build a version of a model or of a graph beside it: write the graph, compare it with its network, describe it.

.. code-block:: text

    model_repository/
      darcy/              1/{model.onnx, card.json, certificate.json, examples.safetensors}   the network
      darcy_torchscript/  1/{model.pt, …}               the same in TorchScript, where the recipe lists it
      darcy_refined/      1/{model.onnx, card.json, certificate.json}   the method alone, with more iterations
      darcy_vjp/          1/{model.onnx, …}             products with its Jacobian; and darcy_jvp/

A graph beside a model is a *companion*: a model of its own, whose versions have the numbers of the model's. `build`
makes and certifies all of them.
"""

from __future__ import annotations

import shutil
from importlib.metadata import version as installed
from typing import TYPE_CHECKING, Literal

import onnx

from export import parity
from export.card import ROLLOUT, card, document
from export.derivatives import agreement
from export.derivatives.differentiate import differentiate, differentiate_rollout
from export.graphs import to_onnx, to_torchscript
from export.graphs.deployable import Deployable
from export.layout import CARD, CERTIFICATE, sha256
from schema.card import KINDS, REFINED, Card, Kind
from training.checkpoint import EXAMPLES
from training.files import read_json, write_json

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from torch import nn

    from export.signature import Signature
    from training.checkpoint import Checkpoint

Companion = Kind | Literal["refined"]
COMPANIONS: tuple[Companion, ...] = (*KINDS, REFINED)

#: Each format's suffix to the model's name, and the module that writes and reads it.
FORMATS: dict[str, tuple[str, ModuleType]] = {"onnx": ("", to_onnx), "torchscript": ("_torchscript", to_torchscript)}
ONNX = "onnx"  # the format of companions; every recipe has it

#: Packages whose arithmetic was compared.
SOFTWARE = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy")
#: Keys of a model's card that its companions do not have, and what is appended to its title.
MODEL_ONLY = ("formats", "precision", "calibration")
NOT_DIFFERENTIATED = ("parameters", "quality", "frames", *ROLLOUT)
TITLES: dict[Companion, str] = {
    "vjp": "vector-Jacobian product",
    "jvp": "Jacobian-vector product",
    REFINED: "the method alone, with more iterations",
}


def companions(checkpoint: Checkpoint, signature: Signature) -> tuple[Companion, ...]:
    """Return what is published beside a model; one of sequences has no derivatives."""
    kinds = () if signature.vocabulary else KINDS
    return (*kinds, *((REFINED,) if checkpoint.refined is not None else ()))


def signature_of(companion: Companion, model: Signature, checkpoint: Checkpoint) -> Signature:
    """Return the signature of a companion of a checkpoint's model."""
    return model.reporting(refined(checkpoint)) if companion == REFINED else model.product(companion)


def build(
    checkpoint: Checkpoint,
    signature: Signature,
    folder: Path,
    *,
    format_: str = ONNX,
    companion: Companion | None = None,
    model: Path | None = None,
) -> None:
    """Write a version into a new folder `<name>/<number>`, and compare it with its network.

    A companion is made of the graph in the version folder `model` of its model.
    """
    name, number, writer = folder.parent.name, int(folder.name), FORMATS[format_][1]
    artefact, base = folder / writer.FILE, None if model is None else model / to_onnx.FILE
    folder.mkdir(parents=True)
    if base is None or companion is None:
        writer.write(Deployable(checkpoint.deployed, signature.argument_names), signature, artefact)
        described = card(checkpoint, name, number, format_)
    else:
        artefact.write_bytes(companion_graph(checkpoint, signature, companion, onnx.load(base)))
        own = signature_of(companion, signature, checkpoint)
        described = companion_card(card(checkpoint, base.parent.parent.name, number, format_), companion, own)
    run, operators = writer.read(artefact)
    like = parity.statistics(checkpoint.examples, signature)
    if companion in KINDS:
        evidence = agreement.evidence(run, companion, checkpoint.operator, signature, like)
    elif companion is None:
        evidence = parity.evidence(run, checkpoint.deployed, signature, like, checkpoint.recipe.precision)
    else:
        evidence = parity.evidence(run, refined(checkpoint), own, like)
    certificate = {
        **described.model_dump(include={"model", "version", "format"}),
        "artefact": {"file": artefact.name, "sha256": sha256(artefact), "bytes": artefact.stat().st_size},
        "checkpoint": {"sha256": described.checkpoint["sha256"]},
        "opset": to_onnx.OPSET if format_ == ONNX else None,
        "operators": operators,
        "software": {package: installed(package) for package in SOFTWARE},
        **evidence,
    }
    if base is not None:
        graph = {"sha256": sha256(base)}
        certificate |= {"refinement": graph} if companion == REFINED else {"derivative": {"kind": companion, **graph}}
    write_json(folder / CARD, document(described), finite=True)
    write_json(folder / CERTIFICATE, certificate, finite=True)
    if companion is None and checkpoint.examples is not None:
        shutil.copyfile(checkpoint.examples, folder / EXAMPLES)


def belongs(folder: Path, model: Path) -> bool:
    """Return whether a companion's version is whole, and was made of this version of its model."""
    try:
        certified = read_json(folder / CERTIFICATE)
        of = certified.get("refinement") or certified["derivative"]
        whole = certified["artefact"]["sha256"] == sha256(folder / to_onnx.FILE)
        return bool(whole and of["sha256"] == sha256(model / to_onnx.FILE))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def companion_graph(
    checkpoint: Checkpoint, signature: Signature, companion: Companion, model: onnx.ModelProto
) -> bytes:
    """Return the bytes of a companion's graph; `model` is the model's own."""
    if companion == REFINED:
        own = signature_of(companion, signature, checkpoint)
        return to_onnx.graph_of(Deployable(refined(checkpoint), own.argument_names), own)
    described = signature_of(companion, signature, checkpoint)
    rollout = signature.frames is not None
    made = differentiate_rollout(model, companion, signature) if rollout else differentiate(model, companion, described)
    return to_onnx.checked(made, described)


def companion_card(card: Card, companion: Companion, signature: Signature) -> Card:
    """Return the card of a companion; `card` is the model's, `signature` the companion's."""
    dropped = {*MODEL_ONLY, *(() if companion == REFINED else NOT_DIFFERENTIATED)}
    own = document(card)
    own = {key: value for key, value in own.items() if key not in dropped} | {
        "model": f"{card.model}_{companion}",
        "title": f"{card.title}: {TITLES[companion]}",
        "product": {"of": card.model, "kind": companion},
        "limits": signature.limits.model_dump(exclude_none=True),
    }
    parts = {"quality"} if companion == REFINED else {"inputs", "parameters", "frames", "outputs"}
    tensors = signature.model_dump(mode="json", include=parts)
    return Card.model_validate(own | {key: value for key, value in tensors.items() if value})


def refined(checkpoint: Checkpoint) -> nn.Module:
    """Return the method without the network, with more iterations."""
    network = checkpoint.refined
    if network is None:
        raise ValueError(f"expected an operator with more iterations but {checkpoint.problem.name!r} has none")
    return network
