"""The exported models in a model repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def newest_graph(model: Path) -> Path:
    """Return the ONNX graph of a model's newest version.

    Args:
        model: The model's folder in the repository.
    """
    return max(model.glob("[0-9]*/model.onnx"), key=lambda path: int(path.parent.name))
