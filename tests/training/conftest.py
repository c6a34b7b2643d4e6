"""What the stage's tests may stand on: the golden vectors, computed in float64 by the reference implementation."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

GOLDEN = Path(__file__).parents[1] / "golden"


@dataclass(frozen=True)
class Golden:
    """One case: how it was built, what went in, what came out; every tensor as stored, float64 as a rule."""

    config: dict[str, Any]  # the constructor's arguments, in the reference's words
    state: dict[str, Tensor]  # parameters and buffers, under the reference's names
    inputs: dict[str, Tensor]  # `cotangent` among them: gradients are those of sum(output * cotangent)
    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor]  # of inputs by name, and of parameters as `state/<name>`
    arrays: dict[str, Tensor]  # whatever else the file holds, under its full key


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    """Gives the golden case of a name, such as `attention_galerkin_pos1`."""

    def read(name: str) -> Golden:
        with np.load(GOLDEN / f"{name}.npz") as file:
            config = json.loads(str(file["config"])) if "config" in file else {}
            tensors = {key: torch.from_numpy(file[key]) for key in file.files if file[key].dtype.kind in "fiub"}
        parts = {part: _under(f"{part}/", tensors) for part in ("state", "in", "out", "grad")}
        rest = {key: tensor for key, tensor in tensors.items() if key.partition("/")[0] not in parts}
        return Golden(config, *parts.values(), rest)

    return read


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
