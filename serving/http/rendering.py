"""Errors as responses: `application/problem+json`, and under `/v2` the error document of its protocol."""

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

CLIENT_CLOSED = 499  # no status of HTTP: the client left before there was one


def refusal(problem: Problem, path: str, metrics: Metrics) -> Response:
    """Return a problem as the response to a request for a path, and count it by its kind."""
    metrics.rejected.labels(problem.kind).inc()
    return problem_response(problem, path)


def client_closed() -> Response:
    """Return a response to a client that has left; it is only logged."""
    return Response(status_code=CLIENT_CLOSED)


def problem_response(problem: Problem, path: str) -> Response:
    """Return a problem as the response to a request for a path."""
    if f"{path}/".startswith("/v2/"):
        document, media_type = {"error": problem.detail}, "application/json"
    else:
        document, media_type = problem.details().model_dump(exclude_none=True), problem_details.MEDIA_TYPE
    return Response(orjson.dumps(document), status_code=problem.status, headers=problem.headers, media_type=media_type)


def from_router(request: Request, error: HTTPException) -> Problem:
    """Return the problem for an unknown path or a wrong method, which the router refuses by itself."""
    path = request.url.path[:128]
    if error.status_code == MethodNotAllowed.status:
        allowed = (error.headers or {}).get("Allow", "GET, HEAD")  # files are only read
        return MethodNotAllowed(f"{path} takes {allowed}, not {request.method[:16]}", headers={"Allow": allowed})
    return UnknownRoute(f"there is nothing at {path}; /docs lists what there is")


def from_validation(error: RequestValidationError) -> Problem:
    """Return the problem for the first path or query parameter that is out of its range."""
    first = error.errors()[0]
    parameter = " ".join(str(part)[:64] for part in first["loc"])
    return InvalidParameter(f"{parameter}: {first['msg']}; got {str(first.get('input'))[:64]!r}")
