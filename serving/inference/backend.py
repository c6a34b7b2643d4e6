"""What the gateway needs of inference servers: named batches in, named batches out.

`InferenceBackend` is one server; `serving.triton.client` implements it. `BackendPool` is several of them as one, and
`Availability` receives the news that they or a version have disappeared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

from numpy.typing import NDArray

if TYPE_CHECKING:
    from types import TracebackType

    from serving.catalogue.card import Card

Batch = Mapping[str, NDArray[Any]]
Outputs = dict[str, NDArray[Any]]


class InferenceBackend(Protocol):
    """An inference server; an asynchronous context manager, open while the gateway runs.

    Attributes:
        address: Its address, for log and metrics.
    """

    address: str

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def loaded(self) -> frozenset[tuple[str, int]]:
        """Return every (model, version) that can be run now.

        Raises:
            TritonUnavailable: The server does not respond.
        """
        ...

    async def infer(self, model: str, version: int, inputs: Batch, *, seconds: float, request_id: str = "") -> Outputs:
        """Run a model once.

        Args:
            model: Name of the model.
            version: Its version.
            inputs: Batches `[B, ...]` by the card's names.
            seconds: Time left; afterwards the server may drop the request.
            request_id: For the server's log.

        Returns:
            The outputs by the card's names.

        Raises:
            Failed: One of its kinds, `TritonUnavailable` above all.
        """
        ...


class BackendPool(Protocol):
    """Several inference servers as one.

    Attributes:
        responds: Whether any server responded to the last request.
    """

    @property
    def responds(self) -> bool: ...

    def capacity(self, model: str, version: int) -> int:
        """Return how many concurrent runs of a model keep all of its servers busy."""
        ...

    async def infer(self, model: str, version: int, inputs: Batch, *, seconds: float, request_id: str = "") -> Outputs:
        """Run a model once, as `InferenceBackend.infer` does."""
        ...


class Availability(Protocol):
    """The receiver of the news, between two looks of the catalogue, that servers or versions have disappeared."""

    def lost(self) -> None:
        """Forget every version: no server responds."""
        ...

    def withdraw(self, card: Card) -> None:
        """Forget one version: the server has unloaded it."""
        ...
