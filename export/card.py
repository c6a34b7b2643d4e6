"""The content of `card.json`: what a model computes, within which limits, and how well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from export.signature import Signature
from training.problems.sequence_description import SequenceDescription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel

    from training.checkpoint import Checkpoint
    from training.problems.description import Description

#: What was measured of operators and of networks of sequences, and is copied to the card.
MEASURED = ("training", "errors", "classical")
ROLLOUT = ("rollout", "correlation_time", "spectrum")
COUNTED = ("training", "accuracy")


class CardError(ValueError):
    """A checkpoint's own card lacks keys that every published card has."""


def card(checkpoint: Checkpoint, model: str, version: int, format_: str) -> dict[str, Any]:
    """Compose the card of one version.

    Args:
        checkpoint: What is published.
        model: The model's name.
        version: The version's number.
        format_: The format of its graph.

    Returns:
        The card.

    Raises:
        CardError: The checkpoint's card does not say how it was trained and measured.
    """
    problem, signature = checkpoint.description, Signature.of_checkpoint(checkpoint)
    measured = COUNTED if isinstance(problem, SequenceDescription) else MEASURED
    if missing := [key for key in measured if key not in checkpoint.card]:
        raise CardError(
            f"expected {', '.join(measured)} in the checkpoint's card.json but {', '.join(missing)} is missing"
        )
    return {
        "model": model,
        "version": version,
        "format": format_,
        "formats": list(checkpoint.formats),
        "title": problem.title,
        "problem": problem.name,
        **task(problem),
        "inputs": dumped(signature.inputs),
        **({"parameters": dumped(signature.parameters)} if signature.parameters else {}),
        "outputs": dumped(signature.outputs),
        **({"quality": list(signature.quality)} if signature.quality else {}),
        **({"frames": signature.frames.model_dump(mode="json")} if signature.frames else {}),
        "grid": signature.grid.model_dump(mode="json"),
        **({"vocabulary": signature.vocabulary.model_dump(mode="json")} if signature.vocabulary else {}),
        "limits": {"batch": signature.batch},
        **{key: checkpoint.card[key] for key in measured},
        **{key: checkpoint.card[key] for key in ROLLOUT if key in checkpoint.card},
        **({"calibration": checkpoint.card["calibration"]} if "calibration" in checkpoint.card else {}),
        "checkpoint": {"sha256": checkpoint.digest, "parameters": parameters(checkpoint)},
    }


def dumped(specs: Sequence[BaseModel]) -> list[dict[str, Any]]:
    """Return tensors as JSON."""
    return [spec.model_dump(mode="json") for spec in specs]


def task(problem: Description | SequenceDescription) -> dict[str, str]:
    """Return what is solved: an equation and its boundary condition, or a task in words."""
    if isinstance(problem, SequenceDescription):
        return {"task": problem.task}
    return {"equation": problem.equation, "boundary": problem.boundary}


def parameters(checkpoint: Checkpoint) -> int:
    """Count the learned parameters."""
    return sum(parameter.numel() for parameter in checkpoint.operator.parameters())
