"""The errors of the gateway: one exception, and one table of its kinds.

A `Problem` is raised anywhere below a route and ends the request as `application/problem+json` (RFC 9457), or under
`/v2`, `/umbridge` and `/tesseract` as the document there:

    {"type": "urn:petrov:problem:non-positive", "title": "Value is not positive", "status": 422,
     "detail": "coefficient[0,17,3] is -2.0; a permeability must be positive",
     "where": {"array": "coefficient", "index": [0, 17, 3], "pointer": "/inputs/coefficient/0/17/3"}}

`where` is present for faults of an array: the array's name, the index of the first bad value in the caller's own array
when one value is to blame, and both as JSON pointer (RFC 6901) into the body of a JSON request. `type` is stable:
programs switch on it, never on `detail`. Errors that a later attempt may not meet carry the header `Retry-After` (whole
seconds). A status of 4xx says that the caller can mend the request; 5xx, that it can only try again or report it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from prometheus_client import Counter
from pydantic import BaseModel, ConfigDict, Field, computed_field
from pydantic.json_schema import SkipJsonSchema
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:petrov:problem:"
VECTORS = {"vjp": "cotangents", "jvp": "tangents"}  # members of a request beside `inputs`, for derivatives


class Kind(NamedTuple):
    """What is the same for all errors of one kind: the status and title of the response, and when it is raised."""

    status: int
    title: str
    meaning: str


KINDS = {
    "unreadable-body": Kind(400, "Body cannot be read", "not what its Content-Type says, or truncated"),
    "unreadable-request": Kind(400, "Request cannot be read", "no HTTP/1.1, such as two lengths of one body"),
    "unknown-parameter": Kind(400, "No such parameter", "a query parameter that the route does not have"),
    "unauthenticated": Kind(401, "Not authenticated", "no API key, or an unknown one; WWW-Authenticate (RFC 6750)"),
    "forbidden": Kind(403, "Not allowed", "the API key lacks the scope"),
    "unknown-route": Kind(404, "No such route", "there is nothing at the path"),
    "unknown-model": Kind(404, "No such model", "the repository has no model of that name"),
    "unknown-version": Kind(404, "No such version", "the model has no such version loaded"),
    "no-example": Kind(404, "No example", "neither stored examples nor a sampler of the model's problem"),
    "no-reference": Kind(404, "No classical solver", "no classical solver for the model's problem"),
    "not-differentiable": Kind(404, "No derivative", "the model was exported without this derivative"),
    "not-invertible": Kind(404, "No inversion", "no prior for an input of the model's problem"),
    "unknown-inversion": Kind(404, "No such inversion", "no such inversion, or its result has been forgotten"),
    "method-not-allowed": Kind(405, "Method not allowed", "the header Allow lists the methods of the path"),
    "not-acceptable": Kind(406, "No acceptable media type", "no media type of Accept can be written"),
    "slow-body": Kind(408, "Body arrived too slowly", "the body took longer than its deadline"),
    "unfinished": Kind(409, "Inversion has not ended", "the inversion has no result yet"),
    "unknown-host": Kind(421, "Not a name of the service", "the Host is none of the names that the settings allow"),
    "body-too-large": Kind(413, "Body too large", "more bytes, samples or work than one request may hold"),
    "unsupported-media-type": Kind(415, "Unsupported media type", "no such media type, or Content-Encoding, is read"),
    "invalid-parameter": Kind(422, "Invalid parameter", "a path or query parameter is outside its range"),
    "invalid-inversion": Kind(422, "Invalid inversion", "a member of a request for an inversion is wrong"),
    "tolerance-unmet": Kind(422, "Tolerance cannot be met", "no error bound, or one above the requested tolerance"),
    "unsolvable": Kind(422, "Input cannot be solved", "the classical solver refuses the input or does not converge"),
    "rate-limited": Kind(429, "Over the key's rate", "the API key has used up its rate; Retry-After"),
    "wrong-input": Kind(422, "Wrong input", "an input is missing, or the model has no such input"),
    "wrong-dtype": Kind(422, "Wrong data type", "not numbers of a kind that fits the card's type"),
    "wrong-shape": Kind(422, "Wrong shape", "the rank does not fit, rows differ in length, or the batch is empty"),
    "wrong-token": Kind(422, "Not a token of the vocabulary", "outside the vocabulary, or padding before a token"),
    "grid-out-of-limits": Kind(
        422, "Grid outside the model's limits", "an axis shorter or longer than the card allows"
    ),
    "out-of-range": Kind(422, "Value out of range", "a parameter outside the card's limits"),
    "outside-training": Kind(422, "Input outside of the training distribution", "outside, and outside=refuse"),
    "non-finite": Kind(422, "Value is not finite", "NaN or infinite, before or after the cast to float32"),
    "non-positive": Kind(
        422, "Value is not positive", "zero or negative where the quantity is positive by its meaning"
    ),
    "internal-error": Kind(500, "Internal error", "a fault of the gateway; the log has it under the request's id"),
    "unknown-coding": Kind(501, "Unknown transfer coding", "the body has a coding beside chunked (RFC 9112, 6.1)"),
    "model-failed": Kind(502, "Model failed", "Triton refused or failed the inference"),
    "non-finite-output": Kind(502, "Model output is not finite", "NaN or infinite for a valid input"),
    "unavailable": Kind(503, "Unavailable", "not now; Retry-After says when to try again"),
    "overloaded": Kind(503, "Overloaded", "too many requests or bytes in flight; Retry-After"),
    "model-not-ready": Kind(503, "Model not ready", "in the repository, not loaded and warm yet; Retry-After"),
    "out-of-memory": Kind(503, "Out of memory", "the inference server lacks memory; Retry-After"),
    "shared-memory-full": Kind(503, "Shared memory full", "the inference server lacks shared memory; Retry-After"),
    "triton-unavailable": Kind(503, "Inference server unavailable", "it cannot be reached, or went away; Retry-After"),
    "deadline-exceeded": Kind(504, "Deadline exceeded", "no response within the request's deadline"),
}


class Where(BaseModel):
    """The location of a fault in the caller's arrays."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    array: str
    index: list[int] | None = None
    inputs: SkipJsonSchema[bool] = Field(default=True, exclude=True)  # whether the array is an input of a model

    @computed_field(description="JSON pointer (RFC 6901) into the body of a request in JSON.")  # type: ignore[prop-decorator]  # pydantic's own order
    @property
    def pointer(self) -> str:
        """Where a request in JSON has the value: `cotangents.solution` is the member `solution` of `cotangents`."""
        if not self.inputs:
            return "/".join(["", *self.array.split("."), *map(str, self.index or ())])
        member, _, name = self.array.partition(".")
        if member not in VECTORS.values():
            member, name = "inputs", self.array
        name = name.replace("~", "~0").replace("/", "~1")
        return "/".join([f"/{member}", name, *map(str, self.index or ())])


class ProblemDetails(BaseModel):
    """The body of every error (RFC 9457), `application/problem+json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str = Field(examples=["urn:petrov:problem:non-positive"])
    title: str
    status: int
    detail: str = Field(examples=["coefficient[0,17,3] is -2.0; a permeability must be positive"])
    where: Where | None = None


class Problem(Exception):  # noqa: N818  the term of RFC 9457
    """An error that ends a request.

    Args:
        kind: A key of `KINDS`, which has its status and title.
        detail: What happened and where, what was expected and what was found, in one sentence.
        array: Name of the array at fault, and the `index` of the first bad value in it when one value is to blame.
        where: The location, where these do not say it.
        headers: Extra response headers.
        retry_after: Whole seconds of the header `Retry-After`; 1 by default for a status of 503.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        array: str | None = None,
        index: Sequence[int] | None = None,
        where: Where | None = None,
        headers: Mapping[str, str] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail
        self.status, self.title, _ = KINDS[kind]
        self.where = where
        if array is not None:
            self.where = Where(array=array, index=None if index is None else [int(i) for i in index])
        self.headers = dict(headers or {})
        if self.status == 503 and retry_after is None:
            retry_after = 1
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)

    def details(self) -> ProblemDetails:
        return ProblemDetails(
            type=PREFIX + self.kind, title=self.title, status=self.status, detail=self.detail, where=self.where
        )


CLIENT_CLOSED = 499  # no status of HTTP: the client left before there was one
PROBLEM = "problem"  # of the state of a request: the kind of the problem that it ended in, for the access log


class Refusal(Response):
    """The response to a request that ends in a problem, whose kind the state of the request has then."""

    def __init__(self, kind: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"][PROBLEM] = self._kind
        await super().__call__(scope, receive, send)


def refusal(problem: Problem, path: str, rejected: Counter) -> Response:
    """Return a problem as the response to a request for a path, and count it by its kind."""
    rejected.labels(problem.kind).inc()
    status, media_type, document = problem.status, "application/json", {}
    match path.split("/", 2)[1:2]:
        case ["v2"]:
            document = {"error": problem.detail}
        case ["umbridge"]:
            status, document = _umbridge(problem)
        case ["tesseract"] if status == 422:
            document = _tesseract(problem)
        case _:
            document, media_type = problem.details().model_dump(exclude_none=True), MEDIA_TYPE
    headers = problem.headers
    return Refusal(problem.kind, orjson.dumps(document), status_code=status, headers=headers, media_type=media_type)


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
    path = request.state.path[:128]
    if error.status_code == 405:
        found = set[str]()  # of all routes that have the path; the router names those of the first alone
        for route in iter_route_contexts(request.app.routes):
            if route.methods and route.path_regex.match(request.state.path):
                found |= route.methods
        if "GET" in found or not found:  # files are only read
            found |= {"GET", "HEAD"}
        allowed = ", ".join(sorted(found))
        return Problem(
            "method-not-allowed", f"{path} takes {allowed}, not {request.method[:16]}", headers={"Allow": allowed}
        )
    return Problem("unknown-route", f"there is nothing at {path}; /docs lists what there is")


def from_validation(error: RequestValidationError) -> Problem:
    """Return the problem for the first path or query parameter that is out of its range."""
    first = error.errors()[0]
    parameter = " ".join(str(part)[:64] for part in first["loc"])
    return Problem("invalid-parameter", f"{parameter}: {first['msg']}; got {str(first.get('input'))[:64]!r}")
