"""What every HTTP protocol does with the body of a request for a prediction: read it, and predict.

    content = await body.content(request, service, limit)       # admitted until the last byte of the response is sent
    written = await body.predicted(request, service, Prediction(card, …), exchange of the content)

The body is counted while it arrives and within a time limit: `Content-Length` may be wrong or absent, and uvicorn has
no limit of its own. Size and time are bounded before a byte is kept.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar, cast

from starlette.requests import ClientDisconnect, Request

from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Coroutine

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
    found = await read(request, ticket, limit, service.settings.receive_seconds)
    service.metrics.request_bytes.observe(len(found))
    ticket.enter(rollout=rollout)
    ticket.hold((_JSON_MEMORY - 1) * (len(found) if json is None else min(json, len(found))))
    return found


async def predicted(request: Request, service: Service, wanted: Prediction, exchange: Exchange[Written]) -> Written:
    """Return what the exchange writes; the prediction ends when the client disconnects."""
    return await unless_disconnected(request, service.predictor.predict(wanted, exchange))


async def read(request: Request, ticket: Ticket, max_bytes: int, seconds: float) -> bytearray:
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
