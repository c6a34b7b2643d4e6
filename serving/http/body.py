"""A request in, its body's bytes out: counted while they arrive, and only for so long.

`Content-Length` may lie or be absent, and the server beneath has no limit of its own, so both size and time are
bounded here, before a byte is kept.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar, cast

from starlette.requests import ClientDisconnect, Request

from serving.problem_details import BodyTooLarge, SlowBody

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from serving.http.limits import Ticket

Result = TypeVar("Result")
_CLOSE = {"Connection": "close"}  # or the server would read the rest of what was refused


async def read(request: Request, ticket: Ticket, max_bytes: int, seconds: float) -> bytearray:
    """The whole body.

    Args:
        request: Whose body has not been touched yet.
        ticket: Holds the bytes that have arrived.
        max_bytes: The largest body.
        seconds: How long all of it may take.

    Raises:
        BodyTooLarge: More bytes than the limit, announced or sent.
        SlowBody: Not complete in time.
        Overloaded: No room for its bytes beside those of other requests.
        ClientDisconnect: The client went away first.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and (len(announced) > 18 or int(announced) > max_bytes):
        raise BodyTooLarge(f"Content-Length is {announced[:32]}; the limit is {max_bytes} bytes", headers=_CLOSE)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                if len(body) + len(chunk) > max_bytes:
                    raise BodyTooLarge(f"the body is longer than the limit of {max_bytes} bytes", headers=_CLOSE)
                ticket.hold(len(chunk))
                body += chunk
    except TimeoutError as error:
        raise SlowBody(f"{len(body)} bytes arrived within {seconds:g} s, and not the end", headers=_CLOSE) from error
    return body


async def unless_disconnected(request: Request, work: Coroutine[None, None, Result]) -> Result:
    """Do the work for a request whose body has been read, and stop it when the client hangs up.

    Raises:
        ClientDisconnect: Nobody is there for the answer.
    """
    worker = cast("asyncio.Task[object]", asyncio.current_task())
    others, working, hung_up = worker.cancelling(), True, False

    def stop(watch: asyncio.Future[None]) -> None:
        nonlocal hung_up
        if working and not watch.cancelled():
            hung_up = worker.cancel()

    watch = asyncio.ensure_future(_disconnected(request))
    watch.add_done_callback(stop)
    try:
        return await work
    except asyncio.CancelledError:
        if hung_up and worker.cancelling() <= others + 1:
            raise ClientDisconnect from None
        raise
    finally:
        working = False
        watch.cancel()
        if hung_up:
            worker.uncancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
