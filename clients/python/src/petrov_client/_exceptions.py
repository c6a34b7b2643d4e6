"""The faults of a prediction, one tree for all four clients: the same class for the same fault over HTTP and gRPC.

    PetrovError
     ├── RequestError             the question is at fault: sending it again will not help
     │    ├── InvalidInput        wrong shape, type or grid, not finite, not positive; `.where` names the place
     │    ├── UnknownModel        no such model, or no such version of it
     │    ├── TooLarge            more bytes or fields than one request may hold
     │    ├── Unauthorised        the key is missing, wrong, or not allowed to do this
     │    └── RateLimited         too many fields for this key's rate; `.retry_after` seconds
     ├── ServiceError             the service is at fault: a later attempt may succeed
     │    ├── Unavailable         overloaded, starting or stopping; `.retry_after` seconds
     │    ├── DeadlineExceeded    no answer in time, by the service's clock or by ours
     │    └── ServerFault         the model or the service failed
     └── TransportError           no usable answer came back
          ├── ConnectionFailed    nobody listens there, or the connection broke
          └── UnreadableAnswer    an answer came, and it is not one of a Petrov service

Catch the root, a branch or a leaf. `.problem` holds the service's own words (RFC 9457) where it sent any: over HTTP
always, over gRPC never.
"""
# ruff: noqa: N818 - a leaf is named for its fault, which reads better in an `except` than a suffix on each

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Where:
    """The place of a fault in the caller's array.

    Attributes:
        array: Name of the model's input.
        index: Index of the first bad value in the array as it was passed to `predict`, when one value is to blame.
    """

    array: str
    index: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return self.array if self.index is None else f"{self.array}[{','.join(map(str, self.index))}]"


class PetrovError(Exception):
    """Any fault of a prediction; the message is one sentence for a person.

    Attributes:
        problem: The problem details of the service, empty where it sent none.
        retry_after: Seconds after which the service expects to do better, where it said so.
        where: The place in the input, for an `InvalidInput`.
    """

    def __init__(
        self,
        message: str,
        *,
        problem: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
        where: Where | None = None,
    ) -> None:
        super().__init__(message)
        self.problem: Mapping[str, Any] = problem or {}
        self.retry_after = retry_after
        self.where = where


class RequestError(PetrovError):
    """The question is at fault: sending it again will not help."""


class InvalidInput(RequestError):
    """The array does not fit the model; `.where` names the place."""


class UnknownModel(RequestError):
    """No such model, or no such version of it."""


class TooLarge(RequestError):
    """More bytes or fields than one request may hold."""


class Unauthorised(RequestError):
    """The key is missing, wrong, or not allowed to do this."""


class RateLimited(RequestError):
    """Too many fields for this key's rate; `.retry_after` says when to go on."""


class ServiceError(PetrovError):
    """The service is at fault: a later attempt may succeed."""


class Unavailable(ServiceError):
    """Overloaded, starting or stopping; `.retry_after` says when to try again."""


class DeadlineExceeded(ServiceError):
    """No answer in time, by the service's clock or by ours."""


class ServerFault(ServiceError):
    """The model or the service failed."""


class TransportError(PetrovError):
    """No usable answer came back."""


class ConnectionFailed(TransportError):
    """Nobody listens there, or the connection broke."""


class UnreadableAnswer(TransportError):
    """An answer came, and it is not one of a Petrov service."""
