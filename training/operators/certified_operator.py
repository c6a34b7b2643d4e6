"""An operator together with a bound on its error that the problem's equation gives, whatever the network."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from training.operators.operator import Operator

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
        self.operator, self.certificate = operator, certificate
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
