"""Cases of the reference, laid out as a user has them, and how outputs are compared with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from research.importing.files import ReferenceImportError
from research.importing.reference import Example, Request, import_reference

Golden = Callable[[str], Any]

FLOAT64, FLOAT32 = 1e-10, 2e-5
"""Tolerances of `distance`. In float32 weights and statistics are rounded once, and sums have any order."""
MEAN, STD = 7.5, 4.5
"""Statistics of the input: the golden networks received standardised inputs, ours receives physical ones."""


def example_of(name: str) -> Example:
    return "burgers" if name.startswith("simple") else "darcy_inverse" if name.endswith("inverse") else "darcy"


def write(folder: Path, case: Any, example: Example) -> Request:
    """Write the state dict, the constructor's arguments and the statistics of a case."""
    file, config, normaliser = folder / "reference.pt", folder / "config.json", folder / "normaliser.npz"
    torch.save(case.state, file)
    config.write_text(json.dumps(case.config))
    if example == "burgers":
        return Request(file, example, config)
    np.savez(normaliser, **arrays(case))
    return Request(file, example, config, normaliser)


def arrays(case: Any) -> dict[str, Any]:
    """Return the statistics of a case; where it has none of the output, they are the identity."""
    field, shape = (case.inputs["node"].shape[1:], case.outputs["preds"].shape[1:])
    output = {name: case.arrays.get(f"normalizer/{name}") for name in ("mean", "std", "eps")}
    if output["mean"] is None:
        output = {"mean": np.zeros(shape), "std": np.ones(shape), "eps": 0.0}
    given = {"input_mean": np.full(field, MEAN), "input_std": np.full(field, STD), "input_eps": 1e-5}
    return given | {name: np.asarray(value) for name, value in output.items()}


def physical_input(case: Any, example: Example) -> Tensor:
    node = case.inputs["node"][..., 0]
    return node if example == "burgers" else node * (STD + 1e-5) + MEAN


def expected(case: Any) -> Tensor:
    preds = case.outputs["preds"][..., 0]
    return preds - case.inputs["boundary_value"][..., 0] if "boundary_value" in case.inputs else preds


def distance(output: Any, truth: Tensor) -> float:
    """Return the largest error as a share of the largest entry."""
    found = torch.tensor(output.tolist(), dtype=torch.float64)
    assert found.shape == truth.shape
    return float((found - truth).abs().max() / truth.abs().max())


def flat_statistics(path: Path, grid: int, output: int) -> Path:
    names = ("input_mean", "input_std", "mean", "std")
    fields = {name: np.ones((grid if "input" in name else output,) * 2) for name in names}
    np.savez(path, **fields, eps=1e-5, input_eps=1e-5)
    return path


def case_file(golden: Golden, folder: Path, name: str = "fourier_transformer_2d_darcy") -> tuple[Any, Request]:
    case = golden(name)
    return case, write(folder, case, example_of(name))


def refused(request: Request, message: str) -> None:
    with pytest.raises(ReferenceImportError, match=message) as error:
        import_reference(request)
    assert "\n" not in str(error.value)
