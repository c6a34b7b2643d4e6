"""The one seam to Triton: named batches in, named batches out.

`Inference` is all that the gateway knows of an inference server; `serving.triton.client` speaks to a real one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

from numpy.typing import NDArray

if TYPE_CHECKING:
    from types import TracebackType

Batch = Mapping[str, NDArray[Any]]


class Inference(Protocol):
    """An inference server; an asynchronous context manager, open while the gateway runs.

    Attributes:
        address: Where it is, for people and metrics.
    """

    address: str

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def loaded(self) -> frozenset[tuple[str, int]]:
        """Every (model, version) that can be asked now.

        Raises:
            TritonUnavailable: The server does not answer.
        """
        ...

    async def infer(
        self, model: str, version: int, inputs: Batch, *, seconds: float, request_id: str = ""
    ) -> dict[str, NDArray[Any]]:
        """One call of a model.

        Args:
            model: Name of the model.
            version: Which of its versions.
            inputs: Batches `[B, ...]`, by the names of the card.
            seconds: Time left; afterwards the server may drop the request.
            request_id: For the server's log.

        Returns:
            The outputs by the names of the card.

        Raises:
            Failed: One of its kinds, `TritonUnavailable` above all.
        """
        ...
