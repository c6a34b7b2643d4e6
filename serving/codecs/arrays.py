"""Arrays in memory as an exchange, for routes whose own wire format is neither a body of `/v1` nor one of `/v2`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from serving.codecs.names import check_names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from serving.quality import Quality


@dataclass(frozen=True)
class Arrays:
    """Inputs by name, and the writer of outputs by name: an `Exchange` of `serving.predict`.

    A derivative is computed by

        card = service.catalogue.derivative("darcy", "vjp").card
        arrays = Arrays({"coefficient": coefficient, "cotangents.solution": cotangent})
        outputs = await service.predictor.predict(Prediction(card, request_id, caller), arrays)

    and `outputs` holds `solution`, `gradients.coefficient` and `gradients.source`. Concurrent calls of one shape run
    together, whichever routes they come from.

    Attributes:
        inputs: Single samples or batches.
    """

    inputs: Mapping[str, NDArray[Any]]
    frames: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the inputs."""
        return sum(array.nbytes for array in self.inputs.values())

    def read(self, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the inputs.

        Raises:
            WrongInput: One is missing, or the model does not have one.
        """
        del max_bytes  # what made the arrays has bounded them
        check_names(self.inputs, names, optional)
        return dict(self.inputs)

    def write(
        self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]], quality: Quality
    ) -> Mapping[str, NDArray[np.float32]]:
        """Return the outputs."""
        del model, version, quality
        return outputs
