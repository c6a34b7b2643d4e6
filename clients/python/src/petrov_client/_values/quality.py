"""What is known about the errors of predictions, and what a caller wants where they may not be accurate enough."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Mapping

Numbers = npt.NDArray[np.float32]
Outside = Literal["answer", "solve", "refuse"]

#: An input is *outside* where fewer calibration inputs than this are as unusual.
OUTSIDE = 0.01
ERROR_BOUND, CORRECTION, MISFIT, ERROR_ESTIMATE, NOVELTY = NAMES = (
    "error_bound",
    "correction",
    "misfit",
    "error_estimate",
    "novelty",
)


class OutsideTrainingWarning(UserWarning):
    """An input is unlike the training data of the model, so its prediction may be wrong.

    It is issued where the quality is not requested. `predict(..., quality=True)` says which inputs these are.
    """


class IncompleteRolloutWarning(UserWarning):
    """A rollout ended with an error after some frames, which `rollout(..., partial=True)` returns."""


@dataclass(frozen=True)
class Quality:
    """What is known about the errors of a prediction.

    The numbers are arrays `[batch]`, or single numbers for a single field, and of trajectories `[(batch), frame]`; None
    where the model does not report them, and NaN where one is not known.

    Attributes:
        error_bound: Guaranteed relative energy-norm distance to the discrete solution on the given grid.
        correction: Guaranteed relative energy-norm distance to the discrete solution without the network's corrections.
        misfit: Relative L2 distance between the input of an inverse model and the forward solution of the output.
        error_estimate: Relative L2 error that at least 90 % of inputs of the training distribution stay below.
        novelty: Share of calibration inputs that are at least as unusual as the input.
        outside: Whether the input is unlike the training data: its novelty is below 0.01. A trajectory stays outside
            from the first frame that follows from such a state.
        solved_by: What computed the outputs: "network", "solver", or "mixed" for a batch of both.
    """

    error_bound: Any = None
    correction: Any = None
    misfit: Any = None
    error_estimate: Any = None
    novelty: Any = None
    outside: Any = None
    solved_by: str = "network"


@dataclass(frozen=True)
class Options:
    """What a caller wants besides the outputs.

    Attributes:
        quality: Whether the numbers of every field are wanted.
        tolerance: The largest error bound; None for any.
        outside: What happens to an input that is unlike the training data.
        frames: How many frames of a trajectory follow; None for any other model, or for the model's default.
        after: Frames of the trajectory before the state that is sent.
        partial: Whether a rollout goes on without the samples that the model fails on.
    """

    quality: bool = False
    tolerance: float | None = None
    outside: Outside = "answer"
    frames: int | None = None
    after: int = 0
    partial: bool = False

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: The tolerance is no positive number, or `outside` is none of its values.
        """
        if self.tolerance is not None and not 0 < self.tolerance < math.inf:
            raise ValueError(f"tolerance: expected a positive number but got {self.tolerance}")
        if self.outside not in get_args(Outside):
            raise ValueError(f'outside: expected {" or ".join(get_args(Outside))} but got "{self.outside}"')

    @property
    def warns(self) -> bool:
        """Whether the caller is warned of inputs outside, about which nothing else says anything."""
        return not self.quality and self.outside == "answer" and self.tolerance is None

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the request; those that change nothing are left out."""
        found = {} if self.tolerance is None else {"tolerance": repr(self.tolerance)}
        if self.frames is not None:
            found["frames"] = str(self.frames)
        if self.after:
            found["after"] = str(self.after)
        if self.partial:
            found["partial"] = "true"
        return found if self.outside == "answer" else {**found, "outside": self.outside}


@dataclass(frozen=True)
class Response:
    """The response for one piece of a batch.

    Attributes:
        outputs: Batches `[batch, …]` by name.
        numbers: What is known about them, `[batch]` by name.
        outside: Whether any input of the piece is outside, as far as the service says.
        solved_by: What computed the outputs.
    """

    outputs: Mapping[str, Numbers]
    numbers: Mapping[str, Numbers] = field(default_factory=dict)
    outside: bool = False
    solved_by: str = "network"


def quality_of(numbers: Mapping[str, Numbers], solved_by: set[str], *, single: bool) -> Quality:
    """Return the quality of a prediction.

    Args:
        numbers: All numbers `[batch]`, or `[batch, frame]`, by name.
        solved_by: What computed the pieces.
        single: Whether the prediction is for a single field.
    """
    found: dict[str, Any] = {name: numbers[name] for name in NAMES if name in numbers}
    if NOVELTY in found:
        below = found[NOVELTY] < OUTSIDE
        found["outside"] = np.logical_or.accumulate(below, axis=1) if below.ndim > 1 else below
    if single:
        found = {name: values[0] if values.ndim > 1 else values[0].item() for name, values in found.items()}
    return Quality(**found, solved_by=next(iter(solved_by)) if len(solved_by) == 1 else "mixed")


def warn(model: str) -> None:
    """Issue the warning that inputs are outside, at the line of the caller of `predict` or `stream`."""
    warnings.warn(
        f'some inputs are unlike the training data of "{model}" (novelty below {OUTSIDE:g}), so their predictions may '
        "be wrong; quality=True says which",
        OutsideTrainingWarning,
        stacklevel=3,
    )
