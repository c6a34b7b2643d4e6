"""The errors of the gateway, each an exception that becomes `application/problem+json` (RFC 9457).

An error is raised anywhere below a route and rendered in one module (`serving.http.rendering`). Its body is

    {"type": "urn:petrov:problem:non-positive", "title": "Value is not positive", "status": 422,
     "detail": "coefficient[0,17,3] is -2.0; a permeability must be positive",
     "where": {"array": "coefficient", "index": [0, 17, 3], "pointer": "/inputs/coefficient/0/17/3"}}

`where` is present for faults of an array: the array's name, the index of the first bad value in the caller's own array
when one value is to blame, and both as JSON pointer (RFC 6901) into the body of a JSON request. `type` is stable:
programs switch on it, never on `detail`. Errors that a later attempt may not meet carry the header `Retry-After` (whole
seconds). The tree of exceptions:

    Problem
     ├── Refused                     4xx: the caller can mend it
     │    ├── UnreadableBody         400  unreadable-body         not an .npy file, not JSON, truncated
     │    ├── Unauthenticated        401  unauthenticated         no API key, or an unknown one
     │    ├── Forbidden              403  forbidden               the key lacks the scope
     │    ├── UnknownRoute           404  unknown-route
     │    ├── UnknownModel           404  unknown-model
     │    ├── UnknownVersion         404  unknown-version
     │    ├── NoExample              404  no-example              neither stored examples nor a sampler
     │    ├── NoReference            404  no-reference            no classical solver for the model's problem
     │    ├── NotDifferentiable      404  not-differentiable      the model has no such derivative
     │    ├── NotInvertible          404  not-invertible          no prior for an input of the model's problem
     │    ├── UnknownInversion       404  unknown-inversion       no such inversion, or no longer
     │    ├── MethodNotAllowed       405  method-not-allowed      the header Allow lists the methods of the path
     │    ├── NotAcceptable          406  not-acceptable          no media type of `Accept` can be written
     │    ├── SlowBody               408  slow-body               the body took longer than its deadline
     │    ├── Unfinished             409  unfinished              the inversion has no result yet
     │    ├── BodyTooLarge           413  body-too-large          bytes or samples beyond the limit
     │    ├── UnsupportedMediaType   415  unsupported-media-type  also any Content-Encoding
     │    ├── InvalidParameter       422  invalid-parameter       a path or query parameter
     │    ├── InvalidInversion       422  invalid-inversion       a member of a request for an inversion
     │    ├── ToleranceUnmet         422  tolerance-unmet         no error bound, or one above the tolerance
     │    ├── Unsolvable             422  unsolvable              the classical solver does not solve the input
     │    ├── RateLimited            429  rate-limited            Retry-After
     │    └── InvalidArray           422  invalid-array           the array can be read but is no input of the model
     │         ├── WrongInput        422  wrong-input             an input is missing or not the model's
     │         ├── WrongDtype        422  wrong-dtype             not numbers of a kind that fits the card's type
     │         ├── WrongToken        422  wrong-token             outside the vocabulary, or padding before a token
     │         ├── WrongShape        422  wrong-shape             rank or ragged rows, or an empty batch
     │         ├── GridOutOfLimits   422  grid-out-of-limits      an axis shorter or longer than the card allows
     │         ├── OutOfRange        422  out-of-range            a parameter outside the card's limits
     │         ├── OutsideTraining   422  outside-training        unlike the training data, and outside=refuse
     │         ├── NonFinite         422  non-finite              NaN or infinite, before or after the cast to float32
     │         └── NonPositive       422  non-positive            zero or negative where the card says positive
     └── Failed                      5xx: the caller can only try again, or report it
          ├── InternalError          500  internal-error          the log has the rest under the request's id
          ├── ModelFailed            502  model-failed            Triton responded with an error
          │    └── NonFiniteOutput   502  non-finite-output       the model's output is NaN or infinite
          ├── Unavailable            503  unavailable             Retry-After
          │    ├── Overloaded        503  overloaded              too many requests or bytes in flight
          │    ├── ModelNotReady     503  model-not-ready         in the repository, not loaded and warm yet
          │    └── TritonUnavailable 503  triton-unavailable      the inference server cannot be reached
          └── DeadlineExceeded       504  deadline-exceeded       no response within the deadline
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict, Field, computed_field
from pydantic.json_schema import SkipJsonSchema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:petrov:problem:"
VECTORS = frozenset({"cotangents", "tangents"})  # members of a request beside `inputs`, for derivatives
_BEARER = 'Bearer realm="petrov"'


class Where(BaseModel):
    """The location of a fault in the caller's arrays."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    array: str
    index: list[int] | None = None
    inputs: SkipJsonSchema[bool] = Field(default=True, exclude=True)  # whether the array is an input of a model

    @computed_field(description="JSON pointer (RFC 6901) into the body of a request in JSON.")  # type: ignore[prop-decorator]  # pydantic's own order
    @property
    def pointer(self) -> str:
        """Where a request in JSON has the value: `cotangents.solution` is the member `solution` of `cotangents`."""
        if not self.inputs:
            return "/".join(["", *self.array.split("."), *map(str, self.index or ())])
        member, _, name = self.array.partition(".")
        if member not in VECTORS:
            member, name = "inputs", self.array
        name = name.replace("~", "~0").replace("/", "~1")
        return "/".join([f"/{member}", name, *map(str, self.index or ())])


class ProblemDetails(BaseModel):
    """The body of every error (RFC 9457), `application/problem+json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str = Field(examples=["urn:petrov:problem:non-positive"])
    title: str
    status: int
    detail: str = Field(examples=["coefficient[0,17,3] is -2.0; a permeability must be positive"])
    where: Where | None = None


class Problem(Exception):  # noqa: N818  the term of RFC 9457; every leaf names a fault
    """An error that ends a request.

    A subclass states its status, slug and title as class arguments; what it leaves out is its parent's.

    Args:
        detail: What happened and where, what was expected and what was found, in one sentence.
        headers: Extra response headers, such as `Retry-After`.

    Attributes:
        where: The array and the index in it, for faults of an array.
    """

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "Internal error"

    def __init_subclass__(cls, *, status: int | None = None, kind: str | None = None, title: str | None = None) -> None:
        super().__init_subclass__()
        cls.status, cls.kind, cls.title = status or cls.status, kind or cls.kind, title or cls.title

    def __init__(self, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.where: Where | None = None
        self.headers: dict[str, str] = dict(headers or {})

    def details(self) -> ProblemDetails:
        """Return the body of the response."""
        return ProblemDetails(
            type=PREFIX + self.kind, title=self.title, status=self.status, detail=self.detail, where=self.where
        )


class Refused(Problem):
    """The request itself is at fault."""


class UnreadableBody(Refused, status=400, kind="unreadable-body", title="Body cannot be read"):
    """The body is not what its Content-Type says."""


class Unauthenticated(Refused, status=401, kind="unauthenticated", title="Not authenticated"):
    """The request has no API key, or an unknown one; `WWW-Authenticate` says what is expected (RFC 6750).

    Args:
        detail: The sentence.
        error: The RFC's code for what is wrong with a key that was sent.
    """

    def __init__(self, detail: str, *, error: str = "") -> None:
        super().__init__(detail, headers={"WWW-Authenticate": _BEARER + (f', error="{error}"' if error else "")})


class Forbidden(Refused, status=403, kind="forbidden", title="Not allowed"):
    """The API key is known and lacks the scope.

    Args:
        detail: The sentence.
        scope: The scope that the request needs.
    """

    def __init__(self, detail: str, *, scope: str) -> None:
        challenge = f'{_BEARER}, error="insufficient_scope", scope="{scope}"'
        super().__init__(detail, headers={"WWW-Authenticate": challenge})


class UnknownRoute(Refused, status=404, kind="unknown-route", title="No such route"):
    """The path does not exist."""


class UnknownModel(Refused, status=404, kind="unknown-model", title="No such model"):
    """The repository has no model of that name."""


class UnknownVersion(Refused, status=404, kind="unknown-version", title="No such version"):
    """The model has no such version loaded."""


class NoExample(Refused, status=404, kind="no-example", title="No example"):
    """The model has neither stored examples nor a sampler of its problem."""


class NoReference(Refused, status=404, kind="no-reference", title="No classical solver"):
    """The model's problem has no classical solver."""


class NotDifferentiable(Refused, status=404, kind="not-differentiable", title="No derivative"):
    """The model was exported without this derivative."""


class NotInvertible(Refused, status=404, kind="not-invertible", title="No inversion"):
    """Nothing is known about the inputs of the model's problem from which an inversion could start."""


class UnknownInversion(Refused, status=404, kind="unknown-inversion", title="No such inversion"):
    """There is no such inversion, or its result has been forgotten."""


class MethodNotAllowed(Refused, status=405, kind="method-not-allowed", title="Method not allowed"):
    """The path exists and the method on it does not; the header `Allow` lists those that do."""


class NotAcceptable(Refused, status=406, kind="not-acceptable", title="No acceptable media type"):
    """None of the media types in `Accept` can be written."""


class SlowBody(Refused, status=408, kind="slow-body", title="Body arrived too slowly"):
    """The body did not arrive in time."""


class Unfinished(Refused, status=409, kind="unfinished", title="Inversion has not ended"):
    """The inversion has no result yet."""


class BodyTooLarge(Refused, status=413, kind="body-too-large", title="Body too large"):
    """The body has more bytes or more samples than one request may hold."""


class UnsupportedMediaType(Refused, status=415, kind="unsupported-media-type", title="Unsupported media type"):
    """The gateway does not read the body's media type or content encoding."""


class InvalidParameter(Refused, status=422, kind="invalid-parameter", title="Invalid parameter"):
    """A path or query parameter is outside its range."""


class InvalidInversion(Refused, status=422, kind="invalid-inversion", title="Invalid inversion"):
    """A member of a request for an inversion is missing, unknown or out of range.

    Args:
        detail: What is wrong with the member.
        location: Names and indices that lead to it.
    """

    def __init__(self, detail: str, *, location: Sequence[str | int]) -> None:
        names = [part for part in location if isinstance(part, str)]
        index = [part for part in location if isinstance(part, int)]
        shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
        super().__init__(f"{shown.removeprefix('.')}: {detail}" if shown else detail)
        if names:
            self.where = Where(array=".".join(names), index=index or None, inputs=False)


class ToleranceUnmet(Refused, status=422, kind="tolerance-unmet", title="Tolerance cannot be met"):
    """An error bound is above the requested tolerance, or not known, and no classical solver can do better.

    Args:
        detail: The sentence.
        array: Name of the input, for a fault of one sample.
        index: Index of the sample in the caller's array.
    """

    def __init__(self, detail: str, *, array: str | None = None, index: Sequence[int] | None = None) -> None:
        super().__init__(detail)
        self.where = None if array is None else Where(array=array, index=None if index is None else list(index))


class Unsolvable(Refused, status=422, kind="unsolvable", title="Input cannot be solved"):
    """The classical solver does not accept the input, or does not converge for it."""


class RateLimited(Refused, status=429, kind="rate-limited", title="Over the key's rate"):
    """The API key has used up its rate.

    Args:
        detail: The sentence.
        retry_after: Whole seconds.
    """

    def __init__(self, detail: str, *, retry_after: int) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after)})


class InvalidArray(Refused, status=422, kind="invalid-array", title="Invalid array"):
    """An array can be read and is no valid input of the model.

    Args:
        detail: The sentence, which repeats the location in words.
        array: Name of the input.
        index: Index of the first bad value in the caller's array, when one value is to blame.
    """

    def __init__(self, detail: str, *, array: str, index: Sequence[int] | None = None) -> None:
        super().__init__(detail)
        self.where = Where(array=array, index=None if index is None else [int(i) for i in index])


class WrongInput(InvalidArray, kind="wrong-input", title="Wrong input"):
    """An input of the model is missing, or the model has no such input."""


class WrongDtype(InvalidArray, kind="wrong-dtype", title="Wrong data type"):
    """The values are not numbers, or of a kind that the gateway does not read."""


class WrongShape(InvalidArray, kind="wrong-shape", title="Wrong shape"):
    """The rank does not fit, rows differ in length, or the batch is empty."""


class WrongToken(InvalidArray, kind="wrong-token", title="Not a token of the vocabulary"):
    """A token is outside the model's vocabulary, or padding precedes a token."""


class GridOutOfLimits(InvalidArray, kind="grid-out-of-limits", title="Grid outside the model's limits"):
    """An axis is shorter or longer than the model's card allows."""


class OutOfRange(InvalidArray, kind="out-of-range", title="Value out of range"):
    """A parameter is below its minimum or above its maximum."""


class OutsideTraining(InvalidArray, kind="outside-training", title="Input outside of the training distribution"):
    """A sample is unlike the training data, and the request refuses such samples."""


class NonFinite(InvalidArray, kind="non-finite", title="Value is not finite"):
    """A value is NaN or infinite, or becomes infinite in float32."""


class NonPositive(InvalidArray, kind="non-positive", title="Value is not positive"):
    """A value is zero or negative where the quantity is positive by its meaning."""


class Failed(Problem):
    """The service is at fault."""


class InternalError(Failed):
    """A fault of the gateway itself; the log has the rest under the request's id."""


class ModelFailed(Failed, status=502, kind="model-failed", title="Model failed"):
    """Triton refused or failed the inference."""


class NonFiniteOutput(ModelFailed, kind="non-finite-output", title="Model output is not finite"):
    """The model's output for a valid input is NaN or infinite.

    Args:
        detail: The sentence.
        array: Name of the input.
        index: Index of the first sample at fault in the caller's array; None for a single sample.
    """

    def __init__(self, detail: str, *, array: str, index: Sequence[int] | None = None) -> None:
        super().__init__(detail)
        self.where = Where(array=array, index=None if index is None else list(index))


class Unavailable(Failed, status=503, kind="unavailable", title="Unavailable"):
    """The service is not available now; `Retry-After` says when to try again.

    Args:
        detail: The sentence.
        retry_after: Whole seconds.
    """

    def __init__(self, detail: str, *, retry_after: int = 1) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after)})


class Overloaded(Unavailable, kind="overloaded", title="Overloaded"):
    """The limit of requests or bytes in flight is reached."""


class ModelNotReady(Unavailable, kind="model-not-ready", title="Model not ready"):
    """The model is in the repository and not loaded and warm yet."""


class TritonUnavailable(Unavailable, kind="triton-unavailable", title="Inference server unavailable"):
    """The inference server cannot be reached or went away during the request."""


class DeadlineExceeded(Failed, status=504, kind="deadline-exceeded", title="Deadline exceeded"):
    """The response was not ready within the request's deadline."""
