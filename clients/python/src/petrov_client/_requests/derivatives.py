"""Products of the Jacobian of a model and vectors: their arguments and results by name, as a service has them.

A service has each product as a model of its own, `darcy_vjp` and `darcy_jvp`. It takes the model's inputs and
`cotangents.solution` or `tangents.coefficient`, and returns its outputs and `gradients.coefficient` or
`tangents.solution`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from petrov_client._values.exceptions import InvalidInput, RequestError, Where

if TYPE_CHECKING:
    from petrov_client._values.models import ModelInfo

Kind = Literal["vjp", "jvp"]
GRADIENTS, COTANGENTS, TANGENTS = "gradients.", "cotangents.", "tangents."
PER_FIELD = ("batch", "value")


@dataclass(frozen=True)
class Product:
    """A product of the Jacobian of a model and vectors.

    Attributes:
        kind: Which product.
        model: The model.
        array: The inputs as the caller passed them.
        vectors: The cotangents or tangents as the caller passed them.
    """

    kind: Kind
    model: ModelInfo
    array: Any
    vectors: Any

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the product by name.

        Raises:
            InvalidInput: There is no cotangent or tangent, or an array without a name for several outputs.
        """
        role = COTANGENTS if self.kind == "vjp" else TANGENTS
        inputs = self.array if isinstance(self.array, Mapping) else {self.model.first_name: self.array}
        vectors = self.vectors if isinstance(self.vectors, Mapping) else {self._only_name(): self.vectors}
        if not vectors:
            raise InvalidInput(f"expected {role[:-1]} but got none", where=Where(role[:-1]))
        return {**inputs, **{f"{role}{name}": vector for name, vector in vectors.items()}}

    def results(self, arrays: Mapping[str, Any], info: ModelInfo, *, single: bool) -> tuple[Any, Any]:
        """Return the outputs, and the gradients or tangents, each as one array or by name.

        Args:
            arrays: The results of the product by name.
            info: The product as a model.
            single: Whether they are those of one field, without the batch axis.
        """
        per_field = {tensor.name for tensor in info.outputs if tensor.axes == PER_FIELD}
        shape = () if single else (-1,)
        shaped = {name: np.reshape(array, shape) if name in per_field else array for name, array in arrays.items()}
        outputs = {tensor.name: shaped[tensor.name] for tensor in self.model.outputs}
        role = GRADIENTS if self.kind == "vjp" else TANGENTS
        products = {name.removeprefix(role): array for name, array in shaped.items() if name.startswith(role)}
        if self.kind == "jvp":
            return only(outputs), only(products)
        if not isinstance(self.array, Mapping):
            return only(outputs), products[self.model.first_name]
        return only(outputs), {name: products[name] for name in self.array}

    def _only_name(self) -> str:
        """Return the name of a cotangent or tangent that is passed without one."""
        if self.kind == "jvp":
            return self.model.first_name
        if len(self.model.outputs) > 1:
            names = ", ".join(tensor.name for tensor in self.model.outputs)
            raise InvalidInput(f"expected cotangents by name, of {names}, but got one array", where=Where("cotangents"))
        return self.model.outputs[0].name


def name_of(model: str, kind: Kind) -> str:
    """Return the name of a product as a model."""
    return f"{model}_{kind}"


def missing(model: str, kind: Kind) -> RequestError:
    """Return the exception for a model without a product."""
    return RequestError(f'"{model}" has no {kind}: it was exported without derivatives')


def only(arrays: Mapping[str, Any]) -> Any:
    """Return the only array, or several by name."""
    return next(iter(arrays.values())) if len(arrays) == 1 else dict(arrays)


def received_names(names: list[str], sent: Mapping[str, Any]) -> list[str]:
    """Return the results of a product that a response has: gradients of what was sent alone."""
    return [name for name in names if not name.startswith(GRADIENTS) or name.removeprefix(GRADIENTS) in sent]
