"""One call over gRPC: reading its message, ending it, and what the log says of it."""

from __future__ import annotations

import asyncio
import math
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode

from serving.errors import Problem
from serving.limits import ANYONE
from serving.observability.metrics import UNKNOWN
from serving.observability.request_log import ID_HEADER, request_id
from serving.predict import offload

CANCELLED = "CANCELLED"
TYPE_HEADER = "petrov-problem-type"
CODES = {
    400: StatusCode.INVALID_ARGUMENT,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    408: StatusCode.DEADLINE_EXCEEDED,
    413: StatusCode.RESOURCE_EXHAUSTED,
    422: StatusCode.INVALID_ARGUMENT,
    429: StatusCode.RESOURCE_EXHAUSTED,
    500: StatusCode.INTERNAL,
    502: StatusCode.INTERNAL,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
}


class Call:
    """One call of a method: its message, its deadline and its outcome.

    Args:
        method: Name of the method.
        context: Context of gRPC.

    Attributes:
        size: Bytes of the message, once it has arrived.
        model: Name of the model in the message.
        version: Version of the model that is used.
        code: Name of the status with which the call ended.
        sent: Bytes of the response.
        client: Address of the client.
        caller: The holder of the key, once admitted.
    """

    def __init__(self, method: str, context: Any) -> None:
        metadata = dict(context.invocation_metadata() or ())
        self.authorization = str(metadata.get("authorization", ""))
        self.caller = ANYONE
        self.method = method
        self.size = 0
        self.request_id = request_id(str(metadata.get(ID_HEADER.lower(), "")))
        self.model = UNKNOWN
        self.version = ""
        self.code = CANCELLED
        self.sent = 0
        self.client = unquote(context.peer()).partition(":")[2].rpartition(":")[0]  # ipv4:127.0.0.1:4321
        self._context = context

    @property
    def seconds(self) -> float:
        """Seconds that the client's deadline leaves."""
        left: float | None = self._context.time_remaining()
        return math.inf if left is None else left

    async def read(self, message: Any, receive_seconds: float) -> Any:
        """Return the message.

        Args:
            message: Class of the message.
            receive_seconds: How long it may take to arrive.

        Raises:
            Problem: unreadable-body: There is no message, or none of that class.
            Problem: slow-body: The message was not complete in time.
        """
        found = await self.read_next(message, receive_seconds)
        if found is None:
            raise Problem("unreadable-body", f"expected a {message.DESCRIPTOR.name} but got nothing")
        return found

    async def read_next(self, message: Any, receive_seconds: float) -> Any:
        """Return the next message of a stream; None at its end. Arguments and errors are those of `read`."""
        try:
            async with asyncio.timeout(receive_seconds):
                body = await self._context.read()
        except TimeoutError as error:
            raise Problem("slow-body", f"no complete message arrived within {receive_seconds:g} s") from error
        if body is grpc.aio.EOF:
            return None
        self.size = len(body)
        return await offload(self.size, _parsed, message, body)

    async def write(self, response: bytes, seconds: float) -> None:
        """Send one response of a stream; wait while the client does not read.

        Raises:
            Problem: deadline-exceeded: The client has read nothing for so long.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._context.write(response)
        except TimeoutError as error:
            raise Problem("deadline-exceeded", f"the client has read nothing for {seconds:g} s") from error
        self.sent += len(response)

    async def abort(self, problem: Problem) -> None:
        """End the call with an error; never returns."""
        code = CODES[problem.status]
        self.code = code.name
        headers = {ID_HEADER: self.request_id, TYPE_HEADER: problem.details().type, **problem.headers}
        trailing = tuple((name.lower(), value) for name, value in headers.items())
        await self._context.abort(code, problem.detail, trailing)

    def succeed(self, response: bytes | None) -> None:
        """Record the response, which gRPC sends; None where all responses have been sent."""
        self.sent += len(response or b"")
        self.code = StatusCode.OK.name
        self._context.set_trailing_metadata(((ID_HEADER.lower(), self.request_id),))


def _parsed(message: Any, body: bytes) -> Any:
    try:
        return message.FromString(body)
    except DecodeError as error:
        raise Problem("unreadable-body", f"not a {message.DESCRIPTOR.name}: {error}") from error
