"""The text of a key file in, who may do what out. Keys themselves are nowhere kept, only their hashes.

The file is TOML and may be committed:

    [[key]]
    name = "alice"
    scopes = ["infer"]
    sha256 = "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"
    rate = 100.0
    burst = 500

`sha256` is that of the key's bytes, `rate` the fields per second that it may ask for, `burst` the fields at once after
a pause (those of one second, unless it says otherwise). Without a rate there is no limit.

A key is 256 random bits: at any speed of guessing the right one is not found, so that a fast hash without salt is as
safe as a slow one. Slow hashes are for passwords that people make up, and one computed for every request would be a
way to stop the service.
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

from serving.schemas import Document

PREFIX = "petrov_"  # so that scanners for leaked secrets, and people, know what they look at
MOST_KEYS = 1000  # each request is compared with all of them


class KeysError(ValueError):
    """A key file that cannot be used; the message names the place and repeats nothing that stands there."""


class Scope(StrEnum):
    """What a key is for."""

    INFER = "infer"  # models, their answers and their classical answers
    METRICS = "metrics"
    ADMIN = "admin"  # everything, and what no other scope is for


class Key(Document):
    """An entry of the file: all that is known of a key."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    burst: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.burst is not None and self.rate is None:
            raise ValueError("expected a rate beside burst")
        return self

    def may(self, scope: Scope) -> bool:
        """Whether the key is for such things."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    @property
    def limit(self) -> tuple[float, int] | None:
        """Fields per second, and at once."""
        return None if self.rate is None else (self.rate, self.burst or math.ceil(self.rate))

    def text(self) -> str:
        """The entry as it stands in the file; JSON writes words, numbers and lists of words as TOML does."""
        fields = self.model_dump(mode="json", exclude_none=True)
        return "\n".join(["[[key]]", *(f"{name} = {json.dumps(value)}" for name, value in fields.items()), ""])


class Keys(Document):
    """The file."""

    key: Annotated[tuple[Key, ...], Field(max_length=MOST_KEYS)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        for what in ("name", "sha256"):
            if len({getattr(key, what) for key in self.key}) < len(self.key):
                raise ValueError(f"expected every key once but two have the same {what}")
        return self

    def find(self, presented: str) -> Key | None:
        """The entry of a key that was presented. How long this takes does not tell which, or how much of one, fits."""
        digest = fingerprint(presented)
        fitting = [key for key in self.key if hmac.compare_digest(key.sha256, digest)]
        return fitting[0] if fitting else None


def fingerprint(key: str) -> str:
    """SHA-256 of a key, in hexadecimal digits."""
    return hashlib.sha256(key.encode()).hexdigest()


def make(name: str, scopes: tuple[Scope, ...], rate: float | None = None, burst: int | None = None) -> tuple[str, Key]:
    """A new key and its entry.

    Raises:
        KeysError: There can be no such entry.
    """
    key = PREFIX + secrets.token_urlsafe(32)
    try:
        return key, Key(name=name, scopes=scopes, sha256=fingerprint(key), rate=rate, burst=burst)
    except ValidationError as error:
        raise KeysError(_first(error)) from None


def parse(text: str) -> Keys:
    """The entries of a file.

    Raises:
        KeysError: It is not such a file.
    """
    try:
        return Keys.model_validate(tomllib.loads(text))
    except ValidationError as error:
        raise KeysError(_first(error)) from None  # the cause would show what it found, which may be a key
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise KeysError(f"not TOML: {error}") from error


def _first(error: ValidationError) -> str:
    fault = error.errors(include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, fault['loc'])) or 'keys'}: {fault['msg'].removeprefix('Value error, ')}"
