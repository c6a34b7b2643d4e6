"""Errors of the gateway as RFC 9457 problem details: an exception goes in, `application/problem+json` comes out.

A problem is raised anywhere below a route as an exception and rendered in one place (`serving.http.app`). Its body is

    {"type": "urn:petrov:problem:non-positive", "title": "Value is not positive", "status": 422,
     "detail": "coefficient[0,17,3] is -2.0; a permeability must be positive",
     "where": {"array": "coefficient", "index": [0, 17, 3]}}

`where` is present for faults of an array: the array's name, and the index of the first bad value in the caller's own
array when one value is to blame. `type` is stable: programs switch on it, never on `detail`. Problems that a later
attempt may not meet carry the header `Retry-After` (whole seconds). All of them, and the whole tree of exceptions:

    Problem
     ├── Refused                     4xx: the caller can mend it
     │    ├── UnreadableBody         400  unreadable-body         not an .npy file, not JSON, truncated
     │    ├── Unauthenticated        401  unauthenticated         no API key, or an unknown one
     │    ├── Forbidden              403  forbidden               the key is for other things
     │    ├── UnknownRoute           404  unknown-route
     │    ├── UnknownModel           404  unknown-model
     │    ├── UnknownVersion         404  unknown-version
     │    ├── MethodNotAllowed       405  method-not-allowed
     │    ├── NotAcceptable          406  not-acceptable          no answer in a media type of `Accept`
     │    ├── SlowBody               408  slow-body               the body took longer than its deadline
     │    ├── BodyTooLarge           413  body-too-large          bytes or fields beyond the limit
     │    ├── UnsupportedMediaType   415  unsupported-media-type  also any Content-Encoding
     │    ├── InvalidParameter       422  invalid-parameter       a path or query parameter
     │    ├── RateLimited            429  rate-limited            Retry-After
     │    └── InvalidArray           422  invalid-array           the array can be read and makes no sense here
     │         ├── WrongInput        422  wrong-input             an input is missing or not the model's
     │         ├── WrongDtype        422  wrong-dtype             not numbers of a kind that fits the card's type
     │         ├── WrongToken        422  wrong-token             a number of no word, or padding among the words
     │         ├── WrongShape        422  wrong-shape             rank or ragged rows, or an empty batch
     │         ├── GridOutOfLimits   422  grid-out-of-limits      an axis shorter or longer than the card allows
     │         ├── NonFinite         422  non-finite              NaN or infinite, before or after the cast to float32
     │         └── NonPositive       422  non-positive            zero or negative where the card says positive
     └── Failed                      5xx: the caller can only try again, or tell us
          ├── InternalError          500  internal-error
          ├── NotImplementedHere     501  not-implemented         no classical solver for this model's problem
          ├── ModelFailed            502  model-failed            Triton answered with an error
          │    └── NonFiniteOutput   502  non-finite-output       the model answered NaN or infinity
          ├── Unavailable            503  unavailable             Retry-After
          │    ├── Overloaded        503  overloaded              too many requests or bytes in flight
          │    ├── ModelNotReady     503  model-not-ready         known, not loaded and warm yet
          │    └── TritonUnavailable 503  triton-unavailable      the inference server cannot be reached
          └── DeadlineExceeded       504  deadline-exceeded
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from serving.schemas import ProblemDetails, Where

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:petrov:problem:"
_BEARER = 'Bearer realm="petrov"'


class Problem(Exception):  # noqa: N818  the word of RFC 9457; every leaf names a fault
    """Something that ends a request: a class per kind of fault, one sentence per fault.

    Attributes:
        detail: What happened, where, what was expected and what was found.
        where: The array and the index in it, for faults of an array.
        headers: Extra response headers, such as `Retry-After`.
    """

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "Internal error"

    def __init__(self, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.where: Where | None = None
        self.headers: dict[str, str] = dict(headers or {})

    def details(self) -> ProblemDetails:
        """The body of the answer."""
        return ProblemDetails(
            type=PREFIX + self.kind, title=self.title, status=self.status, detail=self.detail, where=self.where
        )


class Refused(Problem):
    """The request itself is at fault."""


class UnreadableBody(Refused):
    """The body is not what its Content-Type says."""

    status, kind, title = 400, "unreadable-body", "Body cannot be read"


class Unauthenticated(Refused):
    """There is no API key, or nobody knows it; `WWW-Authenticate` says what is expected (RFC 6750).

    Args:
        detail: The sentence.
        error: The RFC's word for what is wrong with a key that was sent.
    """

    status, kind, title = 401, "unauthenticated", "Not authenticated"

    def __init__(self, detail: str, *, error: str = "") -> None:
        super().__init__(detail, headers={"WWW-Authenticate": _BEARER + (f', error="{error}"' if error else "")})


class Forbidden(Refused):
    """The API key is known, and for other things.

    Args:
        detail: The sentence.
        scope: What it would have to be for.
    """

    status, kind, title = 403, "forbidden", "Not allowed"

    def __init__(self, detail: str, *, scope: str) -> None:
        challenge = f'{_BEARER}, error="insufficient_scope", scope="{scope}"'
        super().__init__(detail, headers={"WWW-Authenticate": challenge})


class UnknownRoute(Refused):
    """No such path."""

    status, kind, title = 404, "unknown-route", "No such route"


class UnknownModel(Refused):
    """No model of that name in the repository."""

    status, kind, title = 404, "unknown-model", "No such model"


class UnknownVersion(Refused):
    """The model has no such version loaded."""

    status, kind, title = 404, "unknown-version", "No such version"


class MethodNotAllowed(Refused):
    """The path exists, the method on it does not; the header `Allow` names those that do."""

    status, kind, title = 405, "method-not-allowed", "Method not allowed"


class NotAcceptable(Refused):
    """None of the media types in `Accept` can be produced."""

    status, kind, title = 406, "not-acceptable", "No acceptable media type"


class SlowBody(Refused):
    """The body did not arrive in time."""

    status, kind, title = 408, "slow-body", "Body arrived too slowly"


class BodyTooLarge(Refused):
    """More bytes or more fields than one request may hold."""

    status, kind, title = 413, "body-too-large", "Body too large"


class UnsupportedMediaType(Refused):
    """The body's media type or content encoding is not one we read."""

    status, kind, title = 415, "unsupported-media-type", "Unsupported media type"


class InvalidParameter(Refused):
    """A path or query parameter is outside its range."""

    status, kind, title = 422, "invalid-parameter", "Invalid parameter"


class RateLimited(Refused):
    """The API key has asked for as many fields as its rate allows.

    Args:
        detail: The sentence.
        retry_after: Whole seconds.
    """

    status, kind, title = 429, "rate-limited", "Over the key's rate"

    def __init__(self, detail: str, *, retry_after: int) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after)})


class InvalidArray(Refused):
    """An array that can be read and makes no sense as this model's input.

    Args:
        detail: The sentence, which repeats the place in words.
        array: Name of the input.
        index: Index of the first bad value in the caller's array, when one value is to blame.
    """

    status, kind, title = 422, "invalid-array", "Invalid array"

    def __init__(self, detail: str, *, array: str, index: Sequence[int] | None = None) -> None:
        super().__init__(detail)
        self.where = Where(array=array, index=None if index is None else [int(i) for i in index])


class WrongInput(InvalidArray):
    """An input of the model is missing, or one was sent that the model does not have."""

    kind, title = "wrong-input", "Wrong input"


class WrongDtype(InvalidArray):
    """The values are not numbers, or of a kind that we do not read."""

    kind, title = "wrong-dtype", "Wrong data type"


class WrongShape(InvalidArray):
    """The rank does not fit, rows differ in length, or there is no field at all."""

    kind, title = "wrong-shape", "Wrong shape"


class WrongToken(InvalidArray):
    """A token is no word of the model's vocabulary, or padding in front of a word."""

    kind, title = "wrong-token", "Not a word of the vocabulary"


class GridOutOfLimits(InvalidArray):
    """An axis is shorter or longer than the model's card allows."""

    kind, title = "grid-out-of-limits", "Grid outside the model's limits"


class NonFinite(InvalidArray):
    """A value is NaN or infinite, or becomes infinite in float32."""

    kind, title = "non-finite", "Value is not finite"


class NonPositive(InvalidArray):
    """A value is zero or negative where the quantity is positive by its meaning."""

    kind, title = "non-positive", "Value is not positive"


class Failed(Problem):
    """The service is at fault."""


class InternalError(Failed):
    """A fault of ours; the log has the rest under the request's id."""


class NotImplementedHere(Failed):
    """The model's problem has no classical solver or sampler."""

    status, kind, title = 501, "not-implemented", "Not implemented"


class ModelFailed(Failed):
    """Triton refused or failed the inference."""

    status, kind, title = 502, "model-failed", "Model failed"


class NonFiniteOutput(ModelFailed):
    """The model answered NaN or infinity for a valid input."""

    kind, title = "non-finite-output", "Model output is not finite"


class Unavailable(Failed):
    """Not now; `Retry-After` says when to try again.

    Args:
        detail: The sentence.
        retry_after: Whole seconds.
    """

    status, kind, title = 503, "unavailable", "Unavailable"

    def __init__(self, detail: str, *, retry_after: int = 1) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after)})


class Overloaded(Unavailable):
    """As many requests or bytes as may be are in flight."""

    kind, title = "overloaded", "Overloaded"


class ModelNotReady(Unavailable):
    """The model is in the repository and not loaded and warm yet."""

    kind, title = "model-not-ready", "Model not ready"


class TritonUnavailable(Unavailable):
    """The inference server cannot be reached or went away during the request."""

    kind, title = "triton-unavailable", "Inference server unavailable"


class DeadlineExceeded(Failed):
    """The answer was not ready within the request's deadline."""

    status, kind, title = 504, "deadline-exceeded", "Deadline exceeded"
