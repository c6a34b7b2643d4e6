"""ASGI middleware that forwards a request for an inversion to the worker in which it runs.

The id of an inversion begins with the slot of its worker, so no worker has to ask the others. The request is
authorised, counted and logged where it is handled. An inversion whose worker has ended is handled here: it is unknown.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import ASGIApp, Receive, Scope, Send

    from serving.workers.worker import Worker

logger = logging.getLogger(__name__)
_INVERSION = re.compile(r"/v1/models/[^/]+/inversions/([^/]+)(/result)?")
_HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"te", b"upgrade", b"trailer", b"expect", b"content-length"}
SECONDS = 60.0  # twice as long as a client may wait for the end of an inversion


class Forwarding:
    """Forwards what belongs to another worker.

    Args:
        app: The application of this worker.
        worker: Knows the others.
    """

    def __init__(self, app: ASGIApp, worker: Worker) -> None:
        self._app = app
        self._worker = worker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _INVERSION.fullmatch(scope["path"]) if scope["type"] == "http" else None
        owner = self._worker.owner(found[1]) if found else None
        if owner is None or not await _forward(scope, owner, send):
            await self._app(scope, receive, send)


async def _forward(scope: Scope, owner: Path, send: Send) -> bool:
    """Send a request without its body, which these routes do not read; return whether a response has begun."""
    begun = False
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in _kept(scope["headers"])]
    try:
        # Path and query are as the client sent them.
        target = URL(f"http://worker{scope['raw_path'].decode()}?{scope['query_string'].decode()}", encoded=True)
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(str(owner)),
                timeout=aiohttp.ClientTimeout(total=SECONDS),
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            ) as session,
            session.request(scope["method"], target, headers=headers, allow_redirects=False) as response,
        ):
            kept = list(_kept(response.raw_headers))
            await send({"type": "http.response.start", "status": response.status, "headers": kept})
            begun = True
            async for part in response.content.iter_any():
                await send({"type": "http.response.body", "body": part, "more_body": True})
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        logger.warning("the worker of an inversion does not respond: %s", type(error).__name__)
        if begun:
            raise  # the server closes the connection
        return False
    await send({"type": "http.response.body", "body": b""})
    return True


def _kept(headers: list[tuple[bytes, bytes]] | tuple[tuple[bytes, bytes], ...]) -> list[tuple[bytes, bytes]]:
    """Return the headers that concern the message, with names in lower case."""
    named = [(name.lower(), value) for name, value in headers]
    return [(name, value) for name, value in named if name not in _HOP]
