"""What is known about the errors of predictions as columns of an output file, and as one sentence.

A column has a number per field or, in a file of trajectories, per frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from petrov_client._values.models import TensorInfo
from petrov_client._values.quality import CORRECTION, ERROR_BOUND, ERROR_ESTIMATE, MISFIT, NOVELTY, OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from petrov_client._values.models import ModelInfo
    from petrov_client._values.quality import Quality

#: The further column of trajectories. Of fields `novelty` says the same.
FOLLOWS_OUTSIDE = TensorInfo(
    "outside", ("batch",), "1", "1 from the first frame that follows from a state unlike the training data"
)
MEANINGS = {
    ERROR_BOUND: "guaranteed relative energy-norm distance to the discrete solution",
    CORRECTION: "guaranteed relative energy-norm distance to the discrete solution without corrections",
    MISFIT: "relative L2 distance between the input and the forward solution of the output",
    ERROR_ESTIMATE: "relative L2 error that 90 % of inputs of the training distribution stay below",
    NOVELTY: "share of calibration inputs that are at least as unusual",
}


def tensors(info: ModelInfo) -> tuple[TensorInfo, ...]:
    """Return the columns of a model: one number per field for each of the numbers that it reports."""
    return tuple(TensorInfo(name, ("batch",), "1", MEANINGS.get(name, "")) for name in info.quality)


def arrays(info: ModelInfo, quality: Quality) -> dict[str, Any]:
    """Return the numbers of a prediction by name: `[batch]`, or single numbers for a single field."""
    found = {name: getattr(quality, name, None) for name in info.quality}
    return {name: np.asarray(value, np.float32) for name, value in found.items() if value is not None}


def frame_tensors(info: ModelInfo) -> tuple[TensorInfo, ...]:
    """Return the columns of a model of trajectories: one number per frame."""
    return (*tensors(info), *((FOLLOWS_OUTSIDE,) if NOVELTY in info.quality else ()))


def of_frame(info: ModelInfo, quality: Quality, batch: tuple[int, ...]) -> dict[str, Any]:
    """Return the numbers of a frame by name, NaN where one is not known.

    Args:
        info: The model.
        quality: What is known about the frame.
        batch: The shape of each: `(samples,)`, or `()` for a single sample.
    """
    found = {tensor.name: getattr(quality, tensor.name, None) for tensor in frame_tensors(info)}
    return {
        name: np.array(np.broadcast_to(np.nan if value is None else value, batch), np.float32)
        for name, value in found.items()
    }


def sentence(numbers: Mapping[str, Any]) -> str:
    """Return what the numbers say: the range of each, and how many inputs are unlike the training data.

    Args:
        numbers: Numbers by name, at least one; NaN where one is not known.
    """
    parts = [f"{name} {span(np.atleast_1d(values))}" for name, values in numbers.items()]
    if NOVELTY in numbers:
        novelty = np.atleast_1d(numbers[NOVELTY])
        parts.append(f"{int((novelty < OUTSIDE).sum())} of {len(novelty)} inputs unlike the training data")
    return ", ".join(parts)


def published(info: ModelInfo, grid: tuple[int, ...]) -> str:
    """Return the relative error that the card publishes for a grid, in a few words; empty where it has none."""
    rows = [row for row in info.card.get("errors", ()) if tuple(row.get("grid", ())) == grid]
    errors = [float(row["relative_l2"]) for row in rows if "relative_l2" in row]
    return f"mean relative error of test samples {span(np.array(errors))}" if errors else ""


def span(values: Any) -> str:
    """Return the range of the finite numbers of an array."""
    known = values[np.isfinite(values)]
    if not len(known):
        return "unknown"
    low, high = float(known.min()), float(known.max())
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
