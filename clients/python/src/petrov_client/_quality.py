"""What is known about the errors of predictions, and what a caller wants where they may not be accurate enough."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from petrov_client._flow import TIMEOUT_SECONDS, Progress
from petrov_client._models import ModelInfo, TensorInfo

Numbers = npt.NDArray[np.float32]
Outside = Literal["answer", "solve", "refuse"]

#: An input is *outside* where fewer calibration inputs than this are as unusual.
OUTSIDE = 0.01
ERROR_BOUND, SOLVE_BOUND, MISFIT, ERROR_ESTIMATE, NOVELTY = NAMES = (
    "error_bound",
    "solve_bound",
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
        error_bound: Guaranteed relative energy-norm distance to the discrete solution of the equation as it was sent,
            on the given grid.
        solve_bound: The same distance to the discrete solution of the equation as the network corrected it.
        misfit: Relative L2 distance between the input of an inverse model and the forward solution of the output.
        error_estimate: Relative L2 error that at least 90 % of inputs of the training distribution stay below.
        novelty: Share of calibration inputs that are at least as unusual as the input.
        outside: Whether the input is unlike the training data: its novelty is below 0.01. A trajectory stays outside
            from the first frame that follows from such a state.
        solved_by: What computed the outputs: "network", "refined" (its method alone, with more iterations), "solver"
            (the classical one), or "mixed" for a batch of several.
    """

    error_bound: Any = None
    solve_bound: Any = None
    misfit: Any = None
    error_estimate: Any = None
    novelty: Any = None
    outside: Any = None
    solved_by: str = "network"


@dataclass(frozen=True)
class Options:
    """What a caller wants of the service besides the outputs; see `predict` and `rollout`."""

    version: int | None = None
    timeout: float = TIMEOUT_SECONDS
    progress: Progress = False
    quality: bool = False
    tolerance: float | None = None
    outside: Outside = "answer"
    frames: int | None = None
    after: int = 0  # frames of the trajectory before the state that is sent
    partial: bool = False

    def __post_init__(self) -> None:
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


PLAIN = Options()


@dataclass(frozen=True)
class Response:
    """The response for one piece of a batch."""

    outputs: Mapping[str, Numbers]  # [batch, …]
    numbers: Mapping[str, Numbers] = field(default_factory=dict)  # what is known about them, [batch]
    outside: bool = False  # whether any input of the piece is, as far as the service says
    solved_by: str = "network"


def quality_of(numbers: Mapping[str, Numbers], solved_by: set[str], *, single: bool) -> Quality:
    """Return the quality of a prediction."""
    found: dict[str, Any] = {name: numbers[name] for name in NAMES if name in numbers}
    if NOVELTY in found:
        below = found[NOVELTY] < OUTSIDE
        found["outside"] = np.logical_or.accumulate(below, axis=1) if below.ndim > 1 else below
    if single:
        found = {name: values[0] if values.ndim > 1 else values[0].item() for name, values in found.items()}
    return Quality(**found, solved_by=one_solver(solved_by))


def one_solver(solved_by: set[str]) -> str:
    """Return what computed all pieces; "mixed" where they differ."""
    return next(iter(solved_by)) if len(solved_by) == 1 else "mixed"


def warn(model: str) -> None:
    """Warn of inputs outside."""
    issue(
        f'some inputs are unlike the training data of "{model}" (novelty below {OUTSIDE:g}), so their predictions may '
        "be wrong; quality=True says which",
        OutsideTrainingWarning,
    )


def issue(text: str, category: type[Warning]) -> None:
    """Issue a warning at the line of the caller of this package, however many of its functions are between."""
    level, frame = 1, sys._getframe()  # noqa: SLF001  as `warnings` does
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("petrov_client."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


#: The further column of trajectories. Of fields `novelty` says the same.
FOLLOWS_OUTSIDE = TensorInfo(
    "outside", ("batch",), "1", "1 from the first frame that follows from a state unlike the training data"
)
MEANINGS = {
    ERROR_BOUND: "guaranteed relative energy-norm distance to the discrete solution",
    SOLVE_BOUND: "guaranteed relative energy-norm distance to the discrete solution with the network's corrections",
    MISFIT: "relative L2 distance between the input and the forward solution of the output",
    ERROR_ESTIMATE: "relative L2 error that 90 % of inputs of the training distribution stay below",
    NOVELTY: "share of calibration inputs that are at least as unusual",
}


def columns(info: ModelInfo) -> tuple[TensorInfo, ...]:
    """Return what a model reports about its errors: one number per field, or per frame of a trajectory."""
    found = [TensorInfo(name, ("batch",), "1", MEANINGS.get(name, "")) for name in info.quality]
    return (*found, *((FOLLOWS_OUTSIDE,) if info.frames is not None and NOVELTY in info.quality else ()))


def column_arrays(info: ModelInfo, quality: Quality) -> dict[str, Any]:
    """Return the numbers of a prediction by name: `[batch]`, or single numbers for a single field."""
    found = {name: getattr(quality, name, None) for name in info.quality}
    return {name: np.asarray(value, np.float32) for name, value in found.items() if value is not None}


def columns_of_frame(info: ModelInfo, quality: Quality, batch: tuple[int, ...]) -> dict[str, Any]:
    """Return the numbers of a frame by name, NaN where one is not known."""
    found = {tensor.name: getattr(quality, tensor.name, None) for tensor in columns(info)}
    return {
        name: np.array(np.broadcast_to(np.nan if value is None else value, batch), np.float32)
        for name, value in found.items()
    }
