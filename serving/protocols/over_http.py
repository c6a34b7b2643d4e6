"""What the protocols over HTTP share: media types, body and query of a request, and predicting until the client left.

    wanted, content = await over_http.received(card, request, service)  # admitted until the response is sent
    written = await over_http.unless_disconnected(request, service.predictor.predict(wanted, exchange))

The body is counted while it arrives and within a time limit: `Content-Length` may be wrong or absent, and uvicorn has
no limit of its own. Size and time are bounded before a byte is kept.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, cast, get_args

import numpy as np
from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import SkipJsonSchema
from starlette.datastructures import Headers, QueryParams
from starlette.requests import ClientDisconnect

from schema.card import Card
from serving.codecs.binary import NPY, SAFETENSORS, Buffer
from serving.compression import WINDOW, field, inflated, weights
from serving.document import JSON, inlined_schema
from serving.errors import MEDIA_TYPE, Problem, ProblemDetails
from serving.inputs import Prediction
from serving.limits import Ticket
from serving.quality import ANY, Outside, Policy
from serving.service import Service
from serving.settings import ANY as EVERY
from serving.settings import Settings, listed

Result = TypeVar("Result")
MEDIA_TYPES = (NPY, JSON, SAFETENSORS)
# Bytes that decoding takes per byte beside the body itself: a number in JSON, `1,`, becomes eight; in front of bytes,
# JSON is copied, too.
_JSON_MEMORY, _JSON_HEAD_MEMORY = 4, 5
_LARGE_BYTES = 2**20
#: Media types that a page may send to any server (https://fetch.spec.whatwg.org/#cors-safelisted-request-header).
UNASKED = {"", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded"}
_CLOSE = {"Connection": "close"}  # else the server would read the rest of what was refused


def request_type(headers: Headers) -> str:
    """Return the media type of the body, one of `MEDIA_TYPES`, or refuse it (`unsupported-media-type`)."""
    media_type = field(headers, "content-type").partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES:
        raise Problem(
            "unsupported-media-type",
            f'expected Content-Type {" or ".join(MEDIA_TYPES)} but got "{media_type[:64]}"',
            headers={"Accept-Post": ", ".join(MEDIA_TYPES)},
        )
    return media_type


def response_type(headers: Headers, default: str, others: Collection[str] = ()) -> str:
    """Return the media type that `Accept` prefers, or the default where it leaves the choice or is one of `others`."""
    accept = field(headers, "accept", "*/*")
    if accept in {"*/*", default} or accept.strip().lower() in others:
        return default
    wanted = weights(accept)
    order = [default, *(known for known in MEDIA_TYPES if known != default)]
    quality = {known: wanted.get(known, wanted.get("application/*", wanted.get("*/*", 0.0))) for known in order}
    best = max(order, key=lambda known: quality[known])
    if quality[best] <= 0:
        raise Problem("not-acceptable", f'responses are {" or ".join(MEDIA_TYPES)}, not "{accept[:64]}"')
    return best


async def content(
    request: Request,
    service: Service,
    limit: int,
    query: Collection[str] = (),
    *,
    json: int | None = None,
    rollout: bool = False,
) -> Buffer:
    """Return the whole body of a request of at most `limit` bytes, which is admitted until its response has been sent.

    The `query` has these parameters. So many bytes of the body are `json`, or all; the response of a `rollout` lasts as
    long as the client reads. A body that is too large, too slow or compressed as the settings do not allow is refused,
    and so is one for which there is no capacity or no rate.
    """
    if request.query_params:
        check_names_of_query(request.query_params, query)
    _check_origin(request.headers, service.settings)
    encoding = _encoding(request.headers, service.settings)
    ticket, caller, seconds = request.state.ticket, request.state.caller, service.settings.receive_seconds
    ticket.key = caller.name
    ticket.check()
    caller.check()
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and (len(announced) > 18 or int(announced) > limit):
        detail = f"Content-Length is {announced[:32]}; the limit is {limit} bytes"
        raise Problem("body-too-large", detail, headers=_CLOSE)
    body, size = bytearray() if json is None or encoding else _buffer(announced), 0
    chunks, window, beside = _arriving(request, ticket), 0, 0
    if encoding:
        chunks, window = inflated(encoding, chunks), WINDOW[encoding]
    try:
        async with asyncio.timeout(seconds):
            async for chunk in chunks:
                if size + len(chunk) > limit:
                    detail = f"the body is longer than the limit of {limit} bytes"
                    raise Problem("body-too-large", detail, headers=_CLOSE)
                grown = min(len(chunk), window - beside)  # the window is in use as far as it has been written
                ticket.hold(len(chunk) + grown)
                beside += grown
                body[size : size + len(chunk)] = chunk
                size += len(chunk)
    except TimeoutError as error:
        detail = f"{size} bytes arrived within {seconds:g} s, and the body was not complete"
        raise Problem("slow-body", detail, headers=_CLOSE) from error
    ticket.add(-beside)
    service.metrics.request_bytes.observe(len(body))
    ticket.enter(rollout=rollout)
    if json != 0:
        ticket.hold(_JSON_MEMORY * len(body) if json is None else _JSON_HEAD_MEMORY * min(len(body), json))
    return body


def _check_origin(headers: Headers, settings: Settings) -> None:
    """Refuse what a page of another origin sends without the browser asking first (`forbidden`), such as text."""
    origin = headers.get("origin")
    if origin is None or field(headers, "content-type").partition(";")[0].strip().lower() not in UNASKED:
        return
    if not {origin, EVERY} & {*listed(settings.allowed_origins)} and origin.partition("//")[2] != headers.get("host"):
        raise Problem("forbidden", f"a page of another origin has to send another Content-Type, such as {JSON}")


async def _arriving(request: Request, ticket: Ticket) -> AsyncIterator[bytes]:
    async for chunk in request.stream():
        ticket.received += len(chunk)
        yield chunk


def _encoding(headers: Headers, settings: Settings) -> str | None:
    """Return how a body is compressed, or None, or refuse it (`unsupported-media-type`)."""
    encoding, allowed = field(headers, "content-encoding", "identity").lower(), listed(settings.compression)
    if encoding == "identity":
        return None
    if encoding not in allowed:
        detail = (
            f'Content-Encoding "{encoding[:32]}" is not read; send the body {" or ".join([*allowed, "uncompressed"])}'
        )
        raise Problem("unsupported-media-type", detail, headers={"Accept-Encoding": ", ".join([*allowed, "identity"])})
    return encoding


def _buffer(announced: str) -> bytearray | memoryview:
    """Return where a body goes: a large one into one that does not grow, and takes memory as bytes arrive."""
    size = int(announced) if announced.isdigit() else 0
    return np.empty(size, np.uint8).data if size > _LARGE_BYTES else bytearray()


async def received(
    card: Card,
    request: Request,
    service: Service,
    query: Collection[str] | None = None,
    *,
    latest: bool = False,
    reference: bool = False,
    json: int | None = None,
    rollout: bool = False,
) -> tuple[Prediction, Buffer]:
    """Return what a request wants of a version, which is recorded as its own, and its body; see `content`.

    By default, the query describes a policy.
    """
    state, settings = request.state, service.settings
    wanted = policy(request.query_params) if request.query_params else ANY
    state.version = card.version
    limit = settings.max_json_bytes if json is None else settings.max_body_bytes
    body = await content(request, service, limit, POLICY if query is None else query, json=json, rollout=rollout)
    begun, of_caller = asyncio.get_running_loop().time(), (card, state.request_id, state.caller, wanted)
    return Prediction(*of_caller, latest=latest, reference=reference, ticket=state.ticket, begun=begun), body


@contextmanager
def counted(request: Request, size: float) -> Iterator[None]:
    """Count so many bytes while a response is made for which no body was read, or refuse it (`overloaded`)."""
    ticket, count = request.state.ticket, int(size)
    ticket.key = request.state.caller.name
    ticket.hold(count)
    try:
        yield
    finally:
        ticket.add(-count)  # what is sent is counted from there on


async def unless_disconnected(request: Request, work: Awaitable[Result]) -> Result:
    """Do the work for a request whose body has been read; cancel it when the client leaves (`ClientDisconnect`)."""
    working, left = asyncio.current_task(), False

    async def leave() -> None:
        nonlocal left
        while (await request.receive())["type"] != "http.disconnect":
            pass
        left = True
        if working is not None:
            working.cancel()

    leaving = asyncio.create_task(leave())
    try:
        return await work
    except asyncio.CancelledError:
        if left and working is not None and not working.uncancel():  # else the server has cancelled it, too
            raise ClientDisconnect from None
        raise
    finally:
        leaving.cancel()


QUERY: list[dict[str, Any]] = [
    {
        "name": "tolerance",
        "in": "query",
        "description": "The largest `error_bound` of any sample. A sample with a larger one is computed without the "
        "network's corrections and with more iterations where the model has a graph for that, and then by the "
        "classical solver of the problem's equation; where neither meets it, the request is refused (422).",
        "schema": {"type": "number", "exclusiveMinimum": 0},
    },
    {
        "name": "outside",
        "in": "query",
        "description": "What happens to a sample that is unlike the training data: it is predicted like any other "
        "(by a model that contains a solver, without the network's corrections), solved by the classical solver, or "
        "refused (422).",
        "schema": {"type": "string", "enum": list(get_args(Outside)), "default": "answer"},
    },
    {
        "name": "partial",
        "in": "query",
        "description": "What happens to a batch where the model's output for some samples is not finite: all of it "
        "fails (502), or these samples alone, whose outputs are NaN (null in JSON) and which `failed` marks. In a "
        "rollout they stay so from there on, and it ends once all samples have failed.",
        "schema": {"type": "boolean", "default": False},
    },
    {
        "name": "frames",
        "in": "query",
        "description": "How many frames of a trajectory follow, for models of trajectories; by default as many as a "
        "training trajectory has.",
        "schema": {"type": "integer", "minimum": 1},
    },
    {
        "name": "grid",
        "in": "query",
        "description": "The points of the outputs along every axis, `32,48`, or one number for all axes, of models "
        "without an input on the grid; by default the grid that the model was trained on.",
        "schema": {"type": "string", "pattern": "^[0-9]+(,[0-9]+)*$"},
    },
    {
        "name": "after",
        "in": "query",
        "description": "How many frames of the trajectory the caller has already, where the state that is sent is not "
        "its first: frames are counted, and their errors estimated, from there.",
        "schema": {"type": "integer", "minimum": 0, "default": 0},
    },
]
BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {"model": ProblemDetails, "content": {MEDIA_TYPE: {}}, "description": "A problem (RFC 9457)"}
}
POLICY = frozenset(each["name"] for each in QUERY)


def described(
    body: dict[str, Any] | type[BaseModel],
    response: dict[str, Any] | type[BaseModel],
    *binaries: str,
    parameters: Iterable[dict[str, Any]] = (),
    headers: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the documentation of a route: the schema of its JSON body, and its response.

    A response is a document in JSON, or an object of OpenAPI. `binaries` are the other media types of both.
    """
    opaque = dict.fromkeys(binaries, BINARY)
    schema = body if isinstance(body, dict) else inlined_schema(body)
    extra: dict[str, Any] = {"requestBody": {"required": True, "content": {**opaque, JSON: {"schema": schema}}}}
    extra |= {"parameters": [*parameters]} if parameters else {}
    if isinstance(response, dict):
        return {"openapi_extra": extra, "responses": {200: response}}
    about = {"content": opaque, "headers": dict(headers or {})}
    return {"openapi_extra": extra, "response_model": response, "responses": {200: about}}


def check_names_of_query(query: QueryParams, known: Collection[str] = ()) -> None:
    """Refuse query parameters that a route does not have (`unknown-parameter`): a misspelled one would do nothing.

    Nor would the first of several values (`invalid-parameter`).
    """
    if unknown := sorted(set(query) - set(known)):
        names = f"there are {', '.join(sorted(known))}" if known else "the route has none"
        raise Problem("unknown-parameter", f'there is no parameter "{unknown[0][:32]}"; {names}')
    if repeated := [name for name, count in Counter(name for name, _ in query.multi_items()).items() if count > 1]:
        raise Problem("invalid-parameter", f"{repeated[0]}: expected one value but got several")


async def only_known_query(request: Request) -> None:
    """Refuse, as a dependency of a route, query parameters that its function does not take."""
    check_names_of_query(request.query_params, [each.alias for each in request.scope["route"].dependant.query_params])


#: Dependencies of a router whose routes are not direct: a direct route checks the query with its body (`content`).
CHECKED = [Depends(only_known_query)]


def policy(query: Mapping[str, str]) -> Policy:
    """Return the policy that query parameters describe, or refuse a wrong value (`invalid-parameter`)."""
    known = {name: text for name in POLICY if (text := query.get(name)) is not None}
    tolerance, outside, partial = known.get("tolerance"), known.get("outside", "answer"), known.get("partial", "false")
    number = None
    if tolerance is not None:
        try:
            number = float(tolerance)
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf:
            raise _invalid("tolerance", "a positive number", tolerance)
    if outside not in get_args(Outside):
        raise _invalid("outside", " or ".join(get_args(Outside)), outside)
    if partial.lower() not in {"true", "false"}:
        raise _invalid("partial", "true or false", partial)
    counts: dict[str, int] = {}
    for name, least in (("frames", 1), ("after", 0)):
        if name in known:
            if (count := whole_number(known[name])) is None or count < least:
                raise _invalid(name, f"a whole number from {least}", known[name])
            counts[name] = count
    grid = points(known["grid"]) if "grid" in known else None
    return Policy(number, cast("Outside", outside), partial.lower() == "true", **counts, grid=grid)


def points(text: str) -> tuple[int, ...]:
    """Return the points per axis of `32,48`, or refuse them (`invalid-parameter`)."""
    found = [whole_number(each) for each in text.split(",")]
    if not all(found):
        raise _invalid("grid", "positive whole numbers, one per axis", text)
    return tuple(each for each in found if each)


def whole_number(text: str) -> int | None:
    """Return the whole number that a text of at most nine digits is, or None."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def _invalid(name: str, expected: str, found: str) -> Problem:
    return Problem("invalid-parameter", f'{name}: expected {expected} but got "{found[:32]}"')


Version = int | SkipJsonSchema[None]  # the default is no value of the path


class DirectRoute(APIRoute):
    """A route whose endpoint takes its path parameters, `request` and `service`, and returns a response.

    Parameters of the query are described in `openapi_extra`; a version that the path lacks is none of them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.dependant.query_params.clear()

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that calls the endpoint; FastAPI's documented way to customise a route."""
        endpoint = self.endpoint

        async def handle(request: Request) -> Response:
            parameters: dict[str, Any] = dict(request.path_params)
            if "version" in parameters:
                parameters["version"] = version_number(parameters["version"])
            response: Response = await endpoint(**parameters, request=request, service=request.app.state.service)
            return response

        return handle


def version_number(text: str) -> int:
    """Return the number of a model version, or refuse a text that is none (`invalid-parameter`)."""
    if (number := whole_number(text)) is None:
        raise Problem("invalid-parameter", f'expected a number as model version but got "{text[:32]}"')
    return number
