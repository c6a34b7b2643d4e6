"""The clients over HTTP, synchronous and asynchronous, and what they share with those over gRPC.

A method of a client is an operation (`_operations`) that its driver performs: parameters, documentation and behaviour
are the operation's own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from difflib import get_close_matches
from functools import cache, partial, update_wrapper
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import httpx2

from petrov_client import _compression, _environment
from petrov_client import _http as http
from petrov_client._connections import Connections, LoopConnections, Opened
from petrov_client._environment import RootCertificates
from petrov_client._errors import InvalidInput
from petrov_client._flow import TIMEOUT_SECONDS, AsyncDriver, Deadline, SyncDriver, iterate, run
from petrov_client._http_operations import HttpOperations
from petrov_client._identity import bearer
from petrov_client._operations import Operations

P = ParamSpec("P")
T = TypeVar("T")
_signature = cache(inspect.signature)


def _run(operation: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return the method that performs an operation, and returns its result."""

    def method(self: Any, /, *args: P.args, **named: P.kwargs) -> Any:
        check_arguments(operation, args, named)
        return run(operation(self._operations, *args, **named))

    return _shown(method, operation)


def _iterate(
    operation: Callable[Concatenate[Any, P], Coroutine[Any, Any, AsyncGenerator[T]]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """Return the method that checks the input of an operation at once, and returns an iterator over its items."""

    def method(self: Any, /, *args: P.args, **named: P.kwargs) -> Any:
        check_arguments(operation, args, named)
        return iterate(run(operation(self._operations, *args, **named)))

    return _shown(method, operation, "Iterator[Any]")


def _await(
    operation: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return `_run`'s asynchronous twin."""

    async def method(self: Any, /, *args: P.args, **named: P.kwargs) -> Any:
        check_arguments(operation, args, named)
        return await operation(self._operations, *args, **named)

    return _shown(method, operation)


def _aiterate(
    operation: Callable[Concatenate[Any, P], Coroutine[Any, Any, AsyncGenerator[T]]],
) -> Callable[Concatenate[Any, P], AsyncIterator[T]]:
    """Return `_iterate`'s asynchronous twin, which checks the input when the iterator is first advanced.

    Use `async with contextlib.aclosing(…)` where the loop over it may end early: it cancels all requests at once.
    """

    async def method(self: Any, /, *args: P.args, **named: P.kwargs) -> Any:
        check_arguments(operation, args, named)
        async with aclosing(await operation(self._operations, *args, **named)) as items:
            async for item in items:
                yield item

    return _shown(method, operation, "AsyncIterator[Any]")


def check_arguments(operation: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Check that an operation has parameters of these names.

    Raises:
        InvalidInput: It has not, or needs others; the message names those that may be meant.
    """
    signature = _signature(operation)
    try:
        signature.bind(None, *args, **named)
    except TypeError as error:
        known = [
            name for name, each in signature.parameters.items() if name != "self" and each.kind != each.VAR_KEYWORD
        ]
        unknown = next((name for name in named if name not in known), None)
        close = get_close_matches(unknown or "", known, 1)
        advice = f": did you mean {close[0]}?" if close else ""
        if unknown and not advice and "array" in known:
            advice = f'; inputs by name are a mapping, such as {operation.__name__}("heat", {{"conductivity": k}}, …)'
        fault = f"no {unknown}{advice}" if unknown else f"the call does not fit: {error}"
        raise InvalidInput(f"{operation.__name__} takes {', '.join(known) or 'nothing'}, and {fault}") from None


def _shown(method: Callable[..., Any], operation: Callable[..., Any], result: str | None = None) -> Callable[..., Any]:
    """Give a method the name, the documentation and the parameters of an operation."""
    known = _signature(operation)
    shown: Any = update_wrapper(method, operation)
    shown.__signature__ = known.replace(return_annotation=result or known.return_annotation)
    return method


class _Connected:
    """What all four clients hold: the operations, the key, and the arguments that they were made with.

    A copy of a client, by pickle too, is one with the same arguments, the key among them, and connections of its own.
    """

    def __init__(self, operations: Operations, shown: str, arguments: tuple[Any, ...]) -> None:
        self._operations, self._shown, self._arguments = operations, shown, arguments
        self._key = bearer(arguments[1])

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        return type(self), self._arguments

    def __repr__(self) -> str:
        key = ", api_key='***'" if self._key else ""
        return f"{type(self).__name__}({self._shown!r}{key})"


class SyncPredictor(_Connected):
    """The methods of both synchronous clients; a subclass implements `close`."""

    in_flight = SyncDriver.in_flight

    models = _run(Operations.models)
    model = _run(Operations.model)
    predict = _run(Operations.predict)
    stream = _iterate(Operations.stream)
    rollout = _run(Operations.rollout)
    rollout_stream = _iterate(Operations.rollout_stream)
    vjp = _run(Operations.vjp)
    jvp = _run(Operations.jvp)

    def close(self) -> None:
        """Close the connections."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncPredictor(_Connected):
    """The methods of both asynchronous clients. At most four requests of a batch are in flight at a time."""

    in_flight = AsyncDriver.in_flight

    models = _await(Operations.models)
    model = _await(Operations.model)
    predict = _await(Operations.predict)
    stream = _aiterate(Operations.stream)
    rollout = _await(Operations.rollout)
    rollout_stream = _aiterate(Operations.rollout_stream)
    vjp = _await(Operations.vjp)
    jvp = _await(Operations.jvp)

    async def close(self) -> None:
        """Close the connections."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Client(SyncPredictor):
    """A client of the gateway over HTTP.

    It may be used by several threads. A forked process, and one that a client is pickled to, opens connections of its
    own; a pickled client holds its key.

    Args:
        url: The gateway's address.
        api_key: Sent as a bearer token, never shown.
        timeout: Seconds for each request, its repetitions included.
        transport: What carries the requests instead of sockets, for proxies, certificates and tests.
        compression: How bodies are sent and accepted, "gzip" or "zstd" (the extra `[zstd]`), where the service reads
            such bodies; by default as they are, since fields of numbers hardly shrink.
        root_certificates: A file (PEM) of the authorities that are trusted, for https. By default they are those in the
            file `SSL_CERT_FILE` or the folder `SSL_CERT_DIR`, or else those of the system.

    Raises:
        ValueError: `url` is no HTTP address, or has a user beside a key; no header can carry the key; or there is no
            such compression. Certificates that cannot be used are one at the first request.
    """

    example = _run(HttpOperations.example)
    reference = _run(HttpOperations.reference)
    invert = _run(HttpOperations.invert)

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx2.BaseTransport | None = None,
        compression: Literal["gzip", "zstd"] | None = None,
        root_certificates: RootCertificates | None = None,
    ) -> None:
        self._url = http.checked_url(url, api_key)
        operations = HttpOperations(http.HttpWire(), SyncDriver(self._receive), timeout)
        arguments = (url, api_key, timeout, transport, compression, root_certificates)
        super().__init__(operations, http.address(self._url), arguments)
        encrypted = self._url.scheme == "https" and transport is None
        _environment.checked_roots(root_certificates, encrypted=encrypted)
        self._compression = _compression.compression(compression)
        self._proxy = _environment.over_http(self._url) if transport is None else ""
        self._direct = transport is None and not self._proxy
        self._connections = Connections(self._connect)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _connect(self) -> Opened[httpx2.Client]:
        *_, transport, _, roots = self._arguments
        with _environment.usable(roots):
            settings = http.settings(self._url, self._key, self._compression, roots)
            sender = httpx2.Client(transport=transport, **settings)
        return Opened(sender, sender.close)

    async def _receive(self, request: http.HttpRequest, seconds: float) -> AsyncGenerator[http.HttpReply]:
        """Send a request and yield its replies as they arrive; nothing here waits for an event loop."""
        deadline, opened = Deadline(seconds, request.further), self._connections.get()
        arguments = http.arguments(request, seconds, self._compression)
        faults = http.faults(self._url, self._proxy, direct=self._direct)
        with faults as answer, opened.sender.stream(**arguments) as response:
            answer.begun = True
            replies = http.Replies(request, response, deadline, self._proxy)
            for chunk in response.iter_bytes():
                for reply in replies.add(chunk):
                    yield reply
                    opened.check()
            for reply in replies.end():
                yield reply


class AsyncClient(AsyncPredictor):
    """An asynchronous client of the gateway over HTTP; arguments as `Client`.

    Each event loop, one after another or in several threads, has connections of its own.
    """

    example = _await(HttpOperations.example)
    reference = _await(HttpOperations.reference)
    invert = _await(HttpOperations.invert)

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
        compression: Literal["gzip", "zstd"] | None = None,
        root_certificates: RootCertificates | None = None,
    ) -> None:
        self._url = http.checked_url(url, api_key)
        operations = HttpOperations(http.HttpWire(), AsyncDriver(self._receive), timeout)
        arguments = (url, api_key, timeout, transport, compression, root_certificates)
        super().__init__(operations, http.address(self._url), arguments)
        encrypted = self._url.scheme == "https" and transport is None
        _environment.checked_roots(root_certificates, encrypted=encrypted)
        self._compression = _compression.compression(compression)
        self._proxy = _environment.over_http(self._url) if transport is None else ""
        self._direct = transport is None and not self._proxy
        self._connections = LoopConnections(self._connect)

    async def close(self) -> None:
        """Close the connections of this event loop."""
        await self._connections.close()

    def _connect(self) -> Opened[httpx2.AsyncClient]:
        *_, transport, _, roots = self._arguments
        with _environment.usable(roots):
            settings = http.settings(self._url, self._key, self._compression, roots)
            sender = httpx2.AsyncClient(transport=transport, **settings)
        return Opened(sender, sender.aclose)

    async def _receive(self, request: http.HttpRequest, seconds: float) -> AsyncGenerator[http.HttpReply]:
        """Send a request and yield its replies as they arrive."""
        deadline, opened = Deadline(seconds, request.further), await self._connections.get()
        prepared = partial(http.arguments, request, seconds, self._compression)
        arguments = await asyncio.to_thread(prepared) if self._compression.applies(request.body) else prepared()
        with http.faults(self._url, self._proxy, direct=self._direct) as answer:
            async with AsyncExitStack() as stack:
                async with deadline.limit():
                    sent = opened.sender.stream(**arguments)
                    response = await stack.enter_async_context(sent)
                    answer.begun = True
                    chunks = response.aiter_bytes()
                replies = http.Replies(request, response, deadline, self._proxy)
                while True:
                    async with deadline.limit():
                        chunk = await anext(chunks, None)
                    if chunk is None:
                        break
                    for reply in replies.add(chunk):
                        yield reply
                for reply in replies.end():
                    yield reply
