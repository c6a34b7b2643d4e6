"""The routes of inversions: start one, watch it, fetch its result, cancel it."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import ValidationError

from physics import registry
from physics.posterior.prior import KarhunenLoeve
from physics.posterior.sensors import Sensors
from serving.auth import Scope, requires
from serving.catalogue.card import KINDS
from serving.codecs import binary, formats
from serving.document import JSON, inlined_schema
from serving.errors import Problem, Where
from serving.inversion.documents import Inversion, InversionRequest, InversionResult, write
from serving.inversion.jobs import Inversions, Job, ServedModel
from serving.inversion.posterior import Coordinates, Posterior, estimate, summarise
from serving.protocols import over_http
from serving.service import Service, Serving  # noqa: TC001  FastAPI reads annotations at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from physics.registry import Linear, Sensing
    from serving.catalogue.card import Card, Kind
    from serving.inversion.posterior import Estimate
    from serving.limits import Caller

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

router = APIRouter(responses=over_http.PROBLEMS)


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
        jobs.check()
    over_http.check_names_of_query(request.query_params)
    if formats.request_type(request.headers) != JSON:
        raise Problem("unsupported-media-type", f"expected Content-Type {JSON}")
    limit = min(LARGEST_BODY, service.settings.max_body_bytes)
    content = bytes(await over_http.content(request, service, limit))
    digest = hashlib.sha256(content).hexdigest()
    job = jobs.repeated(card.model, caller.name, key)
    if job is None:
        jobs.check()
        wanted = _parsed(content)
        job = Job(card, sensing.unknown, caller.name, wanted.iterations, (key, digest))
        work = _work(job, wanted, sensing, service, caller)
        if wanted.forward == "solver":
            caller.spend(wanted.iterations)  # a solve per step; a network's samples are paid as they are computed
        jobs.submit(job, work)
    elif job.repeat[1] != digest:
        raise _invalid(f"another request has been sent with this {IDEMPOTENCY}", [])
    response.headers["Location"] = f"/v1/models/{job.card.model}/inversions/{job.id}"
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
    media_type = formats.response_type(request.headers, JSON)
    return Response(await asyncio.to_thread(write, job, media_type), media_type=media_type)


@router.delete(f"{_PATH}/{{inversion}}", status_code=204, response_class=Response)
@requires(Scope.INFER)
async def cancel(model: str, inversion: str, request: Request, jobs: Jobs) -> None:
    """Stop an inversion if it runs, and forget it."""
    jobs.remove(jobs.find(model, inversion, request.state.caller.name))


def _invertible(model: str, service: Service) -> tuple[Card, Sensing]:
    """Return a model's card, and what is inferred from what."""
    known, card = registry.problems(), service.catalogue.find(model).card
    sensing = known[card.problem].sensing if card.problem in known else None
    if sensing is None or card.product is not None:
        names = ", ".join(name for name, problem in known.items() if problem.sensing)
        raise Problem("not-invertible", f'there is no prior for an input of "{card.problem}"; there is one for {names}')
    return card, sensing


def _work(
    job: Job, wanted: InversionRequest, sensing: Sensing, service: Service, caller: Caller
) -> Callable[[], tuple[Estimate, dict[str, Any]]]:
    """Return the work of a job."""
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
            cards[kind] = service.catalogue.derivative(card.model, kind, card.version).card
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
    """Return the request in a body."""
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
