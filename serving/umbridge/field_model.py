"""A model of the repository as a model of UM-Bridge: flat vectors in, flat vectors out, one sample a call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from serving.codecs.arrays import Arrays
from serving.errors import Problem
from serving.predict import Prediction
from serving.umbridge.layout import Layout, default_grid, field_config, shape
from serving.umbridge.model import APPLY_JACOBIAN, EVALUATE, GRADIENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from serving.catalogue.card import Card, Kind
    from serving.service import Service
    from serving.umbridge.model import Call, Vector

PRODUCTS: dict[str, Kind] = {GRADIENT: "vjp", APPLY_JACOBIAN: "jvp"}
_OWN_FRAMES = 1  # as good as any number to know whether sizes follow


@dataclass(frozen=True)
class FieldModel:
    """A field model.

    Attributes:
        name: Its name.
        service: The parts of the gateway.
    """

    name: str
    service: Service

    @property
    def served(self) -> str:
        """The model of the repository."""
        return self.name

    @property
    def features(self) -> frozenset[str]:
        """Evaluations, and the derivatives that are served."""
        found = self.service.catalogue.model(self.name).card.differentiable
        return frozenset({EVALUATE, *(feature for feature, kind in PRODUCTS.items() if kind in found)})

    async def configured(self, config: Mapping[str, Any], feature: str) -> FieldFunction:
        """Return the function for a configuration.

        Raises:
            Problem: invalid-parameter: The configuration is none of the model.
            Problem: body-too-large: The arrays would take more bytes than a request may.
            Problem: As `Catalogue.find`.
        """
        chosen, catalogue = field_config(config), self.service.catalogue
        if feature in PRODUCTS:
            product = catalogue.derivative(self.name, PRODUCTS[feature], chosen.version).card
            base = catalogue.find(self.name, product.version).card
        else:
            named = chosen.version is not None
            product = None
            base = (catalogue.find(self.name, chosen.version) if named else await catalogue.newest(self.name)).card
        function = FieldFunction(self.service, Layout(base, chosen), product)
        largest = max(*function.input_sizes, *function.output_sizes, math.prod(function.layout.grid))
        if 4 * largest > self.service.settings.max_body_bytes:
            raise Problem("body-too-large", f"config: a field of {largest} numbers takes more than a request may")
        return function


@dataclass(frozen=True)
class FieldFunction:
    """A field model with one configuration.

    Attributes:
        service: The parts of the gateway.
        layout: The vectors.
        product: The card of the derivative; None for evaluations.
    """

    service: Service
    layout: Layout
    product: Card | None

    @property
    def input_sizes(self) -> Sequence[int]:
        """The size of each input vector."""
        return self.layout.input_sizes

    @property
    def output_sizes(self) -> Sequence[int]:
        """The size of each output vector."""
        return self.layout.output_sizes

    async def evaluate(self, inputs: Sequence[Vector], call: Call) -> list[Vector]:
        """Return the outputs, each as a vector in C order."""
        card, config = self.layout.card, self.layout.config
        found = await self.service.predictor.predict(
            Prediction(
                card,
                call.request_id,
                call.caller,
                config.policy,
                successor=self.service.catalogue.successor if config.version is None else None,
            ),
            Arrays(self.layout.arrays(inputs)),
        )
        return [found[tensor.name].reshape(-1) for tensor in card.outputs]

    async def gradient(self, output: int, by: int, inputs: Sequence[Vector], sensitivity: Vector, call: Call) -> Vector:
        """Return the gradient of the inner product of one output and the sensitivity."""
        tensor, argument = self.layout.card.outputs[output], self.layout.arguments[by]
        found = await self._product(inputs, {f"cotangents.{tensor.name}": self.layout.array(tensor, sensitivity)}, call)
        return found[f"gradients.{argument.name}"].reshape(-1)

    async def apply_jacobian(
        self, output: int, by: int, inputs: Sequence[Vector], direction: Vector, call: Call
    ) -> Vector:
        """Return the derivative of one output along a direction of one input."""
        return (await self.linearise(output, by, inputs, direction, call))[1]

    async def linearise(
        self, output: int, by: int, inputs: Sequence[Vector], direction: Vector, call: Call
    ) -> tuple[Vector, Vector]:
        """Return one output, and its derivative along a direction of one input."""
        tensor, argument = self.layout.card.outputs[output], self.layout.arguments[by]
        found = await self._product(inputs, {f"tangents.{argument.name}": self.layout.array(argument, direction)}, call)
        return found[tensor.name].reshape(-1), found[f"tangents.{tensor.name}"].reshape(-1)

    async def _product(
        self, inputs: Sequence[Vector], vector: dict[str, NDArray[Any]], call: Call
    ) -> Mapping[str, Vector]:
        """Run the derivative."""
        if self.product is None:
            raise Problem("not-differentiable", f'"{self.layout.card.model}" was not configured for derivatives')
        arrays, policy = Arrays(self.layout.arrays(inputs) | vector), self.layout.config.policy
        # As many frames as the outputs have: a product has fewer by default.
        policy = policy.asking(policy.count(self.layout.card))
        return await self.service.predictor.predict(
            Prediction(self.product, call.request_id, call.caller, policy), arrays
        )


def fits(card: Card) -> bool:
    """Return whether a model is one of UM-Bridge: it has real inputs, and outputs whose size follows from theirs."""
    if card.vocabulary is not None or card.product is not None:
        return False
    grid, frames = default_grid(card), _OWN_FRAMES if card.frames else None
    return all(shape(card, tensor, grid, frames) is not None for tensor in (*card.inputs, *card.outputs))
