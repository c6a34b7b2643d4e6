"""An input of a model from the service: a stored test sample with its truth, or a new sample of the distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from petrov_client._values.exceptions import InvalidResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt


@dataclass(frozen=True)
class Example:
    """One sample, without a batch axis.

    Attributes:
        inputs: Inputs and parameters by name, as `predict` takes them: float32, or int32 for tokens.
        outputs: The true outputs by name; empty where they are not known.
        count: How many test samples are stored; None for a new sample.
    """

    inputs: Mapping[str, npt.NDArray[Any]]
    outputs: Mapping[str, npt.NDArray[Any]]
    count: int | None = None


def query(index: int | None, seed: int | None, grid: int | None) -> dict[str, int]:
    """Return the query of the request: what the caller passed.

    Raises:
        ValueError: A stored sample and a new one are requested at once.
    """
    if index is not None and (seed is not None or grid is not None):
        raise ValueError("expected the index of a stored sample, or seed and grid of a new one, but got both")
    return {name: value for name, value in (("index", index), ("seed", seed), ("grid", grid)) if value is not None}


def example(document: Any, count: str | None) -> Example:
    """Return the sample of the gateway's JSON.

    Args:
        document: The body of the response.
        count: The header that counts the stored samples, None without it.

    Raises:
        InvalidResponse: The body holds no sample.
    """
    try:
        inputs, outputs = document["inputs"], document.get("outputs") or {}
        return Example(_arrays(inputs), _arrays(outputs), None if count is None else int(count))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidResponse(f"the sample of a model is not readable: {error!r}") from error


def _arrays(named: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    arrays = {name: np.asarray(nested) for name, nested in named.items()}
    return {name: array.astype({"i": np.int32, "f": np.float32}[array.dtype.kind]) for name, array in arrays.items()}
