"""Decides who may do what: from an `Authorization` header and a required scope to a caller or a refusal.

Without a key file everybody may do everything. With one, whatever is not `OPEN` needs a key with the scope. A missing
or unknown key is 401 (UNAUTHENTICATED), a key without the scope 403 (PERMISSION_DENIED), and a key over its rate 429
(RESOURCE_EXHAUSTED) with `Retry-After`. The scope of a route or a gRPC method is declared where the route is.

A key is sent as `Authorization: Bearer KEY`, or as the password of `Authorization: Basic …`: that is what clients send
that know nothing but a URL, `http://any-name:KEY@host/…`.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from serving.errors import Problem
from serving.limits import ANYONE, Caller

_BEARER = 'Bearer realm="petrov"'

if TYPE_CHECKING:
    from serving.auth.key_file import KeyFile
    from serving.auth.keys import Key, Scope
    from serving.observability.metrics import Metrics

OPEN = None  # the scope of what needs no key


class Guard:
    """Admits callers.

    Args:
        keys: The key file; None admits everybody.
        metrics: Counts the samples of each key.
    """

    def __init__(self, keys: KeyFile | None, metrics: Metrics) -> None:
        self._keys = keys
        self._metrics = metrics
        self._callers: dict[tuple[str, tuple[float, int] | None], Caller] = {}

    @property
    def keyed(self) -> bool:
        """Whether a key is required at all."""
        return self._keys is not None

    def admit(self, scope: Scope | None, authorization: str) -> Caller:
        """Return the caller of something that requires a scope.

        Args:
            scope: The required scope, or `OPEN`.
            authorization: The header, empty if there is none.

        Raises:
            Problem: unauthenticated: There is no key, or an unknown one.
            Problem: forbidden: The key lacks the scope.
        """
        if self._keys is None or scope is OPEN:
            return ANYONE
        key = self._authenticate(self._keys, authorization)
        if not key.may(scope):
            detail = f'the key "{key.name}" is for {" and ".join(key.scopes)}, not for {scope}'
            challenge = f'{_BEARER}, error="insufficient_scope", scope="{scope}"'
            raise Problem("forbidden", detail, headers={"WWW-Authenticate": challenge})
        return self._caller(key)

    def reject_unknown(self, authorization: str) -> None:
        """Refuse a caller without a valid key, so that it does not learn which paths exist.

        Raises:
            Problem: unauthenticated: There is no key, or an unknown one.
        """
        if self._keys is not None:
            self._authenticate(self._keys, authorization)

    @staticmethod
    def _authenticate(file: KeyFile, authorization: str) -> Key:
        """Return the key of a header `Authorization: Bearer KEY`, or of one with the key as password.

        Raises:
            Problem: unauthenticated: There is no key, or an unknown one.
        """
        scheme, _, presented = authorization.partition(" ")
        found = {"bearer": presented.strip(), "basic": _password(presented)}.get(scheme.lower())
        if not found:
            detail = "expected an API key: send the header Authorization: Bearer KEY"
            raise Problem("unauthenticated", detail, headers={"WWW-Authenticate": _BEARER})
        key = file.keys.find(found)
        if key is None:
            challenge = _BEARER + (', error="invalid_token"' if scheme.lower() == "bearer" else "")
            raise Problem("unauthenticated", "the API key is unknown", headers={"WWW-Authenticate": challenge})
        return key

    def _caller(self, key: Key) -> Caller:
        """Return one caller for all requests of a key, so that it has one rate, until its entry changes."""
        identity = (key.name, key.limit)
        if identity not in self._callers:
            self._callers[identity] = Caller(*identity, self._metrics.key_fields.labels(key.name).inc)
        return self._callers[identity]


def _password(credentials: str) -> str:
    """Return the password of the credentials of HTTP Basic authentication (RFC 7617); empty if there is none."""
    try:
        return base64.b64decode(credentials.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
