"""The exceptions of a prediction. All four clients raise the same class for the same fault, over HTTP and gRPC.

    PetrovError
     ├── RequestError             the request is wrong: sending it again does not help
     │    ├── InvalidInput        wrong shape, type or grid, not finite, not positive; `.where` names the location
     │    ├── UnknownModel        no such model, or no such version of it
     │    ├── TooLarge            more bytes or fields than one request may hold
     │    ├── Unauthorised        the key is missing, wrong, or lacks the permission
     │    └── RateLimited         too many fields for this key's rate; `.retry_after` seconds
     ├── ServiceError             the service failed: a later attempt may succeed
     │    ├── Unavailable         overloaded, starting or stopping; `.retry_after` seconds
     │    ├── DeadlineExceeded    no response within the time limit of the service or of the client
     │    └── ServerFault         the model or the service failed
     └── TransportError           no usable response arrived
          ├── ConnectionFailed    the server does not listen, or the connection broke
          └── InvalidResponse     a response arrived that no Petrov service sends

Catch the root, a branch or a leaf. Over HTTP `.problem` holds the service's problem details (RFC 9457), over gRPC their
type alone.
"""
# ruff: noqa: N818 - a leaf is named for its fault, which reads better in an `except` than a suffix on each

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Where:
    """The location of a fault in the caller's array.

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
        where: The location in the input, for an `InvalidInput`.
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
    """The request is wrong: sending it again does not help."""


class InvalidInput(RequestError):
    """The array does not fit the model; `.where` names the location."""


class UnknownModel(RequestError):
    """No such model, or no such version of it."""


class TooLarge(RequestError):
    """More bytes or fields than one request may hold."""


class Unauthorised(RequestError):
    """The key is missing, wrong, or lacks the permission."""


class RateLimited(RequestError):
    """Too many fields for this key's rate; `.retry_after` says when to continue."""


class ServiceError(PetrovError):
    """The service failed: a later attempt may succeed."""


class Unavailable(ServiceError):
    """Overloaded, starting or stopping; `.retry_after` says when to try again."""


class DeadlineExceeded(ServiceError):
    """No response within the time limit of the service or of the client."""


class ServerFault(ServiceError):
    """The model or the service failed."""


class TransportError(PetrovError):
    """No usable response arrived."""


class ConnectionFailed(TransportError):
    """The server does not listen, or the connection broke."""


class InvalidResponse(TransportError):
    """A response arrived that no Petrov service sends."""
