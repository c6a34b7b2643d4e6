"""What a model of UM-Bridge does, whatever computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from serving.limits import Caller

    Vector = NDArray[Any]  # of real numbers

EVALUATE, GRADIENT, APPLY_JACOBIAN, APPLY_HESSIAN = "Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian"


@dataclass(frozen=True)
class Call:
    """What is known of a request beside its message.

    Attributes:
        request_id: For Triton's log.
        caller: Pays for the sample.
    """

    request_id: str
    caller: Caller


class Function(Protocol):
    """A model with one configuration: a function of vectors, and its derivatives.

    Attributes:
        input_sizes: The size of each input vector.
        output_sizes: The size of each output vector.
    """

    @property
    def input_sizes(self) -> Sequence[int]: ...

    @property
    def output_sizes(self) -> Sequence[int]: ...

    async def evaluate(self, inputs: Sequence[Vector], call: Call) -> list[Vector]:
        """Return the output vectors."""
        ...

    async def gradient(self, output: int, by: int, inputs: Sequence[Vector], sensitivity: Vector, call: Call) -> Vector:
        """Return the transpose of the Jacobian of one output by one input, times the sensitivity of the output."""
        ...

    async def apply_jacobian(
        self, output: int, by: int, inputs: Sequence[Vector], direction: Vector, call: Call
    ) -> Vector:
        """Return the Jacobian of one output by one input, times a direction of the input."""
        ...


class Model(Protocol):
    """A model under its name.

    Attributes:
        served: The model of the repository that computes it, for metrics.
    """

    @property
    def served(self) -> str: ...

    @property
    def features(self) -> frozenset[str]:
        """What it supports: some of the four routes of the protocol."""
        ...

    async def configured(self, config: Mapping[str, Any], feature: str) -> Function:
        """Return the function for a configuration.

        Args:
            config: The member `config` of a request.
            feature: What it is needed for.

        Raises:
            Problem: There is no such configuration, or no such model any more.
        """
        ...
