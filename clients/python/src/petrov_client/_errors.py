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

import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from petrov_client._untrusted import printable


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
    """Any fault of a prediction; the message is one sentence for a person, without control characters.

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
        super().__init__(printable(message))
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

    #: Host and port of a direct connection without encryption that broke: the server may expect it.
    unencrypted: tuple[str, int] | None = None


class InvalidResponse(TransportError):
    """A response arrived that no Petrov service sends."""


#: The class of a status, of HTTP or gRPC.
_STATUSES: Mapping[int | str, type[PetrovError]] = {
    401: Unauthorised,
    "UNAUTHENTICATED": Unauthorised,
    403: Unauthorised,
    "PERMISSION_DENIED": Unauthorised,
    404: UnknownModel,
    "NOT_FOUND": UnknownModel,
    413: TooLarge,
    "RESOURCE_EXHAUSTED": TooLarge,
    422: InvalidInput,
    "INVALID_ARGUMENT": InvalidInput,
    "OUT_OF_RANGE": InvalidInput,
    "FAILED_PRECONDITION": RequestError,
    429: RateLimited,
    503: Unavailable,
    "UNAVAILABLE": Unavailable,
    504: DeadlineExceeded,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
}
#: Problems whose status alone would give another class: the model is there, and lacks a solver or samples, or the
#: address has a wrong path.
_KINDS = frozenset({"no-reference", "no-example", "not-invertible", "unknown-inversion", "unknown-route"})


def service_fault(
    status: int | str, problem: Mapping[str, Any], message: str | None = None, wait: str | None = None
) -> PetrovError:
    """Return the exception for a fault that the service reports.

    Args:
        status: The status of HTTP, or the name of that of gRPC.
        problem: The problem details (RFC 9457), or as much of them as has arrived.
        message: What the service says; the detail of the problem if None.
        wait: The value of `Retry-After`.
    """
    fault = _STATUSES.get(status, RequestError if isinstance(status, int) and status < 500 else ServerFault)
    seconds, location = retry_after(wait), problem.get("where")
    if status == "RESOURCE_EXHAUSTED" and seconds is not None:  # a request that is too large stays too large
        fault = RateLimited
    if str(problem.get("type", "")).rpartition(":")[2] in _KINDS:
        fault = RequestError
    where = None
    if isinstance(location, Mapping) and "array" in location:
        index = location.get("index")
        indices = index if isinstance(index, list) and all(type(each) is int for each in index) else None
        where = Where(str(location["array"]), None if indices is None else tuple(indices))
    text = message or str(problem.get("detail") or f"the service responded with status {status}")
    return fault(text, problem=problem, retry_after=seconds, where=where)


def retry_after(value: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header (a number or a date); None if it is missing or malformed."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def issue(text: str, category: type[Warning]) -> None:
    """Issue a warning at the line of the caller of this package, however many of its functions are between."""
    level, frame = 1, sys._getframe()  # noqa: SLF001  as `warnings` does
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("petrov_client."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
