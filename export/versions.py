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
from typing import TYPE_CHECKING, Any, Literal

import onnx

from export import parity, probes
from export.derivatives import agreement
from export.derivatives.differentiate import differentiate, differentiate_rollout
from export.graphs import to_onnx, to_torchscript
from export.graphs.deployable import Deployable
from export.signature import Signature
from export.triton_config import CARD, CERTIFICATE, sha256
from schema.card import KINDS, REFINED, Card, CheckpointCard, Kind, Measured
from schema.problem import SequenceDescription
from training.calibration.fitting import FEWEST_FITTED
from training.calibration.statistics import OUTSIDE, fewest
from training.checkpoint import EXAMPLES
from training.files import read_json, write_json
from training.optimisation import FLOAT32

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from torch import nn

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
NOT_DIFFERENTIATED = ("parameters", "quality", "frames", "rollout", "correlation_time", "spectrum")
TITLES: dict[Companion, str] = {
    "vjp": "vector-Jacobian product",
    "jvp": "Jacobian-vector product",
    REFINED: "the method alone, with more iterations",
}

#: What has to be measured of operators and of networks of sequences.
MEASURED, COUNTED = ("training", "errors", "classical"), ("training", "accuracy")
LARGE = 0.2  # a mean error above this is said first
COVERED = 0.8  # and that fewer test samples than this have an error below their estimate, of which 90 % should


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
    like = probes.statistics(checkpoint.examples, signature)
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
    write_json(folder / CARD, described.document, finite=True)
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


class CardError(ValueError):
    """A checkpoint's own card lacks keys that every published card has."""


def card(checkpoint: Checkpoint, model: str, version: int, format_: str) -> Card:
    """Compose the card of one version.

    Raises:
        CardError: The checkpoint's card does not say how it was trained and measured.
    """
    problem, signature = checkpoint.description, Signature.of_checkpoint(checkpoint)
    wanted = COUNTED if isinstance(problem, SequenceDescription) else MEASURED
    if missing := [key for key in wanted if key not in checkpoint.card.model_fields_set]:
        raise CardError(
            f"expected {', '.join(wanted)} in the checkpoint's card.json but {', '.join(missing)} is missing"
        )
    solved = (
        {"task": problem.task}
        if isinstance(problem, SequenceDescription)
        else {"equation": problem.equation, "boundary": problem.boundary}
    )
    parts = signature.model_dump(mode="json")
    warned = warnings(checkpoint.card, signature)
    return Card.model_validate(
        {
            "model": model,
            "version": version,
            "format": format_,
            "formats": checkpoint.formats,
            **({} if checkpoint.recipe.precision == FLOAT32 else {"precision": checkpoint.recipe.precision}),
            "title": problem.title,
            "problem": problem.name,
            **solved,
            **{name: part for name, part in parts.items() if part or name == "inputs"},
            "limits": signature.limits.model_dump(exclude_none=True),
            **({"warnings": warned} if warned else {}),
            **measured(checkpoint),
            "checkpoint": {
                "sha256": checkpoint.digest,
                "parameters": sum(parameter.numel() for parameter in checkpoint.operator.parameters()),
            },
        }
    )


def measured(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what was measured of a checkpoint, as the cards of its versions have it."""
    return checkpoint.card.model_dump(mode="json", include={*Measured.model_fields}, exclude_unset=True)


def warnings(measured: CheckpointCard, signature: Signature) -> list[str]:
    """Say what to know before a model is trusted: large errors, and estimates and novelty that fail or are missing."""
    found = []
    rows = [row for row in measured.errors if row["relative_l2"] > LARGE]
    if rows:
        worst = max(rows, key=lambda row: row["relative_l2"])
        points = " x ".join(map(str, worst["grid"]))
        found.append(f"The mean relative L2 error of test samples is {worst['relative_l2']:.0%} on {points} points.")
    held = (measured.calibration or {}).get("test", ())
    if poor := [row for row in held if row.get("coverage", 1.0) < COVERED]:
        worst = min(poor, key=lambda row: row["coverage"])
        points, noisy = " x ".join(map(str, worst["grid"])), any("noise" in row for row in held)
        noise = f" with {worst['noise']:.0%} of noise" if "noise" in worst else " without noise" if noisy else ""
        tested = f"test trajectories in frame {worst['frame']:g}" if "frame" in worst else "test samples"
        found.append(f"The error_estimate held for {worst['coverage']:.0%} of the {tested} on {points} points{noise}.")
    by_frame = any("error_estimate" in row for row in measured.rollout)
    trained = signature.vocabulary is None and measured.training.get("epochs") != 0
    if trained and not by_frame and "error_estimate" not in signature.quality:
        fitted = "" if measured.calibration is not None else f"{2 * FEWEST_FITTED} training samples and "
        found.append(
            f"There is no error_estimate: it takes at least {fitted}{fewest()} validation samples on each grid, and "
            "this model was calibrated with fewer or not at all."
        )
    compared = (measured.calibration or {}).get("inputs", least := round(1 / OUTSIDE))
    if "novelty" in signature.quality and compared < least:  # the smallest novelty is 1 / (1 + compared)
        found.append(
            f"No input is ever outside, however unlike the training data: novelty compares it with {compared} others, "
            f"and that takes at least {least}."
        )
    return found


def companion_card(card: Card, companion: Companion, signature: Signature) -> Card:
    """Return the card of a companion; `card` is the model's, `signature` the companion's."""
    dropped = {*MODEL_ONLY, *(() if companion == REFINED else NOT_DIFFERENTIATED)}
    own = card.document
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
