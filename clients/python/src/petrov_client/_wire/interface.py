"""The interface of a wire format. Calls are values, so that only the statement that sends one is sync or async.

A `Call` is a request for the transport and a function that reads its reply. A `Flow` is a generator that yields calls,
receives their results, and returns its own; the client that iterates over it performs the input and output.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from petrov_client._values.quality import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from petrov_client._values.models import ModelInfo
    from petrov_client._values.quality import Response

    Arrays = Mapping[str, npt.NDArray[Any]]

T = TypeVar("T")
PLAIN = Options()
Flow = Generator["Call[Any]", Any, T]


@dataclass(frozen=True)
class Call(Generic[T]):
    """One exchange with the service.

    Attributes:
        request: What the transport sends.
        read: Convert the transport's reply to the result, or raise a `PetrovError` for a reply that reports a fault.
    """

    request: Any
    read: Callable[[Any], T]


class Wire(Protocol):
    """A wire format: the calls for the names of models, for one model and for a prediction."""

    def names(self) -> Call[list[str]]:
        """Return the call for the names of all models that are ready."""
        ...

    def model(self, name: str, version: int | None) -> Flow[ModelInfo]:
        """Yield the calls for one model; `version` selects a description where the service has one per version."""
        ...

    def rollout(self, info: ModelInfo, version: int | None, inputs: Arrays, options: Options) -> Call[Response]:
        """Return the call for the frames that follow; it reads each of the replies, which are frames.

        Args:
            info: A model of trajectories.
            version: A version of it; the newest if None.
            inputs: Inputs `[batch, …]` and parameters `[batch]` by name.
            options: How many frames, and what is wanted besides.
        """
        ...

    def prediction(
        self, info: ModelInfo, version: int | None, inputs: Arrays, options: Options = PLAIN
    ) -> Call[Response]:
        """Return the call for the outputs of one piece of a batch.

        Args:
            info: The model.
            version: A version of it; the newest if None.
            inputs: Inputs `[batch, …]` and parameters `[batch]` by name.
            options: What is wanted besides the outputs.
        """
        ...
