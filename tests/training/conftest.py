"""Fixtures of the tests of training: the golden vectors, computed in float64 by the reference implementation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from torch import Tensor

GOLDEN = Path(__file__).parents[1] / "golden"


@dataclass(frozen=True)
class Golden:
    """One case: the constructor's arguments, the inputs and the outputs. Tensors are as stored, usually in float64."""

    config: dict[str, Any]  # the constructor's arguments, under the reference's names
    state: dict[str, Tensor]  # parameters and buffers, under the reference's names
    inputs: dict[str, Tensor]  # `cotangent` among them: gradients are those of sum(output * cotangent)
    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor]  # of inputs by name, and of parameters as `state/<name>`
    arrays: dict[str, Tensor]  # all other arrays of the file, under their full keys


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    """Return a function that reads the golden case of a name, such as `attention_galerkin_pos1`."""

    def read(name: str) -> Golden:
        with np.load(GOLDEN / f"{name}.npz") as file:
            config = json.loads(str(file["config"])) if "config" in file else {}
            tensors = {key: torch.from_numpy(file[key]) for key in file.files if file[key].dtype.kind in "fiub"}
        parts = {part: _under(f"{part}/", tensors) for part in ("state", "in", "out", "grad")}
        rest = {key: tensor for key, tensor in tensors.items() if key.partition("/")[0] not in parts}
        return Golden(config, *parts.values(), rest)

    return read


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Leave out the checks of annotations, which there are while tests run alone."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)  # noqa: FBT003 -- its signature
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
