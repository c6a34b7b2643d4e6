"""What crosses the wire as JSON under `/v1` and `/health`; all of it appears in `/docs`.

Arrays are described here and decoded in `serving.codecs`: pydantic would validate a million numbers one by one.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from serving.catalogue.summary import ModelSummary  # noqa: TC001  pydantic reads annotations at run time
from serving.codecs.json_arrays import Base64Array  # noqa: TC001  as above
from serving.document import Document

NestedList = list[Any]


class ModelList(Document):
    """`GET /v1/models`."""

    models: tuple[ModelSummary, ...]


class PredictionRequest(Document):
    """`POST /v1/models/{model}/predict` as JSON."""

    inputs: dict[str, Base64Array | NestedList | float] = Field(
        description="Samples by input name, and numbers by parameter name: one per sample, or one for all. Inputs and "
        "parameters with a default in the model's card may be left out. The integers of sequences have one length: "
        "shorter ones end with 0.",
        examples=[{"conductivity": [[3.0, 12.0], [12.0, 3.0]], "wind": 0.3}],
    )


class PredictionResponse(Document):
    """The outputs in JSON, encoded as the inputs of the request were."""

    model: str
    version: int
    outputs: dict[str, Base64Array | NestedList]


class Example(Document):
    """`GET /v1/models/{model}/example`: inputs that can be posted to `predict`, with the truth where it is known."""

    inputs: dict[str, NestedList | float]
    outputs: dict[str, NestedList | float] | None = Field(
        default=None, description="The true outputs for these inputs; absent for an input that was just sampled."
    )


class Liveness(Document):
    """`GET /health/live`."""

    status: str = "live"
