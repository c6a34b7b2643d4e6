"""The exported network as a forward model, called without a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.repository import newest_graph, one_thread

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Fields = NDArray[np.float64]


class Network:
    """The graphs of `darcy` and its derivatives, as they are served, in ONNX Runtime on one thread.

    Args:
        repository: Exported models.
        model: The model's name.
    """

    def __init__(self, repository: Path, model: str = "darcy") -> None:
        names = {"solve": model, "pull": f"{model}_vjp", "push": f"{model}_jvp"}
        self._graphs = {kind: one_thread(newest_graph(repository / name)) for kind, name in names.items()}

    def solve(self, inputs: Fields) -> Fields:
        """Return the pressures of permeabilities [batch, rows, columns]."""
        return self._run("solve", ["solution"], inputs, {})[0]

    def pull(self, inputs: Fields, cotangents: Fields) -> tuple[Fields, Fields]:
        """Return the pressures, and the gradients of their inner products with the cotangents."""
        vectors = {"cotangents.solution": cotangents}
        pressure, gradients = self._run("pull", ["solution", "gradients.coefficient"], inputs, vectors)
        return pressure, gradients

    def push(self, inputs: Fields, tangents: Fields) -> tuple[Fields, Fields]:
        """Return the pressures, and their derivatives along the tangents."""
        vectors = {"tangents.coefficient": tangents, "tangents.source": np.zeros_like(inputs)}
        pressure, derivatives = self._run("push", ["solution", "tangents.solution"], inputs, vectors)
        return pressure, derivatives

    def _run(self, kind: str, names: list[str], inputs: Fields, vectors: dict[str, Fields]) -> list[Fields]:
        arrays = {"coefficient": inputs, "source": np.ones_like(inputs), **vectors}
        sent = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
        return [np.asarray(found, dtype=np.float64) for found in self._graphs[kind].run(names, sent)]
