"""Exceptions in, responses out: `application/problem+json`, and under `/v2` the error that its protocol knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from starlette.responses import Response

from serving import problem_details
from serving.problem_details import InvalidParameter, MethodNotAllowed, Problem, UnknownRoute

if TYPE_CHECKING:
    from fastapi import Request
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException

    from serving.observability.metrics import Metrics

HUNG_UP = 499  # no status of HTTP: the client left before there was one


def refusal(problem: Problem, path: str, metrics: Metrics) -> Response:
    """A problem as a response to a request for a path, counted by its kind."""
    metrics.rejected.labels(problem.kind).inc()
    return problem_response(problem, path)


def hung_up() -> Response:
    """What nobody will read."""
    return Response(status_code=HUNG_UP)


def problem_response(problem: Problem, path: str) -> Response:
    """A problem as a response to a request for a path."""
    if f"{path}/".startswith("/v2/"):
        document, media_type = {"error": problem.detail}, "application/json"
    else:
        document, media_type = problem.details().model_dump(exclude_none=True), problem_details.MEDIA_TYPE
    return Response(orjson.dumps(document), status_code=problem.status, headers=problem.headers, media_type=media_type)


def from_router(request: Request, error: HTTPException) -> Problem:
    """What the router refuses by itself: unknown paths and wrong methods."""
    path = request.url.path[:128]
    if error.status_code == MethodNotAllowed.status:
        allowed = (error.headers or {}).get("Allow", "")
        return MethodNotAllowed(f"{path} takes {allowed}, not {request.method[:16]}", headers={"Allow": allowed})
    return UnknownRoute(f"there is nothing at {path}; /docs lists what there is")


def from_validation(error: RequestValidationError) -> Problem:
    """The first path or query parameter that is out of its range."""
    first = error.errors()[0]
    place = " ".join(str(part)[:64] for part in first["loc"])
    return InvalidParameter(f"{place}: {first['msg']}; got {str(first.get('input'))[:64]!r}")
