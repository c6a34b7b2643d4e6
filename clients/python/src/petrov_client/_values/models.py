"""The description of a model, as frozen values, and its reader from the gateway's JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from petrov_client._values.exceptions import InvalidInput, InvalidResponse, UnknownModel, Where
from petrov_client._values.quality import ERROR_ESTIMATE
from petrov_client._values.vocabulary import PADDING, Vocabulary, vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt


#: The names of the axes before the grid's: frames, given frames of a state, and components of a vector field.
FRAME, HISTORY, COMPONENT = "frame", "history", "component"


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a model.

    Attributes:
        name: Its name on the wire.
        axes: Names of its axes: the batch, "component" for a vector field, and the grid's. Of a plain Triton only their
            number is known: "batch", "axis1", …
        units: Physical units, "1" for a dimensionless quantity; None over gRPC.
        meaning: The quantity in words, such as "permeability"; None over gRPC.
        positive: Whether every value must be above zero; False over gRPC.
        shape: Points per axis, None where any number is accepted. The batch's is always None.
        dtype: "FP32", or "INT32" for the tokens of a sequence.
        components: Names of the components of a vector field.
        default: The value everywhere of an input that may be left out; None where it is required.
    """

    name: str
    axes: tuple[str, ...]
    units: str | None = None
    meaning: str | None = None
    positive: bool = False
    shape: tuple[int | None, ...] = ()
    dtype: str = "FP32"
    components: tuple[str, ...] = ()
    default: float | None = None

    @property
    def vector(self) -> int:
        """The number of axes for frames and components: 0 for a scalar field of one frame."""
        return sum(axis in {FRAME, HISTORY, COMPONENT} for axis in self.axes)


@dataclass(frozen=True)
class ParameterInfo:
    """A number per field.

    Attributes:
        name: Its name on the wire.
        units: Physical units; None where they are not known, as of a plain Triton.
        meaning: The quantity in words, or None.
        default: Its value where it is left out; None where it is required.
        minimum: The least value; None for no bound.
        maximum: The greatest value; None for no bound.
        shape: The shape on the wire: `[batch]`, or `[batch, 1]` of a plain Triton.
    """

    name: str
    units: str | None = None
    meaning: str | None = None
    default: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    shape: tuple[int | None, ...] = (None,)

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value."""
        low = -math.inf if self.minimum is None else self.minimum
        return low, math.inf if self.maximum is None else self.maximum


@dataclass(frozen=True)
class GridInfo:
    """The grids that a model accepts; a sequence's points are its tokens.

    Attributes:
        axes: Names of the grid's axes.
        minimum: Fewest points per axis.
        maximum: Most points per axis.
        declared: Points per axis of the grids for which errors are published.
        points: The location of the points, in words and a formula.
    """

    axes: tuple[str, ...]
    minimum: int
    maximum: int
    declared: tuple[int, ...]
    points: str


@dataclass(frozen=True)
class FramesInfo:
    """The time axis of a model of trajectories.

    Attributes:
        step: Time between two frames.
        history: Frames of every state that a prediction starts from.
        states: The inputs that are states, in the order of the outputs that go on from them.
        trained: Frames of a training trajectory that follow its history.
        maximum: The most frames of one request.
    """

    step: float
    history: int
    states: tuple[str, ...]
    trained: int
    maximum: int


@dataclass(frozen=True)
class ModelInfo:
    """A model that is ready.

    All values come from the model's card; over gRPC `card` and `certificate` are empty. A plain Triton knows names,
    shapes and versions only: there `title` is empty, `grid` is None, and tensors have neither units nor meaning.

    Attributes:
        name: The name, as `predict` takes it.
        version: The default version.
        versions: All versions that are ready, ascending.
        inputs: The inputs: fields, or the tokens of a sequence.
        outputs: The outputs.
        batch: The model's largest batch; the client cuts larger ones.
        title: What the model computes, in one sentence.
        grid: The grids that it accepts; None of a plain Triton.
        vocabulary: The words and labels of a sequence model; None for a model of fields.
        card: The whole card: training distribution, measured errors, and errors of the classical solver.
        certificate: The export certificate: the difference between the served graph and the trained network.
        parameters: Numbers per field.
        quality: What the model reports about its outputs, such as "error_bound"; see `Quality`.
        frames: The time axis of a model of trajectories; None for any other.
    """

    name: str
    version: int
    versions: tuple[int, ...]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    batch: int
    title: str = ""
    grid: GridInfo | None = None
    vocabulary: Vocabulary | None = None
    card: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    certificate: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    parameters: tuple[ParameterInfo, ...] = ()
    quality: tuple[str, ...] = ()
    frames: FramesInfo | None = None

    @property
    def arguments(self) -> tuple[TensorInfo | ParameterInfo, ...]:
        """Inputs and parameters, which `predict` takes by name."""
        return (*self.inputs, *self.parameters)

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the inputs and parameters without a default."""
        return tuple(each.name for each in self.arguments if each.default is None)

    def alone(self, names: Iterable[str]) -> bool:
        """Return whether there is one name, and only it is required, so that a file of one array can be sent."""
        required = self.required or tuple(each.name for each in self.arguments)
        return len(required) == 1 and tuple(names) == required

    @property
    def first_name(self) -> str:
        """The name of an input that is passed without a name: the only one that is required, or the first."""
        required = [tensor.name for tensor in self.inputs if tensor.default is None]
        return required[0] if len(required) == 1 else self.inputs[0].name

    def encode(self, texts: str | Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the tokens of texts, as `predict` takes them.

        Args:
            texts: One text, or several that become one batch.

        Returns:
            int32 `[token]` for one text, else `[batch, token]`, as long as the longest and padded behind the others.

        Raises:
            InvalidInput: The model has no vocabulary, or a text holds an unknown word or too many words; `.where`
                names the text.
        """
        if not isinstance(texts, str):
            return self._padded([self._encoded(text, (number,)) for number, text in enumerate(texts)])
        row: npt.NDArray[np.int32] = self._padded([self._encoded(texts, ())])[0]
        return row

    def decode(self, logits: npt.NDArray[Any]) -> Any:
        """Return the labels of a model's output.

        Args:
            logits: The output of `predict`: `[label]`, `[batch, label]` or, where every token has a label,
                `[token, label]` or `[batch, token, label]`.

        Returns:
            A `Choice`, or nested lists of them in the shape of the other axes. Those of padding have no meaning;
            `zip(words, choices)` drops them.

        Raises:
            InvalidInput: The model has no labels, or another number of them.
        """
        return self._required_vocabulary().decode(np.asarray(logits))

    def _required_vocabulary(self) -> Vocabulary:
        if self.vocabulary is None:
            raise InvalidInput(f'"{self.name}" takes numbers and no text: it has no vocabulary')
        return self.vocabulary

    def _encoded(self, text: str, index: tuple[int, ...]) -> list[int]:
        where = Where(self.inputs[0].name, index or None)
        prefix = f"text {index[0]}: " if index else ""
        try:
            tokens = self._required_vocabulary().encode(text)
        except InvalidInput as fault:
            raise InvalidInput(f"{prefix}{fault}", where=where) from None
        most = self.grid.maximum if self.grid else len(tokens)
        if not 1 <= len(tokens) <= most:
            raise InvalidInput(f"{prefix}expected 1 to {most} words but got {len(tokens)}", where=where)
        return tokens

    def _padded(self, sequences: list[list[int]]) -> npt.NDArray[np.int32]:
        length = max([self.grid.minimum if self.grid else 1, *map(len, sequences)])
        batch = np.full((len(sequences), length), PADDING, np.int32)
        for row, tokens in zip(batch, sequences, strict=True):
            row[: len(tokens)] = tokens
        return batch


def checked_name(name: str) -> str:
    """Return a model's name, if it can be one: it is the name of a folder.

    Raises:
        UnknownModel: No model can have that name.
    """
    if name in {"", ".", ".."} or "/" in name or "\\" in name:
        raise UnknownModel(f'there is no model "{name}"')
    return name


def model_info(document: Any) -> ModelInfo:
    """Return the model of the gateway's description (`GET /v1/models/{model}`).

    Raises:
        InvalidResponse: The document is not such a description.
    """
    try:
        return _from_card(document, document["card"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidResponse(f"the description of a model is not readable: {error!r}") from error


def model_names(document: Any) -> list[str]:
    """Return the names in the gateway's list of models (`GET /v1/models`).

    Raises:
        InvalidResponse: The document is not such a list.
    """
    try:
        return [str(model["name"]) for model in document["models"]]
    except (KeyError, TypeError) as error:
        raise InvalidResponse(f"the list of models is not readable: {error!r}") from error


def _from_card(document: Mapping[str, Any], card: Mapping[str, Any]) -> ModelInfo:
    return ModelInfo(
        name=str(document["name"]),
        version=int(document["version"]),
        versions=tuple(int(version) for version in document["versions"]),
        inputs=tuple(tensor_info(tensor) for tensor in card["inputs"]),
        parameters=tuple(parameter_info(parameter) for parameter in card.get("parameters", ())),
        outputs=tuple(tensor_info(tensor) for tensor in card["outputs"]),
        batch=max(1, int(card["limits"]["batch"])),
        title=str(card["title"]),
        grid=grid_info(card["grid"]),
        vocabulary=vocabulary(card["vocabulary"]) if card.get("vocabulary") else None,
        card=card,
        certificate=document.get("certificate") or {},
        quality=_quality(card),
        frames=frames_info(card.get("frames")),
    )


def _quality(card: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what responses say about outputs; that of trajectories has been measured for every frame."""
    names = tuple(str(name) for name in card.get("quality", ()))
    known = any(row.get(ERROR_ESTIMATE) is not None for row in card.get("rollout", ()))
    return (*names, ERROR_ESTIMATE) if known and ERROR_ESTIMATE not in names else names


def tensor_info(document: Mapping[str, Any]) -> TensorInfo:
    """Return an input or output as a card describes it.

    Raises:
        KeyError, TypeError, ValueError: The document is no such description.
    """
    axes = tuple(str(axis) for axis in document["axes"])
    sizes = document.get("shape") or [None] * len(axes)
    return TensorInfo(
        name=str(document["name"]),
        axes=axes,
        units=str(document["units"]),
        meaning=str(document["meaning"]),
        positive=bool(document["positive"]),
        shape=tuple(None if points is None else int(points) for points in sizes),
        dtype=str(document["dtype"]),
        components=tuple(str(name) for name in document.get("components", ())),
        default=_number(document.get("default")),
    )


def parameter_info(document: Mapping[str, Any]) -> ParameterInfo:
    """Return a parameter as a card describes it.

    Raises:
        KeyError, TypeError, ValueError: The document is no such description.
    """
    return ParameterInfo(
        name=str(document["name"]),
        units=str(document["units"]),
        meaning=str(document["meaning"]),
        default=_number(document.get("default")),
        minimum=_number(document.get("minimum")),
        maximum=_number(document.get("maximum")),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def frames_info(frames: Mapping[str, Any] | None) -> FramesInfo | None:
    """Return the time axis as a card describes it; None where it has none."""
    if frames is None:
        return None
    return FramesInfo(
        step=float(frames["step"]),
        history=int(frames["history"]),
        states=tuple(str(name) for name in frames["states"]),
        trained=int(frames["trained"]),
        maximum=int(frames["maximum"]),
    )


def grid_info(document: Mapping[str, Any]) -> GridInfo:
    """Return the grids as a card describes them.

    Raises:
        KeyError, TypeError, ValueError: The document is no such description.
    """
    return GridInfo(
        axes=tuple(str(axis) for axis in document["axes"]),
        minimum=int(document["minimum"]),
        maximum=int(document["maximum"]),
        declared=tuple(int(points) for points in document["declared"]),
        points=str(document["points"]),
    )
