"""What crosses the wire as JSON under `/v1` and `/health`; all of it appears in `/docs`.

Arrays are described here and decoded in `serving.codecs`: pydantic would validate a million numbers one by one.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import Response
from pydantic import Field

from serving.catalogue.documents import ModelSummary
from serving.codecs import binary
from serving.codecs.json_arrays import Base64Array
from serving.device import Device
from serving.document import Document
from serving.protocols import over_http

NestedList = list[Any]
MULTIPART = "multipart/mixed"  # of frames, whose own media type it leaves open


class ModelList(Document):
    """`GET /v1/models`."""

    models: tuple[ModelSummary, ...]
    device: Device | None = Field(
        default=None, description="What they are computed on; null where Triton runs elsewhere, or starts."
    )


class PredictionRequest(Document):
    """`POST /v1/models/{model}/predict` as JSON."""

    inputs: dict[str, Base64Array | NestedList | float] = Field(
        description="Samples by input name, and numbers by parameter name: one per sample, or one for all. Inputs and "
        "parameters with a default in the model's card may be left out. The integers of sequences have one length: "
        "shorter ones end with 0.",
        examples=[{"conductivity": [[3.0, 12.0], [12.0, 3.0]], "wind": 0.3}],
    )
    cells: list[list[int]] | list[list[list[int]]] | None = Field(
        default=None,
        description="Of models on points, in place of `boundary`, `distance` and `area`, which follow from it: the "
        "points of every cell `[cell, node]` of one mesh for all samples, or a list of those of each. In safetensors "
        "and `/v2` it is a tensor of whole numbers.",
        examples=[[[0, 1, 2], [1, 3, 2]]],
    )


Numbers = tuple[float | None, ...] | tuple[tuple[float | None, ...], ...]


class Quality(Document):
    """What is known about the errors of the outputs; null where a number is not known.

    Each is a number per sample or, of trajectories, a list per sample with a number per frame.
    """

    error_bound: Numbers | None = Field(
        default=None,
        description="Guaranteed relative energy-norm distance to the discrete solution on the given grid, of the "
        "equation as it was sent.",
    )
    solve_bound: Numbers | None = Field(
        default=None,
        description="Guaranteed relative energy-norm distance to the discrete solution of the equation as the network "
        "corrected it. Outputs above the limit in the card are continued before they are sent.",
    )
    misfit: Numbers | None = Field(
        default=None,
        description="Relative L2 distance between the input and the forward solution of the output.",
    )
    error_estimate: Numbers | None = Field(
        default=None,
        description="Relative L2 error that at least 90 % of inputs of the training distribution stay below.",
    )
    novelty: Numbers | None = Field(
        default=None, description="Share of calibration inputs that are at least as unusual as the input."
    )
    outside: tuple[bool, ...] | tuple[tuple[bool, ...], ...] | None = Field(
        default=None,
        description="Whether the input is unlike the training data: its novelty is below 0.01. A trajectory stays "
        "outside from the first frame that follows from such a state.",
    )
    failed: tuple[bool, ...] | None = Field(
        default=None, description="With `partial`: whether the model failed on the sample, whose outputs are null."
    )
    solved_by: Literal["network", "refined", "solver", "mixed"] = Field(description="What computed the outputs.")


class Outputs(Document):
    """What every response in JSON has: the outputs, encoded as the inputs of the request were."""

    model: str
    version: int
    outputs: dict[str, Base64Array | NestedList]


class PredictionResponse(Outputs):
    """The outputs in JSON, encoded as the inputs of the request were."""

    quality: Quality | None = Field(default=None, description="Absent where nothing is known.")


class VjpRequest(PredictionRequest):
    """`POST /v1/models/{model}/vjp` as JSON. In safetensors a cotangent is the tensor `cotangents.NAME`."""

    cotangents: dict[str, Base64Array | NestedList] = Field(
        description="By output name, in the shapes of the outputs: the gradient of a loss by the outputs. One that is "
        "left out is 0.",
        examples=[{"temperature": [[1.0, 0.0], [0.0, 0.0]]}],
    )


class VjpResponse(Outputs):
    """Outputs and gradients in JSON. In safetensors a gradient is the tensor `gradients.NAME`."""

    gradients: dict[str, Base64Array | NestedList | float] = Field(
        description="By the name of each input and parameter that was sent, in their shapes; by a parameter one number "
        "per sample."
    )


class JvpRequest(PredictionRequest):
    """`POST /v1/models/{model}/jvp` as JSON. In safetensors a tangent is the tensor `tangents.NAME`."""

    tangents: dict[str, Base64Array | NestedList | float] = Field(
        description="By the name of an input or a parameter, in their shapes. One that is left out is 0.",
        examples=[{"conductivity": [[1.0, 0.0], [0.0, 0.0]], "wind": 1.0}],
    )


class JvpResponse(Outputs):
    """Outputs and their tangents in JSON. In safetensors a tangent is the tensor `tangents.NAME`."""

    tangents: dict[str, Base64Array | NestedList] = Field(description="By output name.")


class Example(Document):
    """`GET /v1/models/{model}/example`: inputs that can be posted to `predict`, with the truth where it is known."""

    inputs: dict[str, NestedList | float]
    outputs: dict[str, NestedList | float] | None = Field(
        default=None, description="The true outputs for these inputs; absent for an input that was just sampled."
    )


class Liveness(Document):
    """`GET /health/live`."""

    status: str = "live"


# How the routes are described.

_ORIGIN = {"Petrov-Model": {"schema": {"type": "string"}}, "Petrov-Version": {"schema": {"type": "integer"}}}
_KINDS = {"outside": "boolean", "failed": "integer", "solved_by": "string"}
_QUALITY = {
    f"Petrov-{name.replace('_', '-').title()}": {
        "schema": {"type": _KINDS.get(name, "number")},
        "description": about.description if name in _KINDS else f"Worst of the batch, if known: {about.description}",
    }
    for name, about in Quality.model_fields.items()
}
_TIMING = {
    "schema": {"type": "string"},
    "description": "Milliseconds of processor time of the `network`, the `solver` or both, for the whole request; the "
    "network's from a local Triton alone.",
}
_OF_REFERENCES = [each for each in over_http.QUERY if each["name"] not in {"outside", "after"}]
PREDICTION, REFERENCE = (
    over_http.described(
        *(PredictionRequest, PredictionResponse, binary.NPY, binary.SAFETENSORS),
        parameters=parameters,
        headers=_ORIGIN | _QUALITY | {"Server-Timing": _TIMING},
    )
    for parameters in (over_http.QUERY, _OF_REFERENCES)
)
ROLLOUT = over_http.described(
    PredictionRequest,
    {
        "content": {MULTIPART: over_http.BINARY},
        "description": "A part per frame in the format that `Accept` names, each with its number in the header "
        "`Petrov-Frame` and the headers of `predict`. The rollout is complete if the closing delimiter follows the "
        "last part; an error is a last part of the type `application/problem+json`.",
    },
    *(binary.NPY, binary.SAFETENSORS),
    parameters=over_http.QUERY,
) | {"response_class": Response}
_OF_DERIVATIVES = [each for each in over_http.QUERY if each["name"] in {"partial", "frames"}]
VJP = over_http.described(VjpRequest, VjpResponse, binary.SAFETENSORS, parameters=_OF_DERIVATIVES, headers=_ORIGIN)
JVP = over_http.described(JvpRequest, JvpResponse, binary.SAFETENSORS, parameters=_OF_DERIVATIVES, headers=_ORIGIN)
