"""The sections of a problem file: where the data are, time, points, the mask and symmetries."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from schema.problem import Frozen, Name, Time
from training.user_error import UserError


class ProblemFileError(UserError):
    """A problem file cannot be used: the message names the file, the key, what was expected and what was found."""


class DataError(UserError):
    """Data do not fit their problem file: the message names file, array and, where there is one, sample and index."""


def checked_share(value: float | int) -> float | int:  # noqa: PYI041 -- annotations are checked at run time
    """Return a share between 0 and 1, or a whole number of samples."""
    if 0 < value < 1:
        return value
    if value >= 1 and value == value // 1:
        return int(value)
    raise ValueError("expected a share between 0 and 1 or a whole number of samples")


Share = Annotated[float | int, AfterValidator(checked_share)]


class CoarseSection(Frozen):
    """Samples of the same problem on a coarser grid, all of which are for training."""

    files: tuple[str, ...] = Field(min_length=1)  # as those of `data`
    format: str = "auto"


class DataSection(Frozen):
    """Where the simulations are, and which of them are kept apart."""

    # Relative to the problem file; patterns such as `run-*.h5` are allowed; several files are concatenated.
    files: tuple[str, ...] = Field(min_length=1)
    format: str = "auto"  # the files' layout; `auto` decides by suffix and contents
    # Where samples are counted: on the first or the last axis of the arrays; `file`: every file is one sample; `group`:
    # every group of an HDF5 file is one.
    sample: Literal["first", "last", "file", "group"] = "first"
    # Whether the time axis is the first or the last one behind the samples'.
    time: Literal["first", "last"] = "first"
    # The earlier model that a training may start from: its folder, relative to this file, or its name in runs or
    # checkpoints.
    finetune: str | None = None
    coarse: CoarseSection | None = None  # cheaper samples that a training begins with
    # Share or number of samples for every decision, taken from the end, before the test samples.
    validation: Share = 0.1
    test: Share = 0.1  # share or number of samples that are used once, for the card, taken from the end

    @property
    def all_for_training(self) -> bool:
        """Whether no samples are kept apart, as of coarse ones."""
        return self.validation == self.test == 0

    def counts(self, samples: int) -> tuple[int, int, int]:
        """Return the numbers of training, validation and test samples.

        Raises:
            ProblemFileError: A split would be empty.
        """
        if self.all_for_training:
            return samples, 0, 0
        validation, test = (
            share if isinstance(share, int) else max(1, round(share * samples))
            for share in (self.validation, self.test)
        )
        train = samples - validation - test
        if min(train, validation, test) < 1:
            raise ProblemFileError(
                f"data: expected at least one sample for training, validation and test but {samples} samples give "
                f"{train}, {validation} and {test}"
            )
        return train, validation, test


class SymmetrySection(Frozen):
    """The symmetries that hold exactly for equation, data and boundary; none by default."""

    exact: tuple[str, ...] = ()


class TimeSection(Time):
    """The time axis of trajectories `[sample, time, *grid]`."""

    # Frames of the rollouts that are compared on validation samples; by default a quarter of a trajectory.
    horizon: PositiveInt | None = None
    conserved: tuple[Name, ...] = ()  # outputs whose mean over a periodic grid stays exactly what it is


class PointsSection(Frozen):
    """The points of samples that have their own, of a mesh or a cloud, instead of a grid's axes."""

    # The array `[sample, point, dimension]`, or `[point, dimension]` of one fixed mesh; in mesh files the nodes, and
    # the key is left out.
    coordinates: str = "coordinates"
    # The array `[sample]` of how many points of each sample are valid, where the arrays are padded.
    counts: str | None = None
    dimensions: Literal[2, 3] = 2
    # The array `[sample, point]` of what every point counts in the loss and in errors, such as `area`, the area of the
    # cells around each node of mesh files; left out, all points count alike.
    weights: str | None = None
    # Whether points at one place, as those of discontinuous elements, are one point with the mean of their values.
    merge: bool = False


class MaskSection(Frozen):
    """The domain of fields on a grid, where it is not the whole grid: one of both."""

    key: str | None = None  # the array `[sample, *grid]`, or `[*grid]` of one domain for all: 1 inside, 0 outside
    nan: str | None = None  # the array whose NaN mark what lies outside

    @model_validator(mode="after")
    def check_one(self) -> MaskSection:
        """Require one source of the mask."""
        if (self.key is None) == (self.nan is None):
            raise ValueError("expected either key (an array of 1 inside, 0 outside) or nan (an array with NaN outside)")
        return self
