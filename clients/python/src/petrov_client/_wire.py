"""What the clients ask of a wire format: calls as values, so that only the line that sends one is sync or async.

A `Call` is a request in the transport's own terms and a function that reads its reply. A `Flow` is a generator that
yields calls, is sent what they read, and returns the result; whoever drives it does the input and output.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from petrov_client._arrays import Fields
    from petrov_client._models import ModelInfo

T = TypeVar("T")
Flow = Generator["Call[Any]", Any, T]


@dataclass(frozen=True)
class Call(Generic[T]):
    """One exchange with the service.

    Attributes:
        request: What the transport sends.
        read: The transport's reply in, the result out; raises a `PetrovError` for a reply that tells of a fault.
    """

    request: Any
    read: Callable[[Any], T]


class Wire(Protocol):
    """A wire format: how to ask for the names of models, for one model and for a prediction."""

    def names(self) -> Call[list[str]]:
        """The names of all models that answer now."""
        ...

    def model(self, name: str, version: int | None) -> Flow[ModelInfo]:
        """One model; `version` picks the description where the service keeps one for each."""
        ...

    def prediction(self, info: ModelInfo, version: int | None, fields: Fields) -> Call[Fields]:
        """The solutions of one piece of a batch."""
        ...
