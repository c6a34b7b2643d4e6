"""Two forward models for the same posterior: the exported network, and the finite volumes with their exact adjoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.repository import newest_graph
from physics.adjoint import Linearised

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
        import onnxruntime  # noqa: PLC0415 - slow to import

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        names = {"solve": model, "pull": f"{model}_vjp", "push": f"{model}_jvp"}
        self._graphs = {
            kind: onnxruntime.InferenceSession(newest_graph(repository / name), options) for kind, name in names.items()
        }

    def solve(self, inputs: Fields) -> Fields:
        """Return the pressures of permeabilities [batch, rows, columns]."""
        [pressure] = self._run("solve", ["solution"], inputs, {})
        return pressure

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

    def _run(self, kind: str, names: list[str], inputs: Fields, vectors: dict[str, Fields]) -> list[Any]:
        arrays = {"coefficient": inputs, "source": np.ones_like(inputs), **vectors}
        return self._graphs[kind].run(
            names, {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
        )


class FiniteVolumes:
    """The finite volumes; the factors of the last permeability are kept, so its Jacobian costs substitutions only."""

    def __init__(self) -> None:
        self._at: tuple[bytes, Linearised] | None = None

    def solve(self, inputs: Fields) -> Fields:
        """Return the pressures of permeabilities [batch, rows, columns]."""
        return np.stack([self._factors(field).solution for field in inputs])

    def pull(self, inputs: Fields, cotangents: Fields) -> tuple[Fields, Fields]:
        """Return the pressures, and the gradients of their inner products with the cotangents; the inputs are equal."""
        flow = self._factors(inputs[0])
        return np.broadcast_to(flow.solution, inputs.shape), flow.pull(cotangents)

    def push(self, inputs: Fields, tangents: Fields) -> tuple[Fields, Fields]:
        """Return the pressures, and their derivatives along the tangents; the inputs are equal."""
        flow = self._factors(inputs[0])
        return np.broadcast_to(flow.solution, inputs.shape), flow.push(tangents)

    def _factors(self, field: Fields) -> Linearised:
        key = field.tobytes()
        if self._at is None or self._at[0] != key:
            self._at = key, Linearised(field)
        return self._at[1]
