"""What a complete network is: the base class, a bound around it, and the record by which it is found by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from torch import Tensor, nn


def fit_nothing(operator: nn.Module, *fields: Tensor) -> None:
    """Fit no normalisers: what an operator without them does."""
    del operator, fields


class Operator(nn.Module):
    """A network that maps fields to fields, both in physical units.

    `forward` takes one tensor `[batch, *grid]` per input, in the order of the problem's inputs, and returns the output
    `[batch, *grid]`. `fit_normalisers` takes the same tensors for the training samples, then their outputs.

    Attributes:
        quality: Names of the quality outputs of `with_quality`, in the order `error_bound`, `solve_bound`, `misfit`,
            `error_estimate`, `novelty`; none by default.
        solve_limit: The largest `solve_bound` of an output that is sent as it is; None where there is no such bound.
        contains_solver: Whether it corrects a coarse solution of the equation, so that the service continues foreign
            inputs by the method alone.
        optional: Whether `forward` takes the problem's optional inputs, too, after the others.
        remark: What a card has to say about the method, such as a classical solution among the features.
        scattered: Whether fields are on points of their own, `[batch, point, (component)]`. Then `canonical` returns
            how far the nodes of a grid are filled and each input channel on it, `[batch, *grid]`; the lowest, then
            the highest coordinates, `[batch]` each; and the parameters.
        fits_damping: Whether `fit_damping` takes the tensors of `fit_normalisers` once more, after the training.
        mask: The position among the arguments of the field that says where the domain is; None where there is none.
    """

    config: BaseModel
    fit_normalisers: Callable[..., None] = fit_nothing
    fit_damping: Callable[..., None] = fit_nothing
    quality: tuple[str, ...] = ()
    solve_limit: float | None = None
    contains_solver: bool = False
    optional: bool = False
    remark: str = ""
    scattered: bool = False
    fits_damping: bool = False
    mask: int | None = None

    def own_loss(self, *fields: Tensor) -> Tensor | None:
        """Return the loss of training samples where the operator has one of its own; None: that of the recipe.

        Args:
            fields: The inputs, then the outputs as they are stored, before their means over blocks, then the deviation
                of the inputs' noise `[batch]`, if there is any.
        """
        del fields
        return None

    def canonical(self, *fields: Tensor) -> tuple[Tensor, ...]:
        """Return the arguments without what the operator treats exactly, such as a common factor of all values.

        Statistics of the result decide how unusual an input is. By default they are the arguments themselves.
        """
        return fields

    def refined(self) -> Operator | None:
        """Return the method without the network, with more iterations and smaller error bounds; None: there is none.

        It takes and returns the same tensors, and has quality outputs of its own. It is exported beside the network. It
        meets tolerances, and it continues what the network has not solved.
        """
        return None

    def with_quality(self, *fields: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of `forward`, then the quality outputs `[batch, 1]` that `quality` names, in its order.

        The exported graph computes this where `quality` is not empty.
        """
        raise NotImplementedError(f"{type(self).__name__} names the quality outputs {self.quality} but computes none")


Certificate = Callable[..., Tensor]
"""Maps the inputs and the output `[batch, *grid]` of a problem to a bound `[batch, 1]`."""

ERROR_BOUND = "error_bound"


class CertifiedOperator(Operator):
    """Return an operator's output, and a bound on its error.

    Args:
        operator: The operator, of one output. Its own quality outputs follow the bound.
        certificate: Computes the bound from inputs and output.
    """

    def __init__(self, operator: Operator, certificate: Certificate) -> None:
        super().__init__()
        self.operator, self.certificate, self.config = operator, certificate, operator.config
        self.quality = (ERROR_BOUND, *operator.quality)
        self.optional, self.solve_limit = operator.optional, operator.solve_limit
        self.contains_solver = operator.contains_solver

    def forward(self, *fields: Tensor) -> Tensor:
        output: Tensor = self.operator(*fields)
        return output

    def canonical(self, *fields: Tensor) -> tuple[Tensor, ...]:
        return self.operator.canonical(*fields)

    def with_quality(self, *fields: Tensor) -> tuple[Tensor, ...]:
        found = self.operator.with_quality(*fields) if self.operator.quality else (self.operator(*fields),)
        output, *known = found
        return (output, self.certificate(*fields, output), *known)


def certified(operator: Operator, certificate: Certificate | None) -> Operator:
    """Return the operator with a bound on its error, where the equation gives one and the operator has none itself."""
    if certificate is None or ERROR_BOUND in operator.quality:
        return operator
    return CertifiedOperator(operator, certificate).eval()


@dataclass(frozen=True)
class OperatorKind:
    """A kind of operator: its name in recipes, its config, and how to build the network.

    The field `kind` of the config has the default `name`. The module of a network holds one as `OPERATOR`.

    Attributes:
        name: The name.
        config: The class of its config.
        build: Returns the network of a config.
        sized: Returns the keys of the config that follow from a user's data: from the problem's description, and points
            per axis. Without it the config's defaults serve.
    """

    name: str
    config: type[BaseModel]
    build: Callable[[Any], Operator]
    sized: Callable[[Any, tuple[int, ...]], Mapping[str, Any]] | None = None
