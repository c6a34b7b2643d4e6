"""Errors as responses: `application/problem+json`, or under `/v2`, `/umbridge` and `/tesseract` the document there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from fastapi.routing import iter_route_contexts
from starlette.responses import Response

from serving import errors
from serving.errors import Problem

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
    status, media_type, document = problem.status, "application/json", {}
    match path.split("/", 2)[1:2]:
        case ["v2"]:
            document = {"error": problem.detail}
        case ["umbridge"]:
            status, document = _umbridge(problem)
        case ["tesseract"] if status == 422:
            document = _tesseract(problem)
        case _:
            document, media_type = problem.details().model_dump(exclude_none=True), errors.MEDIA_TYPE
    return Response(orjson.dumps(document), status_code=status, headers=problem.headers, media_type=media_type)


def _umbridge(problem: Problem) -> tuple[int, dict[str, Any]]:
    """Return status and error document of UM-Bridge, which has 400 and 500 and four types."""
    status = problem.status
    name = "".join(part.capitalize() for part in problem.kind.split("-"))
    if problem.kind in {"unknown-model", "unknown-version"}:
        name, status = "ModelNotFound", 400
    elif problem.kind == "not-differentiable":
        name, status = "UnsupportedFeature", 400
    elif status == 502:
        name, status = "InvalidOutput", 500
    elif status in {400, 422}:
        name, status = "InvalidInput", 400
    return status, {"error": {"type": name, "message": problem.detail}}


def _tesseract(problem: Problem) -> dict[str, Any]:
    """Return the error document of status 422 that clients of Tesseracts read: a list of faults with their location."""
    where = problem.where
    role, _, name = where.array.rpartition(".") if where else ("", "", "")
    members = {"": "inputs", "cotangents": "cotangent_vector", "tangents": "tangent_vector"}
    location = ["body", *([members.get(role, "inputs"), name, *(where.index or ())] if where else ())]
    return {"detail": [{"type": problem.kind, "loc": location, "msg": problem.detail}]}


def from_router(request: Request, error: HTTPException) -> Problem:
    """Return the problem for an unknown path or a wrong method, which the router refuses by itself."""
    path = request.url.path[:128]
    if error.status_code == 405:
        allowed = _methods(request) or "GET, HEAD"  # files are only read
        return Problem(
            "method-not-allowed", f"{path} takes {allowed}, not {request.method[:16]}", headers={"Allow": allowed}
        )
    return Problem("unknown-route", f"there is nothing at {path}; /docs lists what there is")


def _methods(request: Request) -> str:
    """Return the methods of all routes that have the path; the router names those of the first alone."""
    path, found = request.url.path, set[str]()
    for route in iter_route_contexts(request.app.routes):
        if route.methods and route.path_regex.match(path):
            found |= route.methods
    return ", ".join(sorted(found))


def from_validation(error: RequestValidationError) -> Problem:
    """Return the problem for the first path or query parameter that is out of its range."""
    first = error.errors()[0]
    parameter = " ".join(str(part)[:64] for part in first["loc"])
    return Problem("invalid-parameter", f"{parameter}: {first['msg']}; got {str(first.get('input'))[:64]!r}")
