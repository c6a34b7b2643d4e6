"""Statistics and errors of imported networks are computed from samples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from physics.numerics.grid import block_mean
from research.cao2021.transformers import PlaneTransformer
from research.importing.reference import import_reference
from tests.research.importing.reference_cases import (
    Golden,
    case_file,
    refused,
)
from training.data.generate import Block, Store, fill, opened
from training.data.pools import ThisProcess
from training.nn.pointwise import EPSILON
from training.problems.problem import Array


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen random fields on a mesh of 85 points, as Darcy samples."""
    path, rng = tmp_path_factory.mktemp("samples") / "darcy.h5", np.random.default_rng(0)

    def fields(block: Block) -> dict[str, Array]:
        found = 1 + rng.random((2, block.stop, 85, 85), dtype=np.float32)
        return {"coefficient": found[0], "solution": found[1]}

    counts = {"train": 12, "test": 4}
    store = Store("fields", path, counts, {"problem": "darcy", "mesh": 85, "provenance": "test"})
    blocks = [Block(stream, 0, count) for stream, count in counts.items()]
    fill(store, blocks, fields, ThisProcess(), progress=False)
    return path


def fields_of(path: Path, name: str) -> Any:
    with opened(path) as file:
        return file["train"][name][:].astype(float)


def test_samples_give_the_statistics_and_the_error(samples: Path, golden: Golden, tmp_path: Path) -> None:
    case, request = case_file(golden, tmp_path)
    found = import_reference(replace(request, normaliser=None, data=samples))
    assert isinstance(found.operator, PlaneTransformer)
    for normaliser, name in (
        (found.operator.input_normaliser, "coefficient"),
        (found.operator.output_normaliser, "solution"),
    ):
        strided = fields_of(samples, name)[:, ::3, ::3]
        np.testing.assert_allclose(normaliser.mean, strided.mean(0), rtol=1e-6)
        np.testing.assert_allclose(normaliser.deviation, strided.std(0) + EPSILON, rtol=1e-6)
    ((error,), (baseline,)) = found.card.errors, found.card.classical
    assert (error["grid"], error["fields"], baseline["grid"]) == ([29, 29], 4, [29, 29])
    assert request.config is not None
    sizes = {"downscaler_size": None, "upscaler_size": None, "subsample_attn": 30}
    request.config.write_text(json.dumps(case.config | sizes))
    refused(replace(request, data=samples, normaliser=None, grid=30), "cannot stride 85 points")


def test_samples_give_the_statistics_of_the_inverse_problem(samples: Path, golden: Golden, tmp_path: Path) -> None:
    _, request = case_file(golden, tmp_path, "fourier_transformer_2d_inverse")
    found = import_reference(replace(request, normaliser=None, data=samples, grid=29))
    assert isinstance(found.operator, PlaneTransformer)
    pooled = block_mean(block_mean(fields_of(samples, "coefficient"), (29, 29)), (8, 8))
    np.testing.assert_allclose(found.operator.output_normaliser.mean, pooled.mean(0), rtol=1e-6)
    strided = fields_of(samples, "solution")[:, ::3, ::3]
    np.testing.assert_allclose(found.operator.input_normaliser.mean, strided.mean(0), rtol=1e-6)
    assert (found.card.errors[0]["grid"], found.card.classical) == ([29, 29], ())
    assert found.problem.description.output_grid == (8, 8)
