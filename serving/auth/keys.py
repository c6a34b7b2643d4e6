"""API keys and the text of the key file, which holds their hashes and never the keys themselves.

The file is TOML and may be committed:

    [[key]]
    name = "alice"
    scopes = ["infer"]
    sha256 = "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"
    rate = 100.0
    burst = 500

`sha256` is the hash of the key's bytes, `rate` the samples per second that it may send, `burst` the samples at once
after a pause (by default those of one second). Without a rate there is no limit.

A key is 256 random bits, so guessing is hopeless at any speed and a fast hash without salt is as safe as a slow one.
Slow hashes protect passwords that people choose; computed for every request, one would be a way to stop the service.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import secrets
import tomllib
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from serving.document import Document

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
        """Return whether the key has a scope."""
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


def make(name: str, scopes: tuple[Scope, ...], rate: float | None = None, burst: int | None = None) -> tuple[str, Key]:
    """Return a new key and its entry.

    Args:
        name: Name of the key.
        scopes: What it may be used for.
        rate: Samples per second; None for no limit.
        burst: Samples at once; None for those of one second.

    Raises:
        KeysError: An argument is invalid.
    """
    key = PREFIX + secrets.token_urlsafe(32)
    try:
        return key, Key(name=name, scopes=scopes, sha256=fingerprint(key), rate=rate, burst=burst)
    except ValidationError as error:
        raise KeysError(_first(error)) from None


def parse(text: str) -> Keys:
    """Return the entries of a file.

    Raises:
        KeysError: The text is no key file.
    """
    try:
        return Keys.model_validate(tomllib.loads(text))
    except ValidationError as error:
        raise KeysError(_first(error)) from None  # the cause would show what it found, which may be a key
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        raise KeysError(f"not TOML: {error}") from error


def _first(error: ValidationError) -> str:
    fault = error.errors(include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, fault['loc'])) or 'keys'}: {fault['msg'].removeprefix('Value error, ')}"
