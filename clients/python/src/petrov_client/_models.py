"""What a service says of its models: their description and samples, as frozen values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from petrov_client._errors import InvalidInput, UnknownModel, Where
from petrov_client._html import html_table
from petrov_client._schema import (
    COMPONENT,
    COORDINATES,
    FRAME,
    HISTORY,
    FramesInfo,
    GridInfo,
    ParameterInfo,
    TensorInfo,
)
from petrov_client._vocabulary import PADDING, Vocabulary

#: How the names of the arguments and results of a derivative begin.
GRADIENTS, COTANGENTS, TANGENTS = "gradients.", "cotangents.", "tangents."
#: How the names of the true outputs of a sample begin.
OUTPUTS = "outputs."
#: The axes of a result that is one number per field, such as the gradient by a parameter.
PER_FIELD = ("batch", "value")


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
        mask: The input that is 1 inside the domain and 0 outside; None where fields are on the whole grid.
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
    mask: str | None = None

    def _repr_html_(self) -> str:
        rows = [
            (each.name, kind, " x ".join(each.axes), each.units or "", each.meaning or "")
            for kind, group in (("input", self.inputs), ("parameter", self.parameters), ("output", self.outputs))
            for each in group
        ]
        sizes = f", {self.sizes}" if self.grid else ""
        title = f"{self.name} version {self.version}: {self.title}{sizes}"
        return html_table(("name", "", "axes", "units", "meaning"), rows, title)

    @property
    def sizes(self) -> str:
        """The sizes of a field or a text that the model accepts, in words."""
        if self.grid is None:
            return "unknown"
        unit = "words" if self.vocabulary else f"points, {len(self.grid.axes)}-D"
        if self.scattered:
            unit = f"points of a {self.inputs[0].shape[-1] or 2}-D mesh"
        return f"{self.grid.minimum} to {self.grid.maximum} {unit}"

    @property
    def scattered(self) -> bool:
        """Whether every sample has points of its own, whose coordinates are the first input."""
        named = bool(self.inputs) and self.inputs[0].name == COORDINATES
        return named and (self.grid is None or self.inputs[0].axes[-1] not in self.grid.axes)

    @property
    def takes_grid(self) -> bool:
        """Whether the inputs are numbers alone, so that `predict` takes the grid of the outputs."""
        return not any("." not in each.name for each in self.inputs)

    @property
    def arguments(self) -> tuple[TensorInfo | ParameterInfo, ...]:
        """Inputs and parameters, which `predict` takes by name."""
        return (*self.inputs, *self.parameters)

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the inputs and parameters without a default."""
        return tuple(each.name for each in self.arguments if each.default is None)

    @property
    def forced(self) -> tuple[str, ...]:
        """The names of the inputs and parameters that have a value per frame of a trajectory."""
        return tuple(each.name for each in self.arguments if FRAME in each.axes)

    def alone(self, names: Iterable[str]) -> bool:
        """Return whether there is one name, and only it is required, so that a file of one array can be sent."""
        required = self.required or tuple(each.name for each in self.arguments)
        return len(required) == 1 and tuple(names) == required

    @property
    def first_name(self) -> str:
        """The name of an input that is passed without a name: the only one that is required, or the first."""
        required = [tensor.name for tensor in self.inputs if tensor.default is None]
        return required[0] if len(required) == 1 else next((each.name for each in self.arguments), "")

    def output_values(self, inputs: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> int | None:
        """Return how many numbers the outputs and what is known about them have, of inputs of these shapes.

        `sizes` are those of axes that no input has. It is None where the size of an axis is not known.
        """
        known = {PER_FIELD[1]: 1, **sizes}
        for tensor in self.inputs:
            known |= zip(tensor.axes, inputs.get(tensor.name, ()), strict=False)
        count = 0
        for tensor in self.outputs:
            fixed = tensor.shape or [None] * len(tensor.axes)
            shape = [known.get(axis) if size is None else size for axis, size in zip(tensor.axes, fixed, strict=True)]
            if None in shape:
                return None
            count += math.prod(filter(None, shape))
        return count + len(self.quality) * known.get(PER_FIELD[0], 0)

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
        single, sequences, vocabulary = isinstance(texts, str), [], self._texts()
        for number, text in enumerate([texts] if isinstance(texts, str) else texts):
            where = Where(self.first_name, None if single else (number,))
            prefix = "" if single else f"text {number}: "
            try:
                tokens = vocabulary.encode(text)
            except InvalidInput as fault:
                raise InvalidInput(f"{prefix}{fault}", where=where) from None
            most = self.grid.maximum if self.grid else len(tokens)
            if not 1 <= len(tokens) <= most:
                raise InvalidInput(f"{prefix}expected 1 to {most} words but got {len(tokens)}", where=where)
            sequences.append(tokens)
        length = max([self.grid.minimum if self.grid else 1, *map(len, sequences)])
        batch = np.full((len(sequences), length), PADDING, np.int32)
        for row, tokens in zip(batch, sequences, strict=True):
            row[: len(tokens)] = tokens
        return batch[0] if single else batch

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
        return self._texts().decode(np.asarray(logits))

    def _texts(self) -> Vocabulary:
        if self.vocabulary is None:
            raise InvalidInput(f'"{self.name}" takes numbers and no text: it has no vocabulary')
        return self.vocabulary


class Models(list[ModelInfo]):
    """The models of a service, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [
            (each.name, each.title, *(", ".join(one.name for one in group) for group in (each.arguments, each.outputs)))
            for each in self
        ]
        return html_table(("name", "computes", "inputs", "outputs"), rows)


@dataclass(frozen=True)
class Example:
    """One sample, without a batch axis.

    Attributes:
        inputs: Inputs and parameters by name, as `predict` takes them: float32, or int32 for tokens.
        outputs: The true outputs by name; empty where they are not known.
        count: How many test samples are stored; None for a new sample.
    """

    inputs: Mapping[str, npt.NDArray[Any]]
    outputs: Mapping[str, npt.NDArray[Any]]
    count: int | None = None


def vector_axes(tensor: TensorInfo) -> int:
    """Return the number of axes for frames and components: 0 for a scalar field of one frame."""
    return sum(axis in {FRAME, HISTORY, COMPONENT} for axis in tensor.axes)


def attributes_of(tensor: TensorInfo | ParameterInfo) -> dict[str, str]:
    """Return units and meaning of an array by the names that netCDF has for them, where they are known."""
    return {key: text for key, text in (("units", tensor.units), ("long_name", tensor.meaning)) if text}


def checked_name(name: str) -> str:
    """Return a model's name, if it can be one: it is the name of a folder."""
    if not isinstance(name, str):
        raise InvalidInput(f"model: expected a name but got {type(name).__name__}")
    if name in {"", ".", ".."} or "/" in name or "\\" in name:
        raise UnknownModel(f'there is no model "{name}"')
    return name
