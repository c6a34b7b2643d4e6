"""The content of `card.json`: what a model computes, within which limits, and how well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from export.signature import Signature
from schema.card import Card
from schema.problem import SequenceDescription
from training.calibration.calibration import FEWEST_FITTED
from training.calibration.error_estimate import fewest
from training.precision import FLOAT32

if TYPE_CHECKING:
    from collections.abc import Mapping

    from training.checkpoint import Checkpoint

#: What was measured of operators and of networks of sequences, and is copied to the card.
MEASURED = ("training", "errors", "classical")
ROLLOUT = ("rollout", "correlation_time", "spectrum")
OPTIONAL = ("measures", "scalars", *ROLLOUT, "calibration")
COUNTED = ("training", "accuracy")
LARGE = 0.2  # a mean error above this is said first
COVERED = 0.8  # and that fewer test samples than this have an error below their estimate, of which 90 % should


class CardError(ValueError):
    """A checkpoint's own card lacks keys that every published card has."""


def card(checkpoint: Checkpoint, model: str, version: int, format_: str) -> Card:
    """Compose the card of one version.

    Raises:
        CardError: The checkpoint's card does not say how it was trained and measured.
    """
    problem, signature = checkpoint.description, Signature.of_checkpoint(checkpoint)
    measured = COUNTED if isinstance(problem, SequenceDescription) else MEASURED
    if missing := [key for key in measured if key not in checkpoint.card]:
        raise CardError(
            f"expected {', '.join(measured)} in the checkpoint's card.json but {', '.join(missing)} is missing"
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
            **{key: checkpoint.card[key] for key in (*measured, *OPTIONAL) if key in checkpoint.card},
            "checkpoint": {
                "sha256": checkpoint.digest,
                "parameters": sum(parameter.numel() for parameter in checkpoint.operator.parameters()),
            },
        }
    )


def document(card: Card) -> dict[str, Any]:
    """Return what `card.json` holds: what is said of this model, without what it has none of."""
    return card.model_dump(mode="json", exclude_unset=True)


def warnings(measured: Mapping[str, Any], signature: Signature) -> list[str]:
    """Say what to know before a model is trusted: large errors, and estimates that do not hold or are missing."""
    found = []
    rows = [row for row in measured.get("errors", ()) if row["relative_l2"] > LARGE]
    if rows:
        worst = max(rows, key=lambda row: row["relative_l2"])
        points = " x ".join(map(str, worst["grid"]))
        found.append(f"The mean relative L2 error of test samples is {worst['relative_l2']:.0%} on {points} points.")
    held = measured.get("calibration", {}).get("test", ())
    if poor := [row for row in held if row.get("coverage", 1.0) < COVERED]:
        worst = min(poor, key=lambda row: row["coverage"])
        points, noisy = " x ".join(map(str, worst["grid"])), any("noise" in row for row in held)
        noise = f" with {worst['noise']:.0%} of noise" if "noise" in worst else " without noise" if noisy else ""
        tested = f"test trajectories in frame {worst['frame']:g}" if "frame" in worst else "test samples"
        found.append(f"The error_estimate held for {worst['coverage']:.0%} of the {tested} on {points} points{noise}.")
    by_frame = any("error_estimate" in row for row in measured.get("rollout", ()))
    trained = signature.vocabulary is None and measured.get("training", {}).get("epochs") != 0
    if trained and not by_frame and "error_estimate" not in signature.quality:
        fitted = "" if "calibration" in measured else f"{FEWEST_FITTED} training samples and "
        found.append(
            f"There is no error_estimate: it takes at least {fitted}{fewest()} validation samples on each grid, and "
            "this model was calibrated with fewer or not at all."
        )
    return found
