"""What a service says of a model, as frozen values: the gateway's JSON goes in, a `ModelInfo` comes out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from petrov_client._exceptions import UnknownModel, UnreadableAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a model.

    Attributes:
        name: Its name on the wire.
        axes: Names of its axes, the batch first. Over gRPC only their number is known: "batch", "axis1", …
        units: Physical units, "1" for a dimensionless quantity; None where the service does not say (gRPC).
        meaning: The quantity in words, such as "permeability"; None where the service does not say (gRPC).
        positive: Whether every value has to be above zero; False where the service does not say (gRPC).
        shape: Points per axis, None where any number will do. The batch's is always None.
    """

    name: str
    axes: tuple[str, ...]
    units: str | None = None
    meaning: str | None = None
    positive: bool = False
    shape: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class GridInfo:
    """The grids that a model accepts.

    Attributes:
        axes: Names of the grid's axes.
        minimum: Fewest points per axis.
        maximum: Most points per axis.
        declared: Points per axis of the grids that errors are published for.
        points: Where the points lie, in words and a formula.
    """

    axes: tuple[str, ...]
    minimum: int
    maximum: int
    declared: tuple[int, ...]
    points: str


@dataclass(frozen=True)
class ModelInfo:
    """A model that answers now.

    Over HTTP all of it comes from the model's card. Triton's gRPC knows names, shapes and versions only: there `title`
    is empty, `grid` is None, `card` and `certificate` are empty, and tensors have neither units nor meaning.

    Attributes:
        name: What to pass to `predict`.
        version: The version that answers when none is named.
        versions: All versions that answer now, ascending.
        inputs: Inputs, one for every model that `predict` can ask.
        outputs: Outputs, one for every model that `predict` can ask.
        batch: Fields in one request of this client (the model's own batch); larger batches are cut.
        title: What the model computes, in a line.
        grid: The grids that it accepts, where the service says.
        card: The whole card: training distribution, measured errors, and the classical solver's beside them.
        certificate: The export certificate: how far the served graph is from the trained network.
    """

    name: str
    version: int
    versions: tuple[int, ...]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    batch: int
    title: str = ""
    grid: GridInfo | None = None
    card: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    certificate: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)


def checked_name(name: str) -> str:
    """A model's name, if it can be one: it is a folder's.

    Raises:
        UnknownModel: No model can have it.
    """
    if name in {"", ".", ".."} or "/" in name or "\\" in name:
        raise UnknownModel(f'there is no model "{name}"')
    return name


def model_info(document: Any) -> ModelInfo:
    """Read the gateway's description of one model (`GET /v1/models/{model}`).

    Raises:
        UnreadableAnswer: The document is not such a description.
    """
    try:
        return _from_card(document, document["card"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableAnswer(f"the description of a model is not readable: {error!r}") from error


def model_names(document: Any) -> list[str]:
    """Read the gateway's list of models (`GET /v1/models`).

    Raises:
        UnreadableAnswer: The document is not such a list.
    """
    try:
        return [str(model["name"]) for model in document["models"]]
    except (KeyError, TypeError) as error:
        raise UnreadableAnswer(f"the list of models is not readable: {error!r}") from error


def _from_card(document: Mapping[str, Any], card: Mapping[str, Any]) -> ModelInfo:
    return ModelInfo(
        name=str(document["name"]),
        version=int(document["version"]),
        versions=tuple(int(version) for version in document["versions"]),
        inputs=tuple(_tensor(tensor) for tensor in card["inputs"]),
        outputs=tuple(_tensor(tensor) for tensor in card["outputs"]),
        batch=max(1, int(card["limits"]["batch"])),
        title=str(card["title"]),
        grid=_grid(card["grid"]),
        card=card,
        certificate=document.get("certificate") or {},
    )


def _tensor(document: Mapping[str, Any]) -> TensorInfo:
    axes = tuple(str(axis) for axis in document["axes"])
    sizes = document.get("shape") or [None] * len(axes)
    return TensorInfo(
        name=str(document["name"]),
        axes=axes,
        units=str(document["units"]),
        meaning=str(document["meaning"]),
        positive=bool(document["positive"]),
        shape=tuple(None if points is None else int(points) for points in sizes),
    )


def _grid(document: Mapping[str, Any]) -> GridInfo:
    return GridInfo(
        axes=tuple(str(axis) for axis in document["axes"]),
        minimum=int(document["minimum"]),
        maximum=int(document["maximum"]),
        declared=tuple(int(points) for points in document["declared"]),
        points=str(document["points"]),
    )
