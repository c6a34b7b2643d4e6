"""Where clients see the service: through which proxies and under which path, by which names, and with which methods.

    Proxied -> (the access log) -> Named -> (CORS) -> WithHead -> (keys) -> the application

A page of another origin whose name is made to resolve to the service's address (DNS rebinding) is of the service's own
origin to a browser. It shows in the `Host` of its requests, which is a name of the attacker's: an address as `Host`
cannot be rebound, nor can a name without a dot, which no public server of names knows, and programs other than browsers
can send what they like.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote, urlsplit

from prometheus_client import Counter
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from serving.errors import Problem, refusal
from serving.settings import ANY, is_prefix

_LONGEST_PREFIX = 256


class Proxied(ProxyHeadersMiddleware):
    """ASGI middleware, the first of all: the client, the scheme and the path of which trusted reverse proxies tell.

    The path is that under which a proxy publishes the service, and becomes the `root_path` of ASGI, which is a part of
    `path`. Some proxies remove it from requests and others do not.
    """

    def __init__(self, app: ASGIApp, trusted: list[str], prefix: str) -> None:
        super().__init__(app, [ANY] if ANY in trusted else trusted)  # type: ignore[arg-type]  # ASGI by another name
        self._prefix = prefix

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # the types of uvicorn are private
        if scope["type"] == "http" and (prefix := self._published(scope)):
            path, raw, start = scope["path"], scope["raw_path"], f"{prefix}/"
            kept = path == prefix or path.startswith(start)
            scope["root_path"] = prefix
            scope["path"], scope["raw_path"] = (path, raw) if kept else (prefix + path, prefix.encode() + raw)
        await super().__call__(scope, receive, send)

    def _published(self, scope: Scope) -> str:
        forwarded = Headers(scope=scope).get("x-forwarded-prefix")
        trusted = (scope["client"] or ("",))[0] in self.trusted_hosts
        if forwarded is not None and len(forwarded) <= _LONGEST_PREFIX and trusted:
            forwarded = forwarded.rstrip("/")
            if is_prefix(forwarded):
                return forwarded
        return self._prefix


def caller_address(peer: str, forwarded: str, trusted: Sequence[str]) -> str:
    """Return the address of a client over gRPC, of which a trusted reverse proxy tells as over HTTP.

    Args:
        peer: What is connected, as gRPC writes it: `ipv4:127.0.0.1:4321`, `ipv6:%5B::1%5D:4321`.
        forwarded: The header `X-Forwarded-For`, which may be empty.
        trusted: The addresses and networks of the proxies.
    """
    address = unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")
    hosts = _hosts(tuple(trusted))
    return (hosts.get_trusted_client_address(forwarded)[0] if forwarded and address in hosts else "") or address


@lru_cache(maxsize=16)
def _hosts(trusted: tuple[str, ...]) -> Any:  # a private class of uvicorn
    return Proxied(_nothing, list(trusted), "").trusted_hosts


async def _nothing(*_: Any) -> None:
    """Be an application that is never called."""


class Named:
    """ASGI middleware that refuses requests for another name than those of the service.

    Starlette's `TrustedHostMiddleware` knows no addresses, which probes and clients of a pod use, and no problems.
    """

    def __init__(self, app: ASGIApp, names: Collection[str], rejected: Counter) -> None:
        self._app, self._rejected = app, rejected
        self._exact = {"localhost", *(name for name in names if not name.startswith("*"))}
        self._ends = (".localhost", *(name[1:] for name in names if name.startswith("*")))
        self._is_known = lru_cache(maxsize=1024)(self._look)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            host = Headers(scope=scope).get("host", "localhost")  # HTTP/1.0 has none, which browsers do not speak
            if not self._is_known(host[:300]):
                detail = f'the service is not known as "{host[:64]}"; PETROV_ALLOWED_HOSTS has its names'
                app = refusal(Problem("unknown-host", detail), scope["state"]["path"], self._rejected)
        await app(scope, receive, send)

    def _look(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
        except ValueError:  # an address in brackets that is none
            return False
        if name in self._exact or name.endswith(self._ends) or (name and not {".", ":"} & {*name}):
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


class WithHead:
    """ASGI middleware that responds to HEAD as to GET, without the body, which the server leaves out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            scope["method"] = "HEAD"  # the request has been routed
            await send(message)

        scope["method"] = "GET"
        try:
            await self._app(scope, receive, sending)
        finally:
            scope["method"] = "HEAD"  # for the response to an error
