"""Takes a checkpoint and a version number, gives `card.json`: what is answered, within which limits, how well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from export.signature import Signature

if TYPE_CHECKING:
    from training.checkpoint import Checkpoint

#: What the training measured and the card passes on.
MEASURED = ("training", "errors", "classical")


class CardError(ValueError):
    """A checkpoint's own card lacks what every published card has."""


def card(checkpoint: Checkpoint, model: str, version: int, format_: str) -> dict[str, Any]:
    """Compose the card of one version.

    Raises:
        CardError: the checkpoint's card does not tell how it was trained and measured.
    """
    if missing := [key for key in MEASURED if key not in checkpoint.card]:
        raise CardError(
            f"expected {', '.join(MEASURED)} in the checkpoint's card.json but {', '.join(missing)} is missing"
        )
    problem, signature = checkpoint.problem, Signature.of(checkpoint.problem)
    return {
        "model": model,
        "version": version,
        "format": format_,
        "title": problem.title,
        "problem": problem.name,
        "equation": problem.equation,
        "boundary": problem.boundary,
        "inputs": [signature.input.model_dump(mode="json")],
        "outputs": [signature.output.model_dump(mode="json")],
        "grid": signature.grid.model_dump(mode="json"),
        "limits": {"batch": signature.batch},
        **{key: checkpoint.card[key] for key in MEASURED},
        "checkpoint": {"sha256": checkpoint.digest, "parameters": parameters(checkpoint)},
    }


def parameters(checkpoint: Checkpoint) -> int:
    """Count what was learned."""
    return sum(parameter.numel() for parameter in checkpoint.operator.parameters())
