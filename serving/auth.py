"""API keys, their scopes and rates: the key file, who may do what, and the middleware that asks.

Without a key file everybody may do everything. With one, whatever is not `OPEN` needs a key with the scope. A missing
or unknown key is 401 (UNAUTHENTICATED), a key without the scope 403 (PERMISSION_DENIED), and a key over its rate 429
(RESOURCE_EXHAUSTED) with `Retry-After`. A key is sent as `Authorization: Bearer KEY`, or as the password of
`Authorization: Basic …`: that is what clients send that know nothing but a URL, `http://any-name:KEY@host/…`.

The file is TOML and holds hashes, never the keys themselves, so it may be committed:

    [[key]]
    name = "alice"
    scopes = ["infer"]
    sha256 = "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"
    rate = 100.0
    burst = 500

`sha256` is the hash of the key's bytes, `rate` the samples per second that it may send, `burst` the samples at once
after a pause (by default those of one second). Without a rate there is no limit. A key is 256 random bits, so guessing
is hopeless at any speed and a fast hash without salt is as safe as a slow one; slow hashes protect passwords that
people choose, and computed for every request one would be a way to stop the service.

A route declares its scope beside its path, and so does a gRPC method:

    @router.get("/v1/models")
    @requires(Scope.INFER)
    async def list_models(...)

Where keys are required, a route without a declaration is 404 for every key: forgetting it closes the route.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import math
import re
import secrets
import shutil
import time
import tomllib
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypeVar

from fastapi.routing import iter_route_contexts
from filelock import FileLock
from pydantic import Field, ValidationError, model_validator
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from serving import system
from serving.document import Document
from serving.errors import Problem, refusal
from serving.limits import ANYONE, Caller
from serving.observe import Metrics

PREFIX = "petrov_"  # lets scanners for leaked secrets, and people, recognise a key
MAX_KEYS = 1000  # each request is compared with all of them
LEAST_RATE, MOST = 1e-6, 10**9  # a sample in twelve days, and more than any server computes


class KeysError(ValueError):
    """A key file that cannot be used; the message names the key of the entry and repeats no value."""


class Scope(StrEnum):
    """What a key may be used for."""

    INFER = "infer"  # models, predictions and reference solutions
    METRICS = "metrics"
    ADMIN = "admin"  # everything


class Key(Document):
    """An entry of the file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    rate: Annotated[float, Field(ge=LEAST_RATE, le=MOST)] | None = None
    burst: Annotated[int, Field(ge=1, le=MOST)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.burst is not None and self.rate is None:
            raise ValueError("expected a rate beside burst")
        return self

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes

    @property
    def limit(self) -> tuple[float, int] | None:
        """Samples per second, and at once; None for no limit."""
        return None if self.rate is None else (self.rate, self.burst or math.ceil(self.rate))

    def text(self) -> str:
        """Return the entry as TOML; JSON writes strings, numbers and lists of strings in the same way."""
        fields = self.model_dump(mode="json", exclude_none=True)
        return "\n".join(["[[key]]", *(f"{name} = {json.dumps(value)}" for name, value in fields.items()), ""])


class Keys(Document):
    """All entries of the file."""

    key: Annotated[tuple[Key, ...], Field(max_length=MAX_KEYS)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        for what in ("name", "sha256"):
            if len({getattr(key, what) for key in self.key}) < len(self.key):
                raise ValueError(f"expected every key once but two have the same {what}")
        return self

    def find(self, presented: str) -> Key | None:
        """Return the entry of a presented key, in a time that does not depend on which entry matches, or how nearly."""
        digest = fingerprint(presented)
        matching = [key for key in self.key if hmac.compare_digest(key.sha256, digest)]
        return matching[0] if matching else None


def fingerprint(key: str) -> str:
    """Return the SHA-256 of a key, in hexadecimal digits."""
    return hashlib.sha256(key.encode()).hexdigest()


def make_key(
    name: str, scopes: tuple[Scope, ...], rate: float | None = None, burst: int | None = None
) -> tuple[str, Key]:
    """Return a new key and its entry, with a rate in samples per second, or a KeysError for an invalid argument."""
    key = PREFIX + secrets.token_urlsafe(32)
    try:
        return key, Key(name=name, scopes=scopes, sha256=fingerprint(key), rate=rate, burst=burst)
    except ValidationError as error:
        raise KeysError(_first_fault(error)) from None


def parse_keys(text: str, where: str = "") -> Keys:
    """Return the entries of a file, whose name messages begin with, or a KeysError for a text that is no key file."""
    try:
        return Keys.model_validate(tomllib.loads(text))
    except ValidationError as error:
        # Its cause would show what it found, which may be a key.
        raise KeysError(f"{where}{_first_fault(error)}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        raise KeysError(f"{where}not TOML: {error}") from error


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, fault['loc'])) or 'keys'}: {fault['msg'].removeprefix('Value error, ')}"


logger = logging.getLogger(__name__)
CHECK_SECONDS = 1.0  # between two reads of the file
_SETTLE_SECONDS = 0.2  # an editor that writes in place leaves the file empty for a moment
_MAX_BYTES = 2**20
_OPENING = "# Keys of the gateway, hashed. A new one: python -m serving key NAME --scope infer\n"


class KeyFile:
    """Keys that follow their file: rotation needs no restart, and a malformed edit changes nothing.

    At the start, a file that cannot be read or is not a key file is a KeysError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _read_text(path)
        self._fault = ""
        self.keys = parse_keys(self._seen, f"{path}: ")

    @property
    def is_current(self) -> bool:
        """Whether the file could be read at the last look: else a restart would end with its fault."""
        return not self._fault

    async def look(self) -> float:
        await asyncio.to_thread(self.refresh)
        return CHECK_SECONDS

    def refresh(self) -> None:
        """Read the file and compare its text, since neither times nor links on disk can be trusted."""
        try:
            text = _read_text(self._path)
            if text != self._seen or self._fault:
                time.sleep(_SETTLE_SECONDS if text != self._seen else 0)
                if _read_text(self._path) != text:
                    return  # it is being written: the next look finds it complete
                self._seen = text
                self.keys = parse_keys(text, f"{self._path}: ")
                logger.info("%s: %d keys", self._path, len(self.keys.key))
            self._fault = ""
        except KeysError as error:
            if str(error) != self._fault:  # once, and not every second
                logger.error("%s; the keys stay as they were", error)  # noqa: TRY400  the message suffices
            self._fault = str(error)


def append_key(path: Path, key: Key) -> None:
    """Add an entry to a key file, which is created if there is none; a reader finds the old file or the new one."""
    path = path.resolve()  # a link stays one
    with FileLock(path.with_name(f".{path.name}.lock")):
        text = f"{_read_text(path) if path.exists() else _OPENING}\n{key.text()}"
        parse_keys(text, f"{path}: ")
        beside = path.with_name(f".{path.name}.new")
        beside.write_text(text, "utf-8")
        if path.exists():
            shutil.copymode(path, beside)
        beside.replace(path)


def _read_text(path: Path) -> str:
    try:
        return system.read_file(path, _MAX_BYTES).decode()
    except OSError as error:
        raise KeysError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise KeysError(f"{path}: not UTF-8 at byte {error.start}") from error
    except ValueError as error:
        raise KeysError(f"{path}: {error}") from error


_BEARER = 'Bearer realm="petrov"'


OPEN = None  # the scope of what needs no key


class Guard:
    """Admits callers by the keys of a file, or everybody without one; `metrics` counts the samples of each key.

    Attributes:
        keyed: Whether a key is required at all.
    """

    def __init__(self, keys: KeyFile | None, metrics: Metrics) -> None:
        self._keys, self._metrics, self.keyed = keys, metrics, keys is not None
        self._callers: dict[tuple[str, tuple[float, int] | None], Caller] = {}

    def admit(self, scope: Scope | None, authorization: str) -> Caller:
        """Return the caller of something that requires a scope, by a header, which may be empty."""
        if self._keys is None or scope is OPEN:
            return ANYONE
        key = self.authenticate(authorization)
        if not key.may(scope):
            detail = f'the key "{key.name}" is for {" and ".join(key.scopes)}, not for {scope}'
            challenge = f'{_BEARER}, error="insufficient_scope", scope="{scope}"'
            raise Problem("forbidden", detail, headers={"WWW-Authenticate": challenge})
        # One caller for all requests of a key, so that it has one rate, until its entry changes.
        identity = (key.name, key.limit)
        if identity not in self._callers:
            self._callers[identity] = Caller(*identity, self._metrics.key_fields.labels(key.name).inc)
        return self._callers[identity]

    def authenticate(self, authorization: str) -> Key:
        """Return the key of a header `Authorization: Bearer KEY`, or of one with the key as password."""
        scheme, _, presented = authorization.partition(" ")
        found = {"bearer": presented.strip(), "basic": _password(presented)}.get(scheme.lower())
        if not found or self._keys is None:
            detail = "expected an API key: send the header Authorization: Bearer KEY"
            raise Problem("unauthenticated", detail, headers={"WWW-Authenticate": _BEARER})
        key = self._keys.keys.find(found)
        if key is None:
            challenge = _BEARER + (', error="invalid_token"' if scheme.lower() == "bearer" else "")
            raise Problem("unauthenticated", "the API key is unknown", headers={"WWW-Authenticate": challenge})
        return key


def _password(credentials: str) -> str:
    try:
        return base64.b64decode(credentials.strip(), validate=True).decode().partition(":")[2]
    except ValueError:  # it is no base64, or no UTF-8
        return ""


Endpoint = TypeVar("Endpoint")
SCOPE = "required_scope"  # attribute of what has a declared scope


class Declared(NamedTuple):
    """A route whose scope is declared."""

    path: str
    pattern: re.Pattern[str]
    scope: Scope | None


def requires(scope: Scope | None) -> Callable[[Endpoint], Endpoint]:
    """Return a decorator that declares the scope of an endpoint, or of the application of a mount."""

    def declare(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, SCOPE, scope)
        return endpoint

    return declare


def declarations(routes: Sequence[BaseRoute]) -> list[Declared]:
    """Return the routes whose scope is declared, in the order of the router."""
    found: list[Declared] = []
    for route in iter_route_contexts(routes):
        original = route.original_route
        target = original.app if isinstance(original, Mount) else route.endpoint
        if hasattr(target, SCOPE):
            path = route.path or ""
            found.append(Declared(path, route.path_regex, getattr(target, SCOPE)))
    return found


def describe_security(document: dict[str, Any], routes: Sequence[BaseRoute]) -> None:
    """Add to an OpenAPI document which operations need a key, so that the interactive pages offer to send one."""
    document.setdefault("components", {})["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    scopes = {route.path: route.scope for route in declarations(routes)}
    for path, operations in document["paths"].items():
        if (scope := scopes.get(path)) is not OPEN:
            for operation in operations.values():
                operation["security"] = [{"key": [scope]}]


class Authorisation:
    """ASGI middleware that refuses a request without the scope; `request.state.caller` is the caller it admits.

    The routes are those of the application that it protects, and complete by the first request.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute], guard: Guard, metrics: Metrics) -> None:
        self._app, self._routes, self._guard, self._metrics = app, routes, guard, metrics

    @cached_property
    def _declared(self) -> list[Declared]:
        return declarations(self._routes)

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] != "lifespan":
            path, authorization = scope["state"]["path"], Headers(scope=scope).get("authorization", "")
            route = next((each for each in self._declared if each.pattern.match(path)), None)
            try:
                if route is None:
                    self._guard.authenticate(authorization)  # else a caller would learn which paths exist
                    raise Problem("unknown-route", f"there is nothing at {path[:128]}; /docs lists what there is")  # noqa: TRY301
                scope["state"]["route"] = route.path  # for the log of a refusal, which no router sees
                scope["state"]["caller"] = self._guard.admit(route.scope, authorization)
            except Problem as problem:
                app = refusal(problem, path, self._metrics.rejected)
        await app(scope, receive, send)
