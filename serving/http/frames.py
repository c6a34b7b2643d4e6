"""The response of a rollout: `multipart/mixed` (RFC 2046) with a part per frame, as each is computed.

    --BOUNDARY                              one of 32 hexadecimal digits, named in the Content-Type
    Content-Type: application/x-npy         or JSON, or safetensors: what `predict` would send for this frame
    Content-Length: 640
    Petrov-Frame: 1
    Petrov-Error-Estimate: 0.0031           and the other headers of `predict`
                                            (an empty line, then the bytes)
    …
    --BOUNDARY--                            after the last frame: without it the rollout is not complete

An error after the first frame is a last part of the type `application/problem+json`. The connection is closed after it
without the closing delimiter, and without the end of the chunked response, so that no client takes it for complete. The
response waits for a client that reads slowly, and the model is not called meanwhile.
"""

from __future__ import annotations

import logging
import secrets
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

import orjson
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from serving import errors
from serving.codecs.negotiation import MULTIPART
from serving.errors import Problem
from serving.http import body
from serving.http.connection import BREAK_OFF

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from serving.codecs.formats import Written
    from serving.observability.metrics import Metrics
    from serving.predict import Frame

logger = logging.getLogger(__name__)
NUMBER = "Petrov-Frame"


class FrameStream(Response):
    """A response of frames.

    Args:
        request: The request, whose body has been read.
        first: The first frame.
        frames: The others.
        media_type: The media type of a frame.
        metrics: Counts errors by their kinds.
    """

    def __init__(
        self,
        request: Request,
        first: Frame[Written],
        frames: AsyncGenerator[Frame[Written]],
        media_type: str,
        metrics: Metrics,
    ) -> None:
        self._boundary = secrets.token_hex(16)
        super().__init__(media_type=f"{MULTIPART}; boundary={self._boundary}")
        del self.headers["content-length"]
        self._request, self._first, self._frames = request, first, frames
        self._frame_type, self._metrics = media_type, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        with suppress(ClientDisconnect):  # a response that has begun has no other end
            async with aclosing(self._frames):
                await body.unless_disconnected(self._request, self._send(scope, send))

    async def _send(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

        async def write(content: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": content, "more_body": more})

        await write(self._part(self._first))
        number = self._first.number
        try:
            async for frame in self._frames:
                await write(self._part(frame))
                number = frame.number
        except Problem as problem:
            self._metrics.rejected.labels(problem.kind).inc()
            logger.warning("a rollout ends after frame %d: %s", number, problem.detail)
            document = orjson.dumps(problem.details().model_dump(exclude_none=True))
            await write(self._delimited(document, errors.MEDIA_TYPE, {NUMBER: str(number + 1), **problem.headers}))
            scope["extensions"][BREAK_OFF]["call"]()
            return
        await write(f"--{self._boundary}--\r\n".encode(), more=False)

    def _part(self, frame: Frame[Written]) -> bytes:
        headers = {NUMBER: str(frame.number), **frame.written.headers}
        return self._delimited(frame.written.body, self._frame_type, headers)

    def _delimited(self, content: bytes, media_type: str, headers: Mapping[str, str]) -> bytes:
        lines = {"Content-Type": media_type, "Content-Length": str(len(content)), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return b"".join((f"--{self._boundary}\r\n{head}\r\n".encode(), content, b"\r\n"))
