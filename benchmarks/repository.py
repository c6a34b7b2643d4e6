"""The exported models in a model repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def newest_graph(model: Path) -> Path:
    """Return the ONNX graph of a model's newest version.

    Args:
        model: The model's folder in the repository.
    """
    return max(model.glob("[0-9]*/model.onnx"), key=lambda path: int(path.parent.name))


def feed(session: Any, fields: NDArray[Any]) -> dict[str, NDArray[np.float32]]:
    """Return the inputs of an opened graph: the fields, and ones for inputs with the default 1.

    Args:
        session: The graph in ONNX Runtime.
        fields: A batch of its first input.
    """
    first, *others = (tensor.name for tensor in session.get_inputs())
    sent = np.asarray(fields, dtype=np.float32)
    return {first: sent} | {name: np.ones_like(sent) for name in others}
