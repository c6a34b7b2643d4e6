"""Takes a checkpoint and a version number, gives `card.json`: what is answered, within which limits, how well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from export.signature import Signature
from training.sequences.sequence_description import SequenceDescription

if TYPE_CHECKING:
    from training.checkpoint import Checkpoint
    from training.problems.description import Description

#: What the training measured of operators and of networks of sequences, and the card passes on.
MEASURED = ("training", "errors", "classical")
COUNTED = ("training", "accuracy")


class CardError(ValueError):
    """A checkpoint's own card lacks what every published card has."""


def card(checkpoint: Checkpoint, model: str, version: int, format_: str) -> dict[str, Any]:
    """Compose the card of one version.

    Raises:
        CardError: the checkpoint's card does not tell how it was trained and measured.
    """
    problem, signature = checkpoint.description, Signature.of(checkpoint.description)
    measured = COUNTED if isinstance(problem, SequenceDescription) else MEASURED
    if missing := [key for key in measured if key not in checkpoint.card]:
        raise CardError(
            f"expected {', '.join(measured)} in the checkpoint's card.json but {', '.join(missing)} is missing"
        )
    return {
        "model": model,
        "version": version,
        "format": format_,
        "title": problem.title,
        "problem": problem.name,
        **asked(problem),
        "inputs": [signature.input.model_dump(mode="json")],
        "outputs": [signature.output.model_dump(mode="json")],
        "grid": signature.grid.model_dump(mode="json"),
        **({"vocabulary": signature.vocabulary.model_dump(mode="json")} if signature.vocabulary else {}),
        "limits": {"batch": signature.batch},
        **{key: checkpoint.card[key] for key in measured},
        "checkpoint": {"sha256": checkpoint.digest, "parameters": parameters(checkpoint)},
    }


def asked(problem: Description | SequenceDescription) -> dict[str, str]:
    """Tell what is solved: an equation and its boundary condition, or a task in words."""
    if isinstance(problem, SequenceDescription):
        return {"task": problem.task}
    return {"equation": problem.equation, "boundary": problem.boundary}


def parameters(checkpoint: Checkpoint) -> int:
    """Count what was learned."""
    return sum(parameter.numel() for parameter in checkpoint.operator.parameters())
