"""What the gateway says of its models, as JSON."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from schema.card import Card
from serving.document import Document


class ModelSummary(Document):
    """One model in the list of models."""

    name: str
    title: str
    problem: str
    version: int = Field(description="The version that is used when none is named: the newest that is ready.")
    versions: tuple[int, ...] = Field(description="All versions that are served now, ascending.")
    formats: tuple[str, ...] = Field(
        description="Formats of the served artefacts; `MODEL_FORMAT` names one that is not the first.",
        examples=[["onnx", "torchscript"]],
    )
    state: Literal["loaded", "on demand"] = Field(
        description="Whether it is loaded, or will be at its next use, which takes some seconds then."
    )
    warnings: tuple[str, ...] = Field(default=(), description="What to know before trusting the model, in sentences.")


class Model(Document):
    """`GET /v1/models/{model}`: card and export certificate of the newest version that is served."""

    name: str
    version: int
    versions: tuple[int, ...]
    card: Card
    certificate: dict[str, Any] | None
    solver: bool = Field(default=False, description="Whether the service has a classical solver: `/reference`.")


class Readiness(Document):
    """`GET /health/ready`: 200 when `ready`, else 503."""

    ready: bool
    reason: str | None = Field(default=None, description="Why it is not ready, or what is not served, in one sentence.")
    missing: tuple[str, ...] = Field(default=(), description="Models of the repository that are not loaded and warm.")
