"""What the protocols over HTTP share: the body and the query of a request, and predicting until the client left.

    content = await over_http.content(request, service, limit)  # admitted until the last byte of the response is sent
    written = await over_http.predicted(request, service, Prediction(card, …), exchange of the content)

The body is counted while it arrives and within a time limit: `Content-Length` may be wrong or absent, and uvicorn has
no limit of its own. Size and time are bounded before a byte is kept.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request

from serving.errors import Problem
from serving.quality import ANY, Outside, Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping
    from typing import Any

    from fastapi import Request, Response

    from serving.limits import Ticket
    from serving.predict import Exchange, Prediction
    from serving.service import Service

Result = TypeVar("Result")
Written = TypeVar("Written")
_JSON_MEMORY = 12  # bytes of Python's lists and numbers per byte of their text, as `[9.5,0.5]` has them
_CLOSE = {"Connection": "close"}  # else the server would read the rest of what was refused


async def content(
    request: Request, service: Service, limit: int, *, json: int | None = None, rollout: bool = False
) -> bytearray:
    """Return the whole body of a request, which is admitted until its response has been sent.

    Args:
        request: A request whose body has not been read.
        service: The parts of the gateway.
        limit: Bytes of the largest body.
        json: How many bytes of it are JSON; None for all.
        rollout: Whether the response lasts as long as the client reads.

    Raises:
        Problem: The body is too large or too slow, the service is busy, or the caller is over its rate.
        ClientDisconnect: The client left first.
    """
    ticket: Ticket = request.state.ticket
    ticket.key = request.state.caller.name
    ticket.check()
    request.state.caller.check()
    found = await read_body(request, ticket, limit, service.settings.receive_seconds)
    service.metrics.request_bytes.observe(len(found))
    ticket.enter(rollout=rollout)
    ticket.hold((_JSON_MEMORY - 1) * (len(found) if json is None else min(json, len(found))))
    return found


async def predicted(request: Request, service: Service, wanted: Prediction, exchange: Exchange[Written]) -> Written:
    """Return what the exchange writes; the prediction ends when the client disconnects."""
    return await unless_disconnected(request, service.predictor.predict(wanted, exchange))


async def read_body(request: Request, ticket: Ticket, max_bytes: int, seconds: float) -> bytearray:
    """Return the whole body.

    Args:
        request: A request whose body has not been read.
        ticket: Counts the bytes that have arrived.
        max_bytes: The size of the largest body.
        seconds: How long the whole body may take.

    Raises:
        Problem: body-too-large: More bytes than the limit were announced or sent.
        Problem: slow-body: The body was not complete in time.
        Problem: overloaded: The bodies of all requests in flight take too many bytes.
        ClientDisconnect: The client left first.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and (len(announced) > 18 or int(announced) > max_bytes):
        raise Problem(
            "body-too-large", f"Content-Length is {announced[:32]}; the limit is {max_bytes} bytes", headers=_CLOSE
        )
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                if len(body) + len(chunk) > max_bytes:
                    raise Problem(
                        "body-too-large", f"the body is longer than the limit of {max_bytes} bytes", headers=_CLOSE
                    )
                ticket.hold(len(chunk))
                body += chunk
    except TimeoutError as error:
        detail = f"{len(body)} bytes arrived within {seconds:g} s, and the body was not complete"
        raise Problem("slow-body", detail, headers=_CLOSE) from error
    return body


async def unless_disconnected(request: Request, work: Coroutine[None, None, Result]) -> Result:
    """Do the work for a request whose body has been read, and cancel it when the client disconnects.

    Raises:
        ClientDisconnect: The client left before the work was done.
    """
    worker = cast("asyncio.Task[object]", asyncio.current_task())
    others, working, disconnected = worker.cancelling(), True, False

    def stop(watch: asyncio.Future[None]) -> None:
        nonlocal disconnected
        if working and not watch.cancelled():
            disconnected = worker.cancel()

    watch = asyncio.ensure_future(_disconnected(request))
    watch.add_done_callback(stop)
    try:
        return await work
    except asyncio.CancelledError:
        if disconnected and worker.cancelling() <= others + 1:
            raise ClientDisconnect from None
        raise
    finally:
        working = False
        watch.cancel()
        if disconnected:
            worker.uncancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


_MOST_DIGITS = 9
QUERY: list[dict[str, Any]] = [
    {
        "name": "tolerance",
        "in": "query",
        "description": "The largest `error_bound` of any sample. A sample with a larger one is computed with more "
        "iterations where the model has a graph for that, and then by the classical solver of the problem's equation; "
        "where neither meets it, the request is refused (422).",
        "schema": {"type": "number", "exclusiveMinimum": 0},
    },
    {
        "name": "outside",
        "in": "query",
        "description": "What happens to a sample that is unlike the training data: it is predicted like any other, "
        "solved by the classical solver, or refused (422).",
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
]
AFTER: dict[str, Any] = {
    "name": "after",
    "in": "query",
    "description": "How many frames of the trajectory the caller has already, where the state that is sent is not its "
    "first: frames are counted, and their errors estimated, from there.",
    "schema": {"type": "integer", "minimum": 0, "default": 0},
}
_NAMES = frozenset(each["name"] for each in (*QUERY, AFTER))


def policy_of_query(query: Mapping[str, str]) -> Policy:
    """Return the policy that the query of an HTTP request describes; a misspelled parameter would demand nothing.

    Raises:
        Problem: unknown-parameter: There is no such parameter.
        Problem: invalid-parameter: As `policy`.
    """
    check_names_of_query(query, _NAMES)
    return policy(query)


def check_names_of_query(query: Mapping[str, str], known: Collection[str] = ()) -> None:
    """Refuse query parameters that a route does not have.

    Raises:
        Problem: unknown-parameter: There is no such parameter.
    """
    if unknown := sorted(set(query) - set(known)):
        names = f"there are {', '.join(sorted(known))}" if known else "the route has none"
        raise Problem("unknown-parameter", f'there is no parameter "{unknown[0][:32]}"; {names}')


async def only_known_query(request: Request) -> None:
    """Refuse, as a dependency of a route, query parameters that its function does not take."""
    check_names_of_query(request.query_params, [each.alias for each in request.scope["route"].dependant.query_params])


def policy(query: Mapping[str, str]) -> Policy:
    """Return the policy that query parameters describe.

    Raises:
        Problem: invalid-parameter: The tolerance is no positive number, or another parameter is none of its values.
    """
    if not query:
        return ANY
    partial = _boolean("partial", query.get("partial", "false"))
    return Policy(
        _tolerance(query.get("tolerance")),
        _outside(query.get("outside", "answer")),
        partial,
        _count("frames", query.get("frames"), 1),
        _count("after", query.get("after"), 0) or 0,
    )


def _tolerance(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise Problem("invalid-parameter", f'tolerance: expected a positive number but got "{text[:32]}"')
    return value


def _outside(text: str) -> Outside:
    for known in get_args(Outside):
        if text == known:
            found: Outside = known
            return found
    raise Problem("invalid-parameter", f'outside: expected {" or ".join(get_args(Outside))} but got "{text[:32]}"')


def _count(name: str, text: str | None, least: int) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) >= least):
        raise Problem("invalid-parameter", f'{name}: expected a whole number from {least} but got "{text[:32]}"')
    return int(text)


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise Problem("invalid-parameter", f'{name}: expected true or false but got "{text[:32]}"')
    return text.lower() == "true"


class DirectRoute(APIRoute):
    """A route whose endpoint takes its path parameters, `request` and `service`, and returns a response."""

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
    """Return the number of a model version.

    Raises:
        Problem: invalid-parameter: The text is no number of at most nine digits.
    """
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Problem("invalid-parameter", f'expected a number as model version but got "{text[:32]}"')
    return int(text)
