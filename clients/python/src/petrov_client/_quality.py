"""What is known about the errors of predictions, and what a caller wants where they may not be accurate enough."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from petrov_client._descriptions import readable
from petrov_client._errors import issue
from petrov_client._flow import TIMEOUT_SECONDS, Progress
from petrov_client._html import html_table
from petrov_client._models import ModelInfo
from petrov_client._schema import FRAME, QUALITY, TensorInfo

Numbers = npt.NDArray[np.float32]
Outside = Literal["answer", "solve", "refuse"]

#: What computes outputs that follow from the equation and from no training.
METHODS = frozenset({"refined", "solver"})
#: An estimate that held for fewer test fields than this is not shown as one.
RELIABLE = 0.7
#: An input is *outside* where fewer calibration inputs than this are as unusual.
OUTSIDE = 0.01
ERROR_BOUND, SOLVE_BOUND, MISFIT, ERROR_ESTIMATE, NOVELTY = NAMES = (
    "error_bound",
    "solve_bound",
    "misfit",
    "error_estimate",
    "novelty",
)


INTERVALS = f"{ERROR_ESTIMATE}."  # how the names of half-widths begin, before that of the output


def is_quality(name: str) -> bool:
    """Return whether an output says something about the others."""
    return name in NAMES or name.startswith(INTERVALS)


class OutsideTrainingWarning(UserWarning):
    """An input is unlike the training data of the network that predicted its outputs, which may be wrong.

    A refined or classical solution depends on no training, so there is no warning of it, nor where the quality is
    requested: `predict(..., quality=True)` says which inputs are outside.
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
        coverage: The share of test fields for which `error_estimate` held, on the nearest grid and noise that the card
            has; below 0.7 the estimate is not reliable there. None of another version than the newest, whose
            card the service describes.
        intervals: By the name of an output that is a number per field, one of several outputs, the half-width in its
            units of an interval that holds the truth of at least 90 % of inputs of the training distribution: `[batch]`
            or `[batch, component]`. That of the only output of a model is `error_estimate`.
    """

    error_bound: Any = None
    solve_bound: Any = None
    misfit: Any = None
    error_estimate: Any = None
    novelty: Any = None
    outside: Any = None
    solved_by: str = "network"
    coverage: float | None = None
    intervals: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        parts = [f"{name}={values!r}{self._remark(name)}" for name, values in self._known()]
        return f"Quality({', '.join([*parts, f'solved_by={self.solved_by!r}'])})"

    def _repr_html_(self) -> str:
        rows = [(name, f"{values}{self._remark(name)}") for name, values in self._known()]
        return html_table(("", ""), [*rows, ("solved by", self.solved_by)])

    def _known(self) -> list[tuple[str, Any]]:
        """Return the numbers that are known, without an estimate that is not reliable."""
        known = [(name, getattr(self, name)) for name in (*NAMES, "outside")]
        known.append(("intervals", dict(self.intervals) or None))
        hidden = {ERROR_ESTIMATE: "unknown"} if self.coverage is not None and self.coverage < RELIABLE else {}
        return [(name, hidden.get(name, values)) for name, values in known if values is not None]

    def _remark(self, name: str) -> str:
        return f" ({held(self.coverage)})" if name == ERROR_ESTIMATE and self.coverage is not None else ""


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
    grid: int | Sequence[int] | None = None  # of the outputs of a model whose inputs are numbers alone
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
        if self.grid is not None:
            found["grid"] = ",".join(map(str, np.atleast_1d(self.grid)))
        if self.after:
            found["after"] = str(self.after)
        if self.partial:
            found["partial"] = "true"
        return found if self.outside == "answer" else {**found, "outside": self.outside}


PLAIN = Options()
#: Digits of a version, which Triton keeps in 64 bits.
LONGEST_VERSION = 20


@dataclass(frozen=True)
class Response:
    """The response for one piece of a batch."""

    outputs: Mapping[str, Numbers]  # [batch, …]
    numbers: Mapping[str, Numbers] = field(default_factory=dict)  # what is known about them, [batch]
    outside: bool = False  # whether any input of the piece is, as far as the service says
    solved_by: str = "network"
    version: int | None = None  # of the model, as far as the service says

    @property
    def doubtful(self) -> bool:
        """Whether an input is outside whose outputs come from the network."""
        return self.outside and self.solved_by not in METHODS


def version_number(text: str) -> int | None:
    """Return the version of a model that a response names, or None."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < LONGEST_VERSION else None


def held(coverage: float) -> str:
    """Return what the measured coverage of an error estimate says about it."""
    return f"{'' if coverage >= RELIABLE else 'not reliable here: '}held for {coverage:.0%} of test fields"


@readable("the calibration in a card")
def coverage_of(info: ModelInfo, grid: Sequence[int], noise: Sequence[float] = ()) -> float | None:
    """Return the share of test fields for which the error estimate held, of the nearest row of the card.

    Args:
        info: The model.
        grid: Points per axis of the fields.
        noise: The noise of each field, where the model takes one; of several and of an unknown one, below 0, the worst.

    Returns:
        The share, or None where the card has no row.
    """
    test = (info.card.get("calibration") or {}).get("test") or ()
    rows = [row for row in test if row.get("coverage") is not None and row.get("grid")]
    if not rows:
        return None

    def apart(row: Mapping[str, Any]) -> float:
        return sum(abs(math.log(a / b)) for a, b in zip(row["grid"], grid, strict=False))

    least = min(map(apart, rows))
    near = [row for row in rows if apart(row) == least]
    levels = np.array([float(row.get("noise") or 0) for row in near])
    if len(noise) and min(noise) >= 0:
        nearest = {float(levels[np.abs(levels - each).argmin()]) for each in noise}
        near = [row for row, level in zip(near, levels, strict=True) if level in nearest]
    return float(min(row["coverage"] for row in near))


def quality_of(
    numbers: Mapping[str, Numbers],
    solved_by: set[str],
    *,
    single: bool,
    coverage: float | None = None,
    left: npt.NDArray[np.bool_] | None = None,
) -> Quality:
    """Return the quality of a prediction; of a frame `left` says which samples have been outside before."""
    found: dict[str, Any] = {name: numbers[name] for name in NAMES if name in numbers}
    halves = {name.removeprefix(INTERVALS): each for name, each in numbers.items() if name.startswith(INTERVALS)}
    if NOVELTY in found:
        below = found[NOVELTY] < OUTSIDE
        found["outside"] = np.logical_or.accumulate(below, axis=1) if below.ndim > 1 else below
        if left is not None:
            found["outside"] = found["outside"] | left
    estimated = ERROR_ESTIMATE in found and bool(np.isfinite(found[ERROR_ESTIMATE]).any())
    if single:
        found, halves = (
            {name: values[0] if values.ndim > 1 else values[0].item() for name, values in some.items()}
            for some in (found, halves)
        )
    known = coverage if estimated else None
    return Quality(**found, solved_by=one_solver(solved_by), coverage=known, intervals=halves)


def one_solver(solved_by: set[str]) -> str:
    """Return what computed all pieces; "mixed" where they differ."""
    return next(iter(solved_by)) if len(solved_by) == 1 else "mixed"


def warn(model: str) -> None:
    """Warn of inputs outside."""
    issue(
        f'some inputs are unlike the training data of "{model}" (novelty below {OUTSIDE:g}, as {OUTSIDE:.0%} of inputs '
        "like it are by chance), so what its network predicts for them may be wrong; quality=True says which",
        OutsideTrainingWarning,
    )


#: The further column of trajectories. Of fields `novelty` says the same.
FOLLOWS_OUTSIDE = TensorInfo(
    "outside", ("batch", FRAME), "1", "1 from the first frame that follows from a state unlike the training data"
)


def columns(info: ModelInfo) -> tuple[TensorInfo, ...]:
    """Return what a model reports about its errors: numbers per field, or per frame of a trajectory."""
    axes = ("batch",) if info.frames is None else ("batch", FRAME)
    found = [TensorInfo(name, axes, "1", QUALITY.get(name, "")) for name in info.quality if name in NAMES]
    found += intervals_of(info)
    return (*found, *((FOLLOWS_OUTSIDE,) if info.frames is not None and NOVELTY in info.quality else ()))


def intervals_of(info: ModelInfo) -> tuple[TensorInfo, ...]:
    """Return the half-widths of the intervals of outputs that are numbers, where there are several outputs."""
    return tuple(
        TensorInfo(f"{INTERVALS}{one.name}", one.axes, one.units, f"half-width of an interval around {one.name}")
        for one in info.outputs
        if f"{INTERVALS}{one.name}" in info.quality
    )


def column_arrays(info: ModelInfo, quality: Quality) -> dict[str, Any]:
    """Return the numbers of a prediction by name: `[batch]`, or single numbers for a single field."""
    found = {name: getattr(quality, name, None) for name in info.quality}
    found |= {f"{INTERVALS}{name}": half for name, half in quality.intervals.items()}
    return {name: np.asarray(value, np.float32) for name, value in found.items() if value is not None}


def columns_of_frame(info: ModelInfo, quality: Quality, batch: tuple[int, ...]) -> dict[str, Any]:
    """Return the numbers of a frame by name, NaN where one is not known."""
    found: dict[str, Any] = {tensor.name: getattr(quality, tensor.name, None) for tensor in columns(info)}
    found |= {f"{INTERVALS}{name}": half for name, half in quality.intervals.items()}
    return {
        name: np.array(np.broadcast_to(np.nan if value is None else value, batch), np.float32)
        for name, value in found.items()
    }
