"""The documents of `/v1/models/{model}/inversions`, and the result of a job as a body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
import orjson
from numpy.typing import NDArray  # noqa: TC002  pydantic reads annotations at run time
from pydantic import BaseModel, ConfigDict, Field, model_validator

from physics.posterior.prior import MODES, LogNormal, Material, TwoMaterials
from serving.codecs import binary
from serving.document import JSON, Document
from serving.errors import Problem, ProblemDetails
from serving.inversion.jobs import State  # noqa: TC001  as above

if TYPE_CHECKING:
    from serving.inversion.jobs import Job

MOST_SENSORS, MOST_MODES, MOST_SAMPLES = 1024, 256, 1000

NestedList = list[Any]
Part = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=1e-12, lt=1e12)]
Finite = Annotated[float, Field(gt=-1e12, lt=1e12)]


class Strict(BaseModel):
    """A part of a request: immutable, no unknown key, and no text where a number is expected."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class SmoothPrior(Strict):
    """A smooth input: the exponential of a Gaussian field."""

    kind: Literal["log-normal"]
    median: Positive = LogNormal.median
    deviation: Annotated[float, Field(gt=1e-3, le=5)] = Field(
        default=LogNormal.deviation, description="Standard deviation of the logarithm."
    )

    @property
    def material(self) -> Material:
        """The input as a function of the Gaussian field."""
        return LogNormal(self.median, self.deviation)


class TwoMaterialsPrior(Strict):
    """Two materials on both sides of the zero level of a Gaussian field."""

    kind: Literal["two-materials"]
    low: Positive = TwoMaterials.low
    high: Positive = TwoMaterials.high
    width: Annotated[float, Field(ge=0.01, le=5)] = Field(
        default=TwoMaterials.width,
        description="Half the width of the step between them, in standard deviations of the field.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.low < self.high:
            raise ValueError("expected low < high")
        return self

    @property
    def material(self) -> Material:
        """The input as a function of the Gaussian field."""
        return TwoMaterials(self.low, self.high, self.width)


class InversionRequest(Strict):
    """`POST /v1/models/{model}/inversions`."""

    sensors: Annotated[tuple[tuple[Part, Part], ...], Field(min_length=1, max_length=MOST_SENSORS)] = Field(
        description="Positions (row, column) in sides of the domain, from 0 to 1.", examples=[[[0.25, 0.5], [0.5, 0.5]]]
    )
    values: Annotated[tuple[Finite, ...], Field(min_length=1, max_length=MOST_SENSORS)] = Field(
        description="The measured output at the sensors, in its units.", examples=[[0.011, 0.012]]
    )
    noise: Positive | Annotated[tuple[Positive, ...], Field(min_length=1, max_length=MOST_SENSORS)] = Field(
        description="Standard deviation of the measurements' errors, in their units: one number, or one per sensor.",
        examples=[1e-4],
    )
    prior: Annotated[SmoothPrior | TwoMaterialsPrior, Field(discriminator="kind")] = Field(
        default=SmoothPrior(kind="log-normal"),
        description="What is known about the input before the measurements.",
    )
    forward: Literal["network", "solver"] = Field(
        default="network", description="What predicts the measurements: the model, or the problem's classical solver."
    )
    grid: tuple[int, int] | None = Field(
        default=None, description="Points of the model's grid; the first declared size by default."
    )
    modes: Annotated[int, Field(ge=1, le=MOST_MODES)] = Field(
        default=MODES, description="Karhunen-Loève modes that are estimated."
    )
    model_error: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="Error of the forward model relative to the root mean square of the values, added to the "
        "noise; that of the model's card by default.",
    )
    iterations: Annotated[int, Field(ge=1, le=200)] = Field(default=50, description="Most steps.")
    samples: Annotated[int, Field(ge=2, le=MOST_SAMPLES)] = Field(
        default=200, description="Draws of the posterior that the result summarises."
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(default=0, description="Of the draws.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Require a value, and a noise if there are several, for every sensor."""
        for name in ("values", "noise"):
            found = getattr(self, name)
            if isinstance(found, tuple) and len(found) != len(self.sensors):
                raise ValueError(f"expected {len(self.sensors)} {name}, one per sensor, but got {len(found)}")
        return self

    def deviation(self, model_error: float) -> NDArray[np.float64]:
        """Return the standard deviation of model minus measurement [sensors].

        The relative error of the model is that of the request or, where it has none, the one that is passed.
        """
        relative = model_error if self.model_error is None else self.model_error
        scale = float(np.sqrt(np.square(self.values).mean()))
        return np.asarray(np.hypot(np.broadcast_to(self.noise, len(self.values)), relative * scale))


class Inversion(Document):
    """`GET /v1/models/{model}/inversions/{id}`: how far an inversion has come."""

    id: str
    model: str
    version: int
    state: State
    iterations: int = Field(description="Steps so far.")
    most_iterations: int = Field(description="The limit of the request.")
    misfit: float | None = Field(
        default=None,
        description="Root mean square of (model - measurement) / deviation; about 1 where the model explains the data.",
    )
    objective: float | None = Field(
        default=None, description="Half the sum of squares of misfit and prior, which the steps reduce."
    )
    converged: bool | None = Field(default=None, description="Whether the steps ended before their limit.")
    seconds: float = Field(description="Since it runs, without the time in the queue.")
    problem: ProblemDetails | None = Field(default=None, description="Why it failed.")


class InversionResult(Document):
    """`GET /v1/models/{model}/inversions/{id}/result`. In safetensors the fields have the names of the members."""

    model: str
    version: int
    inputs: dict[str, NestedList] = Field(
        description="By name of the inferred input, `[row, column]`: the most probable one."
    )
    mean: NestedList = Field(description="Mean of the posterior's draws, `[row, column]`.")
    deviation: NestedList = Field(description="Their standard deviation.")
    lower: NestedList = Field(description="Their 5 % quantile.")
    upper: NestedList = Field(description="Their 95 % quantile.")
    coefficients: NestedList = Field(description="The most probable Karhunen-Loève coefficients, `[mode]`.")
    predicted: NestedList = Field(description="The model's output at the sensors for the most probable input.")
    misfit: float
    converged: bool = Field(description="Whether the steps ended before their limit.")


def write(job: Job, media_type: str) -> bytes:
    """Return the body of the result of a job that has succeeded, in JSON or safetensors."""
    if job.result is None or media_type not in {JSON, binary.SAFETENSORS}:
        raise Problem("not-acceptable", f"a result is {JSON} or {binary.SAFETENSORS}")
    found, summary = job.result
    arrays: dict[str, Any] = {name: array for name, array in summary.items() if name != "optimum"}
    arrays |= {name: getattr(found, name).astype(np.float32) for name in ("coefficients", "predicted")}
    if media_type == binary.SAFETENSORS:
        about = {"model": job.card.model, "version": str(job.card.version), "misfit": repr(found.progress.misfit)}
        about["converged"] = "true" if found.converged else "false"
        return binary.write_safetensors({job.unknown: summary["optimum"], **arrays}, about)
    document = {"model": job.card.model, "version": job.card.version, "inputs": {job.unknown: summary["optimum"]}}
    document |= {**arrays, "misfit": found.progress.misfit, "converged": found.converged}
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
