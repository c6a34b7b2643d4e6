"""The exported models in a model repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from onnxruntime import InferenceSession

DEFAULTS = {"viscosity": 0.01, "noise": -1.0}
"""Parameters of released models whose default is not 1."""


def newest_graph(model: Path) -> Path:
    """Return the ONNX graph of a model's newest version.

    Args:
        model: The model's folder in the repository.
    """
    return max(model.glob("[0-9]*/model.onnx"), key=lambda path: int(path.parent.name))


def one_thread(graph: Path | bytes) -> InferenceSession:
    """Open a graph in ONNX Runtime on one thread.

    Args:
        graph: Its file, or its bytes.
    """
    import onnxruntime  # noqa: PLC0415 - slow to import

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def feed(session: Any, fields: NDArray[Any]) -> dict[str, NDArray[np.float32]]:
    """Return the inputs of an opened graph: the fields, ones for further fields, and `DEFAULTS` for parameters.

    A further field has the first one's grid where the graph does not fix it.

    Args:
        session: The graph in ONNX Runtime.
        fields: A batch of its first input.
    """
    first, *others = session.get_inputs()
    sent = np.asarray(fields, dtype=np.float32)
    filled = {each.name: sizes(each.shape, sent.shape) for each in others}
    return {first.name: sent} | {
        name: np.full(shape, DEFAULTS.get(name, 1.0), np.float32) for name, shape in filled.items()
    }


def sizes(declared: Sequence[int | str | None], like: tuple[int, ...]) -> tuple[int, ...]:
    """Return a tensor's shape: the sizes that a graph fixes, and for the others those of another tensor."""
    return tuple(size if isinstance(size, int) else other for size, other in zip(declared, like, strict=False))
