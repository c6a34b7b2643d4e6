"""What a complete network is: the base class, a bound around it, how it is found by name, and its channels.

A field of several components has a channel for each, in the general operators on grids and on points. A positive
quantity that spans decades enters, or is learned, by its logarithm. Every channel is standardised by itself, however
unlike the units are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import (
    BaseModel,
    BeforeValidator,
    NonNegativeInt,
    SerializeAsAny,
    model_validator,
)
from torch import Tensor, nn

from schema.parts import Frozen
from training.integrals import IntegralConfig
from training.messages import Registry
from training.nn.pointwise import Normaliser


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
        contains_solver: Whether it corrects a coarse solution of the equation, so that the service continues unusual
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

    @property
    def learned(self) -> nn.Module:
        """The part whose products are of a recipe's precision while it is trained: all, or a step and no solver."""
        return self

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


# Quantities as channels


Scale = Literal["linear", "log"]
LISTS = (
    ("input_components", "input_scales"),
    ("parameter_components", "parameter_scales"),
    ("output_components", "output_scales"),
    ("scalar_components", "scalar_scales"),
)
"""Keys of a config that have an entry per quantity, the same number of them."""


class QuantitiesConfig(Frozen):
    """What a general operator maps to what; components are counted, with 0 for a scalar field or one number."""

    input_components: tuple[int, ...]  # per input field, without a mask and without coordinates
    input_scales: tuple[Scale, ...]  # per such field whether it enters by its logarithm
    parameter_scales: tuple[Scale, ...] = ()  # likewise per parameter, without the counts of points
    parameter_components: tuple[NonNegativeInt, ...] = ()  # per parameter; empty where all are one number
    output_components: tuple[int, ...]  # per output field
    output_scales: tuple[Scale, ...]  # per output field whether its logarithm is learned
    scalar_components: tuple[NonNegativeInt, ...] = ()  # per scalar
    scalar_scales: tuple[Scale, ...] = ()  # per scalar whether its logarithm is learned
    integrals: tuple[IntegralConfig, ...] = ()  # of output fields: the outputs behind the scalars

    @model_validator(mode="after")
    def check_quantities(self) -> QuantitiesConfig:
        """Require a scale per quantity."""
        for first, second in LISTS:
            counted = getattr(self, first) or first != "parameter_components"
            if counted and len(getattr(self, first)) != len(getattr(self, second)):
                raise ValueError(f"expected as many {second} as {first}")
        return self

    @property
    def widths(self) -> tuple[int, ...]:
        """The numbers of every parameter."""
        return tuple(max(1, count) for count in self.parameter_components) or (1,) * len(self.parameter_scales)

    def numbers(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Return parameters `[batch, (component)]` on their scales, `[batch, number]` each."""
        given = zip(parameters, self.widths, self.parameter_scales, strict=True)
        return [columns(x, count, kind) for x, count, kind in given]

    def scalars(self, values: Tensor) -> tuple[Tensor, ...]:
        """Separate `[batch, number]` into scalars `[batch, (component)]`, off their scales."""
        return separated(values, self.scalar_components, self.scalar_scales, 1)

    def scalar_columns(self, scalars: Sequence[Tensor]) -> Tensor:
        """Return scalars `[batch, (component)]` on their scales, `[batch, number]`: the inverse of `scalars`."""
        parts = zip(scalars, self.scalar_components, self.scalar_scales, strict=True)
        return torch.cat([columns(*part) for part in parts], dim=1)


class ChannelNormaliser(Normaliser):
    """Standardise every channel by itself, however unlike the channels' units are; one that never varies is shifted."""

    @torch.no_grad()
    def fit(self, fields: Tensor) -> None:
        """Take mean and deviation per channel from samples `[sample, channel, *grid]`."""
        over = [axis for axis in range(fields.ndim) if axis != 1]
        deviation, mean = torch.std_mean(fields.double(), dim=over, correction=0)
        self.mean.copy_(mean.reshape(self.mean.shape))
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1).reshape(self.deviation.shape))


def separated(x: Tensor, components: Sequence[int], scales: Sequence[Scale], axis: int) -> tuple[Tensor, ...]:
    """Separate quantities from an axis of channels, off their scales; one without components has no such axis."""
    found, start = [], 0
    before: tuple[Any, ...] = (slice(None),) * axis
    for count, kind in zip(components, scales, strict=True):
        part = x[*before, start : start + count] if count else x[*before, start]
        found.append(torch.exp(part) if kind == "log" else part)
        start += max(1, count)
    return tuple(found)


def columns(x: Tensor, components: int, kind: Scale) -> Tensor:
    """Return numbers `[batch, (component)]` on their scale, `[batch, number]`."""
    return scale(x.reshape(-1, max(1, components)), kind)


def scale(x: Tensor, kind: Scale) -> Tensor:
    """Return a quantity or its logarithm."""
    return torch.log(x) if kind == "log" else x


def channels(components: Sequence[int]) -> int:
    """Count the channels of quantities."""
    return sum(max(1, count) for count in components)


OPERATORS = Registry("kind of operator", OperatorKind, "training.operators", "OPERATOR", "petrov.operators")


def parse(value: Any) -> BaseModel:
    """Return the config that a table such as `{"kind": "darcy", "layers": 4}` describes; configs are kept as they are.

    Raises:
        ValueError: It is no table, or it has no `kind`.
        UnknownNameError: There is no such kind; the message lists the known kinds.
        ValidationError: The config of that kind refuses a key or a value.
    """
    if isinstance(value, BaseModel):
        return value
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise ValueError(f"expected a table with a kind among {', '.join(OPERATORS)}")  # noqa: TRY004 - for pydantic
    return OPERATORS[value["kind"]].config.model_validate(value)


#: The config of any operator, as a field of a pydantic model.
OperatorConfig = Annotated[SerializeAsAny[BaseModel], BeforeValidator(parse)]


def build(config: BaseModel) -> Operator:
    """Return the network that a config describes, with fresh weights.

    Raises:
        TypeError: The config is of no known operator.

    Example:
        >>> from training.operators.burgers import BurgersConfig
        >>> operator = build(BurgersConfig(attention="galerkin", tokens=32, channels=8, layers=1))
        >>> operator(torch.randn(2, 100)).shape
        torch.Size([2, 100])
    """
    kind = getattr(config, "kind", "")
    if kind not in OPERATORS or type(config) is not OPERATORS[kind].config:
        raise TypeError(f"expected the config of an operator but got {type(config).__name__}")
    return OPERATORS[kind].build(config)


def within(fields: Sequence[Tensor], inside: Tensor | None, outside: Tensor | float = 1.0) -> list[Tensor]:
    """Return fields `[batch, (component), *grid]` with one value outside a domain `[batch, *grid]`, if there is one."""
    if inside is None:
        return [*fields]
    domains = [inside if x.ndim == inside.ndim else inside[:, None] for x in fields]
    values = [outside.to(x.dtype) if isinstance(outside, Tensor) else outside for x in fields]
    return [torch.where(domain, x, value) for domain, x, value in zip(domains, fields, values, strict=True)]


def stack(fields: Sequence[Tensor], components: Sequence[int], scales: Sequence[Scale]) -> Tensor:
    """Join fields `[batch, (component), *grid]` as channels `[batch, channel, *grid]`, on their scales."""
    parts = zip(fields, components, scales, strict=True)
    return torch.cat([scale(x if count else x[:, None], kind) for x, count, kind in parts], dim=1)
