"""The released graphs of rollouts: novelty of the first state, and products that are each other's adjoint."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from export.graphs import to_onnx
from export.triton_config import CERTIFICATE

pytestmark = pytest.mark.timeout(900)  # large graphs are read and optimised, on a busy machine
CHECKPOINTS = Path(__file__).parents[2] / "checkpoints"
MODELS = {"kuramoto_sivashinsky": (48,), "navier_stokes": (16, 20)}
FRAMES = 16


def drawn(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def published(model: str, product: str = "") -> Path:
    return CHECKPOINTS / model / "published" / f"{model}{product}"


def examples(model: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return states of a test trajectory, and its parameter for each."""
    arrays = load_file(CHECKPOINTS / model / "examples.safetensors")
    initial = arrays.pop("initial")
    frames = next(array[0] for array in arrays.values() if array.ndim > initial.ndim)
    parameter = next(array[0] for array in arrays.values() if array.ndim == 1)
    return frames, np.full(len(frames), parameter, np.float32)


@pytest.mark.parametrize("model", MODELS)
def test_states_of_test_trajectories_are_inside_and_foreign_ones_outside(model: str) -> None:
    run, _ = to_onnx.read(published(model) / to_onnx.FILE)
    start, parameter = examples(model)
    frame = np.zeros((len(start), 1), np.int32)
    foreign = (drawn(*start.shape), 10 * start, 0 * start, start + 3)
    assert np.median(run(start, parameter, frame)[-1]) > 0.05
    for states in foreign:
        assert (run(states, parameter, frame)[-1] < 0.01).all()


@pytest.mark.deep
@pytest.mark.parametrize(("model", "grid"), MODELS.items())
def test_the_products_of_sixteen_frames_are_adjoint(model: str, grid: tuple[int, ...]) -> None:
    pull, push = (to_onnx.read(published(model, product) / to_onnx.FILE)[0] for product in ("_vjp", "_jvp"))
    parameter, frame = examples(model)[1][:2], np.zeros((2, FRAMES), np.int32)
    start, along, cotangent = drawn(2, *grid), drawn(2, *grid, seed=1), drawn(2, FRAMES, *grid, seed=2)
    change = parameter * drawn(2, seed=3)
    outputs, by_state, by_parameter = pull(start, cotangent, parameter, frame)
    same, tangent = push(start, along, parameter, change, frame)
    np.testing.assert_allclose(same, outputs, rtol=1e-3, atol=1e-3)
    gained = (along * by_state).sum() + (change * by_parameter[:, 0]).sum()
    scale = np.linalg.norm(tangent) * np.linalg.norm(cotangent)
    assert abs((tangent * cotangent).sum() - gained) < 1e-5 * scale


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("product", ["_vjp", "_jvp"])
def test_the_certificate_compares_sixteen_frames_and_central_differences(model: str, product: str) -> None:
    certificate = json.loads((published(model, product) / CERTIFICATE).read_text())
    assert FRAMES in {one["frames"] for one in certificate["comparisons"]}
    assert certificate["central_difference"] < 1e-6
