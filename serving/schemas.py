"""What crosses the wire as JSON, and the model card as the gateway reads it; all of it appears in `/docs`.

Arrays themselves are described here and coded in `serving.codecs.formats`: validating a million numbers one by one
is not
what pydantic is for.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator


class Document(BaseModel):
    """Base of all documents: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Tensor(Document):
    """One input or output of a model, as its card describes it."""

    name: str
    dtype: Literal["FP32", "INT32"]
    axes: tuple[str, ...] = Field(description="The first is the batch, the rest are the grid's.")
    shape: tuple[int | None, ...] | None = Field(
        default=None, description="Points per axis, null where any number will do; null as a whole if all are such."
    )
    meaning: str = Field(examples=["permeability"])
    units: str
    positive: bool

    @property
    def points(self) -> tuple[int, ...] | None:
        """Points per axis of the grid, if the model fixes all of them."""
        fixed = tuple(points for points in (self.shape or ())[1:] if points is not None)
        return fixed if len(fixed) == len(self.axes) - 1 else None


class Grid(Document):
    """The grids that a model accepts: points per axis, and where they lie. A sequence's points are its tokens."""

    axes: tuple[str, ...]
    minimum: int
    maximum: int
    declared: tuple[int, ...] = Field(description="Points per axis of the grids that errors are published for.")
    points: str


class Vocabulary(Document):
    """How a text becomes tokens, and logits a label."""

    words: tuple[str, ...] = Field(min_length=2, description="Word by token.", examples=[("<pad>", "[MAX", "]", "7")])
    padding: Literal[0] = Field(default=0, description="The token that fills sequences up, behind their words.")
    pattern: str | None = Field(
        description="Matches the words of a text, with white space between them; null where token b + 1 is the byte b "
        "of the text in UTF-8."
    )
    labels: tuple[str, ...] = Field(min_length=2, description="Word by class, the last axis of the answer.")
    answer: Literal["sequence", "token"] = Field(description="What has a label.")


class Limits(Document):
    """What one call of the model may hold."""

    batch: int = Field(ge=1, description="Fields in one Triton batch; a request may hold more.")


class Card(Document):
    """`card.json` of a version folder: what the model maps to what, where it was trained and how well it does."""

    model_config = ConfigDict(frozen=True, extra="allow")  # export may say more than the gateway knows; it is passed on

    model: str
    version: int
    format: str
    title: str
    problem: str
    equation: str | None = Field(default=None, description="What is solved; a model of sequences has a task instead.")
    boundary: str | None = None
    task: str | None = Field(default=None, description="What is asked about a sequence, in words.")
    inputs: tuple[Tensor, ...] = Field(min_length=1)
    outputs: tuple[Tensor, ...] = Field(min_length=1)
    grid: Grid
    vocabulary: Vocabulary | None = Field(default=None, description="Of a model of sequences.")
    limits: Limits
    training: dict[str, Any]
    errors: tuple[dict[str, Any], ...] = ()
    classical: tuple[dict[str, Any], ...] = ()
    accuracy: tuple[dict[str, Any], ...] = Field(default=(), description="Of a model of sequences, beside a guess's.")
    checkpoint: dict[str, Any]

    @model_validator(mode="after")
    def _know_the_words(self) -> Card:
        """A model of sequences has a vocabulary, and no other model has one."""
        for tensor in self.inputs:
            if (tensor.dtype == "INT32") != (self.vocabulary is not None) or (
                self.vocabulary and len(tensor.axes) != 2
            ):
                raise ValueError(f"{tensor.name}: expected INT32 (batch, token) with a vocabulary, or FP32 without one")
        return self


class ModelSummary(Document):
    """A line of the list of models."""

    name: str
    title: str
    problem: str
    version: int = Field(description="The version that answers when none is named: the newest that is ready.")
    versions: tuple[int, ...] = Field(description="All versions that answer now, ascending.")


class ModelList(Document):
    """`GET /v1/models`."""

    models: tuple[ModelSummary, ...]


class Model(Document):
    """`GET /v1/models/{model}`: the card and the export certificate of the newest version that answers."""

    name: str
    version: int
    versions: tuple[int, ...]
    card: Card
    certificate: dict[str, Any] | None


class Base64Array(Document):
    """An array as little-endian bytes in C order."""

    shape: Annotated[tuple[int, ...], FailFast()]  # of a million faults one is enough
    dtype: str = Field(examples=["float32"])
    base64: str


NestedList = list[Any]


class Question(Document):
    """`POST /v1/models/{model}/predict` as JSON."""

    inputs: dict[str, Base64Array | NestedList] = Field(
        description="Fields, or for a model of sequences integers: of one length, shorter ones padded behind with 0.",
        examples=[{"coefficient": [[3.0, 12.0], [12.0, 3.0]]}],
    )


class Answer(Document):
    """The answer in JSON: outputs are coded as the question's inputs were."""

    model: str
    version: int
    outputs: dict[str, Base64Array | NestedList]


class Where(Document):
    """The place of a fault in the caller's arrays."""

    array: str
    index: list[int] | None = None


class ProblemDetails(Document):
    """The body of every error (RFC 9457), `application/problem+json`."""

    type: str = Field(examples=["urn:petrov:problem:non-positive"])
    title: str
    status: int
    detail: str = Field(examples=["coefficient[0,17,3] is -2.0; a permeability must be positive"])
    where: Where | None = None


class Liveness(Document):
    """`GET /health/live`."""

    status: str = "live"


class Readiness(Document):
    """`GET /health/ready`: 200 when `ready`, else 503."""

    ready: bool
    reason: str | None = Field(default=None, description="Why not, in a sentence.")
    missing: tuple[str, ...] = Field(default=(), description="Models of the repository that are not loaded and warm.")
