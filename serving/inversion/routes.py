"""The documents and routes of inversions: start one, watch it, fetch its result, cancel it."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, Self, cast

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, ValidationError, model_validator

from physics import registry
from physics.posterior.laplace import Coordinates, Estimate, Posterior, estimate, summarise
from physics.posterior.prior import MODES, KarhunenLoeve, LogNormal, Material, TwoMaterials
from physics.posterior.sensors import Sensors
from physics.registry import Linear, Sensing
from schema.card import KINDS, Card, Kind
from serving.auth import Scope, requires
from serving.codecs import binary
from serving.codecs.json_text import written
from serving.document import JSON, Document, inlined_schema
from serving.errors import Problem, ProblemDetails, Where
from serving.inputs import TEXT_GROWTH, offload
from serving.inversion.jobs import Inversions, Job, ServedModel, State
from serving.limits import Caller
from serving.protocols import over_http
from serving.service import Service, Serving

MOST_SENSORS, MOST_MODES, MOST_SAMPLES = 1024, 256, 1000

NestedList = list[Any]
# Pydantic would describe every fault.
PER_SENSOR = Field(min_length=1, max_length=MOST_SENSORS, fail_fast=True)
MOST_QUOTES = 256  # in a body: ten times those of the members, and each unknown one is described
Part = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=1e-12, lt=1e12)]
Finite = Annotated[float, Field(gt=-1e12, lt=1e12)]


class Strict(Document):
    """A part of a request, without text where a number is expected."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class SmoothPrior(Strict):
    """A smooth input: the exponential of a Gaussian field."""

    kind: Literal["log-normal"]
    median: Positive = LogNormal.median
    deviation: Annotated[float, Field(gt=1e-3, le=5)] = Field(
        default=LogNormal.deviation, description="Standard deviation of the logarithm."
    )

    @property
    def material(self) -> Material:
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
        return TwoMaterials(self.low, self.high, self.width)


class InversionRequest(Strict):
    """`POST /v1/models/{model}/inversions`."""

    sensors: Annotated[tuple[tuple[Part, Part], ...], PER_SENSOR] = Field(
        description="Positions (row, column) in sides of the domain, from 0 to 1.", examples=[[[0.25, 0.5], [0.5, 0.5]]]
    )
    values: Annotated[tuple[Finite, ...], PER_SENSOR] = Field(
        description="The measured output at the sensors, in its units.", examples=[[0.011, 0.012]]
    )
    noise: Positive | Annotated[tuple[Positive, ...], PER_SENSOR] = Field(
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


LARGEST_BODY = 2**20  # bytes: the most sensors take a tenth of it
POINTS = 2**21  # of all fields of one call of the model, which bounds the memory of a job
LONGEST_WAIT = 30.0
IDEMPOTENCY = "Idempotency-Key"
_PATH = "/v1/models/{model}/inversions"
_BODY = {"required": True, "content": {JSON: {"schema": inlined_schema(InversionRequest)}}}
_KEY = {
    "name": IDEMPOTENCY,
    "in": "header",
    "description": "Marks repetitions of one request, such as a random number: they return the job of the first.",
    "schema": {"type": "string", "maxLength": 256},
}
_BINARY = {binary.SAFETENSORS: over_http.BINARY}

router = APIRouter(tags=["Inversions"], responses=over_http.PROBLEMS, dependencies=over_http.CHECKED)


async def _jobs(request: Request) -> Inversions:
    return cast("Inversions", request.app.state.inversions)


Jobs = Annotated[Inversions, Depends(_jobs)]


@router.post(
    _PATH,
    status_code=202,
    response_model=Inversion,
    responses={202: {"headers": {"Location": {"schema": {"type": "string"}, "description": "Of the inversion."}}}},
    openapi_extra={"requestBody": _BODY, "parameters": [_KEY]},
)
@requires(Scope.INFER)
async def start(model: str, request: Request, response: Response, service: Serving, jobs: Jobs) -> Inversion:
    """Infer an input of a model from its output at sensors, in the background; 404 where the problem has no prior."""
    card, sensing = _invertible(model, service)
    caller, key = request.state.caller, request.headers.get(IDEMPOTENCY, "")
    if len(key) > 256:
        raise _invalid(f"{IDEMPOTENCY}: expected at most 256 characters", [])
    request.state.version = card.version
    if jobs.repeated(card.model, caller.name, key) is None:
        caller.check()
        jobs.check(caller.name)
    if over_http.request_type(request.headers) != JSON:
        raise Problem("unsupported-media-type", f"expected Content-Type {JSON}")
    limit = min(LARGEST_BODY, service.settings.max_body_bytes)
    content = bytes(await over_http.content(request, service, limit))
    digest = hashlib.sha256(content).hexdigest()
    wanted = await offload(len(content), _parsed, content)
    job = jobs.repeated(card.model, caller.name, key)
    if job is None:
        jobs.check(caller.name)
        job = Job(card, sensing.unknown, caller.name, wanted.iterations, (key, digest))
        work = _work(job, wanted, sensing, service, caller)
        if wanted.forward == "solver":
            caller.spend(wanted.iterations)  # a solve per step; a network's samples are paid as they are computed
        jobs.submit(job, work)
    elif job.repeat[1] != digest:
        raise _invalid(f"another request has been sent with this {IDEMPOTENCY}", [])
    response.headers["Location"] = f"{request.scope['root_path']}/v1/models/{job.card.model}/inversions/{job.id}"
    return _document(job)


@router.get(f"{_PATH}/{{inversion}}")
@requires(Scope.INFER)
async def watch(
    model: str,
    inversion: str,
    request: Request,
    jobs: Jobs,
    wait: Annotated[
        float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for the end, before the response.")
    ] = 0.0,
) -> Inversion:
    """Return how far an inversion has come."""
    job = jobs.find(model, inversion, request.state.caller.name)
    await over_http.unless_disconnected(request, job.wait(wait))
    return _document(job)


@router.get(f"{_PATH}/{{inversion}}/result", response_model=InversionResult, responses={200: {"content": _BINARY}})
@requires(Scope.INFER)
async def result(model: str, inversion: str, request: Request, jobs: Jobs) -> Response:
    """Return the result of an inversion that has succeeded; 409 before, and the problem of one that has failed."""
    job = jobs.find(model, inversion, request.state.caller.name)
    if job.problem is not None:
        raise job.problem
    if job.result is None:
        raise Problem("unfinished", f"the inversion is {job.state}; wait until it has succeeded")
    media_type = over_http.response_type(request.headers, JSON)
    size = sum(array.nbytes for array in job.result[1].values())
    with over_http.counted(request, size * (TEXT_GROWTH if media_type == JSON else 1)):
        return Response(await asyncio.to_thread(write, job, media_type), media_type=media_type)


@router.delete(f"{_PATH}/{{inversion}}", status_code=204, response_class=Response)
@requires(Scope.INFER)
async def cancel(model: str, inversion: str, request: Request, jobs: Jobs) -> None:
    """Stop an inversion if it runs, and forget it."""
    jobs.remove(jobs.find(model, inversion, request.state.caller.name))


def _invertible(model: str, service: Service) -> tuple[Card, Sensing]:
    known, card = registry.problems(), service.catalogue.find(model)
    sensing = known[card.problem].sensing if card.problem in known else None
    if sensing is None or card.product is not None:
        names = ", ".join(name for name, problem in known.items() if problem.sensing)
        detail = f'"{card.model}" has no prior for an input; the problems that have one are {names}'
        raise Problem("not-invertible", detail)
    return card, sensing


def _work(
    job: Job, wanted: InversionRequest, sensing: Sensing, service: Service, caller: Caller
) -> Callable[[], tuple[Estimate, dict[str, Any]]]:
    card, limits = job.card, job.card.grid
    grid = wanted.grid or (limits.declared[0], limits.declared[0])
    for axis, points in enumerate(grid):
        if not limits.minimum <= points <= limits.maximum:
            raise _invalid(f"{points} points; the model takes {limits.minimum} to {limits.maximum}", ["grid", axis])
    linearise: Callable[[Any], Linear]
    if wanted.forward == "solver":
        linearise, errors = sensing.linearise, card.classical
    else:
        cards: dict[Kind | None, Card] = {None: card}
        for kind in KINDS:
            cards[kind] = service.catalogue.derivative(card.model, kind, card.version)
        linearise, errors = partial(ServedModel, service.predictor, cards, sensing, job, caller), card.errors
    rows, columns = (sensing.positions(points) for points in grid)
    coordinates = Coordinates(KarhunenLoeve(wanted.modes), wanted.prior.material, rows, columns)
    posterior = Posterior(
        coordinates,
        Sensors(np.array(wanted.sensors), rows, columns),
        np.array(wanted.values),
        wanted.deviation(_model_error(errors, grid)),
        linearise,
        max(1, min(card.limits.batch, POINTS // math.prod(grid))),
        job.check,
    )

    def work() -> tuple[Estimate, dict[str, Any]]:
        found = estimate(posterior, wanted.iterations, job.report)
        job.report(found.progress)
        rng = np.random.default_rng(wanted.seed)
        return found, summarise(found, coordinates, wanted.samples, rng, check=job.check)

    return work


def _model_error(errors: tuple[dict[str, Any], ...], grid: tuple[int, int]) -> float:
    """Return the relative error that is published for the grid, or for the next coarser one; 0 if there is none."""
    published = sorted(
        (float(np.prod(entry["grid"])), float(entry["relative_l2"]))
        for entry in errors
        if {"grid", "relative_l2"} <= entry.keys() and not entry.get("noise")
    )
    coarser = [error for points, error in published if points <= np.prod(grid)]
    return coarser[-1] if coarser else published[0][1] if published else 0.0


def _parsed(content: bytes) -> InversionRequest:
    if content.count(b'"') > MOST_QUOTES:
        raise _invalid(f"expected at most {MOST_QUOTES // 2} names and texts", [])
    try:
        return InversionRequest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        if first["type"] == "json_invalid":
            raise Problem("unreadable-body", f"the body is not JSON: {first['msg']}") from error
        tried = re.compile(r"[^a-z_]|^(float|int)$")  # the alternatives of a union that pydantic tried
        location = [part for part in first["loc"] if isinstance(part, int) or not tried.search(part)]
        raise _invalid(first["msg"].removeprefix("Value error, "), location) from error


def _invalid(detail: str, location: Sequence[str | int]) -> Problem:
    """Return the error about the member to which names and indices lead."""
    names = [part for part in location if isinstance(part, str)]
    index = [part for part in location if isinstance(part, int)]
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")
    where = Where(array=".".join(names), index=index or None, inputs=False) if names else None
    return Problem("invalid-inversion", f"{shown}: {detail}" if shown else detail, where=where)


def _document(job: Job) -> Inversion:
    return Inversion(
        id=job.id,
        model=job.card.model,
        version=job.card.version,
        state=job.state,
        iterations=job.progress.iterations,
        most_iterations=job.most_iterations,
        misfit=job.progress.misfit,
        objective=job.progress.objective,
        converged=job.result[0].converged if job.result else None,
        seconds=job.seconds,
        problem=job.problem.details() if job.problem else None,
    )


def write(job: Job, media_type: str) -> bytes | memoryview:
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
    return written(document)
