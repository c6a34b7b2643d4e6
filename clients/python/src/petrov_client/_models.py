"""What a service says of a model, as frozen values: the gateway's JSON goes in, a `ModelInfo` comes out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from petrov_client._exceptions import InvalidInput, UnknownModel, UnreadableAnswer, Where
from petrov_client._vocabulary import PADDING, Vocabulary, vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt


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
        dtype: "FP32", or "INT32" for the tokens of a sequence.
    """

    name: str
    axes: tuple[str, ...]
    units: str | None = None
    meaning: str | None = None
    positive: bool = False
    shape: tuple[int | None, ...] = ()
    dtype: str = "FP32"


@dataclass(frozen=True)
class GridInfo:
    """The grids that a model accepts; a sequence's points are its tokens.

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
        vocabulary: The words and labels of a model of sequences; None for a model of fields.
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
    vocabulary: Vocabulary | None = None
    card: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    certificate: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def encode(self, texts: str | Sequence[str]) -> npt.NDArray[np.int32]:
        """The tokens of texts, as `predict` takes them.

        Args:
            texts: One text, or several that become one batch.

        Returns:
            int32 `[token]` for one text, else `[batch, token]`, as long as the longest and padded behind the others.

        Raises:
            InvalidInput: The model takes no text, or a text holds something else than its words, or too many of them;
                `.where` names the text.
        """
        if not isinstance(texts, str):
            return self._padded([self._encoded(text, (number,)) for number, text in enumerate(texts)])
        row: npt.NDArray[np.int32] = self._padded([self._encoded(texts, ())])[0]
        return row

    def decode(self, logits: npt.NDArray[Any]) -> Any:
        """The labels that a model's answer stands for.

        Args:
            logits: What `predict` answers: `[label]`, `[batch, label]` or, where every token has a label,
                `[token, label]` or `[batch, token, label]`.

        Returns:
            A `Choice`, or lists of them in the shape of the other axes. For tokens of padding they mean nothing:
            `zip(words, choices)` leaves them out.

        Raises:
            InvalidInput: The model has no labels, or others.
        """
        return self._known_words().decode(np.asarray(logits))

    def _known_words(self) -> Vocabulary:
        if self.vocabulary is None:
            raise InvalidInput(f'"{self.name}" takes numbers and no text: it has no vocabulary')
        return self.vocabulary

    def _encoded(self, text: str, index: tuple[int, ...]) -> list[int]:
        where = Where(self.inputs[0].name, index or None)
        place = f"text {index[0]}: " if index else ""
        try:
            tokens = self._known_words().encode(text)
        except InvalidInput as fault:
            raise InvalidInput(f"{place}{fault}", where=where) from None
        most = self.grid.maximum if self.grid else len(tokens)
        if not 1 <= len(tokens) <= most:
            raise InvalidInput(f"{place}expected 1 to {most} words but got {len(tokens)}", where=where)
        return tokens

    def _padded(self, sequences: list[list[int]]) -> npt.NDArray[np.int32]:
        length = max([self.grid.minimum if self.grid else 1, *map(len, sequences)])
        batch = np.full((len(sequences), length), PADDING, np.int32)
        for row, tokens in zip(batch, sequences, strict=True):
            row[: len(tokens)] = tokens
        return batch


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
        vocabulary=vocabulary(card["vocabulary"]) if card.get("vocabulary") else None,
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
        dtype=str(document["dtype"]),
    )


def _grid(document: Mapping[str, Any]) -> GridInfo:
    return GridInfo(
        axes=tuple(str(axis) for axis in document["axes"]),
        minimum=int(document["minimum"]),
        maximum=int(document["maximum"]),
        declared=tuple(int(points) for points in document["declared"]),
        points=str(document["points"]),
    )
