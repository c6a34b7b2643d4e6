"""The inverse problem's samples: the same file, coefficients averaged over blocks, pressures measured with noise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from physics.numerics.grid import block_edges, block_mean, common_grid
from training import recipes
from training.data.augment import add_noise, noisy
from training.data.generate import DataConfig, Request, prepare
from training.data.pools import LocalPool
from training.data.views import Samples, read
from training.fit.operator_workload import OperatorWorkload
from training.losses import Batch
from training.nn.pointwise import Normaliser
from training.problems.problem import PROBLEMS

EPS = 1e-5  # what the reference adds to a deviation
LEGACY_SEED = 1127802
NOISE = ("fit.noise=[0.1]", "fit.symmetries=false")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    request = Request(PROBLEMS["darcy_inverse"], mesh=421, train=3, test=1, seed=5)
    return prepare(request, tmp_path_factory.mktemp("inverse"), LocalPool(2), progress=False)


@pytest.mark.parametrize(("name", "side"), [("pool2", 7), ("pool3", 5), ("pool4", 4)])
def test_block_means_are_the_published_pooling(golden: Callable[[str], Any], name: str, side: int) -> None:
    case = golden("data_helpers")
    found = block_mean(case.inputs["x"].numpy(), (side, side))
    np.testing.assert_allclose(found, case.outputs[name].numpy(), rtol=1e-10)


def test_means_of_means_are_the_published_targets(golden: Callable[[str], Any]) -> None:
    case = golden("darcy_dataset_inverse")
    middle = block_mean(case.inputs["train_coeff"].numpy(), (21, 21))
    np.testing.assert_allclose(middle, case.outputs["train_coeff"][..., 0].numpy(), rtol=1e-6)
    target = block_mean(middle, (11, 11))
    np.testing.assert_allclose(target, case.outputs["train_target"][..., 0].numpy(), rtol=1e-6)
    np.testing.assert_allclose(target.mean(axis=0), case.outputs["norm_y_mean"][..., 0].numpy(), rtol=1e-10)
    np.testing.assert_allclose(target.std(axis=0), case.outputs["norm_y_std"][..., 0].numpy(), rtol=1e-10)


def test_statistics_by_point_are_the_published_ones(golden: Callable[[str], Any]) -> None:
    case = golden("darcy_dataset_inverse")
    pressure = case.inputs["train_sol"][:, ::3, ::3]
    normaliser = Normaliser((21, 21)).double()
    normaliser.fit(pressure)
    torch.testing.assert_close(normaliser.mean, case.outputs["norm_x_mean"][..., 0], rtol=1e-10, atol=0)
    deviation = torch.from_numpy(samples_of(pressure).deviation).double()
    torch.testing.assert_close(deviation, case.outputs["norm_x_std"][..., 0], rtol=1e-5, atol=1e-12)


def test_noise_is_the_published_one(golden: Callable[[str], Any]) -> None:
    case = golden("darcy_dataset_inverse_noise")
    pressure = case.inputs["train_sol"][:, ::3, ::3].numpy()
    mean, deviation = (case.outputs[f"norm_x_{name}"][..., 0].numpy() for name in ("mean", "std"))
    normals = np.random.RandomState(LEGACY_SEED).standard_normal((*pressure.shape, 1))[..., 0]
    noisy = add_noise(pressure, np.full(len(pressure), case.config["noise"]), deviation + EPS, normals)
    standardised = (noisy - mean) / (deviation + EPS)
    np.testing.assert_allclose(standardised, case.outputs["train_node"][..., 0].numpy(), rtol=1e-5, atol=1e-6)


def samples_of(inputs: torch.Tensor) -> Samples:
    return Samples(dict.fromkeys(("coefficient", "solution"), inputs.float().numpy()), PROBLEMS["darcy"], "golden")


def test_blocks_share_their_overhang() -> None:
    assert block_edges(141, 36)[[0, 1, 2, -1]].tolist() == [0, 3, 7, 141]
    assert common_grid((36, 36)) == (141, 141)
    with pytest.raises(ValueError, match="cannot average 85 points over 36 blocks of 3"):
        block_edges(85, 36)


def test_one_file_serves_both_problems(stored: Path) -> None:
    assert stored.name.startswith("darcy-421-")
    forward, inverse = (read(stored, "train", 3, 421, problem=PROBLEMS[name]) for name in ("darcy", "darcy_inverse"))
    np.testing.assert_array_equal(inverse.inputs, forward.outputs)
    assert inverse.outputs.shape == (3, 141, 141)
    assert inverse.targets.shape == (3, 36, 36)
    np.testing.assert_allclose(inverse.targets[:, 1, 2], forward.inputs[:, 8:20, 20:32].mean(axis=(1, 2)), rtol=1e-6)
    with pytest.raises(ValueError, match=r"expected samples of burgers but .* holds those of darcy"):
        read(stored, "train", 1, 85, problem=PROBLEMS["burgers"])


def test_the_output_is_the_same_for_every_grid_of_the_input(stored: Path) -> None:
    expected = read(stored, "train", 3, 141, problem=PROBLEMS["darcy_inverse"])
    for points in (85, (141, 211)):
        found = read(stored, "train", 3, points, problem=PROBLEMS["darcy_inverse"])
        np.testing.assert_array_equal(found.targets, expected.targets)
    assert found.inputs.shape == (3, 141, 211)
    np.testing.assert_array_equal(found.inputs[:, :, ::3], expected.inputs[:, :, ::2])


def drawn(stored: Path, seed: int, *fit: str) -> Batch:
    """Draw a batch of all training samples on 141 x 141 points."""
    recipe = recipes.read_fields(recipes.find("darcy_inverse-tiny"), ["fit.noise=[]", *fit])
    data = DataConfig(mesh=421, train=3, validation=0, test=1, grids=(141,), seed=5)
    work = OperatorWorkload(recipe.model_copy(update={"data": data}), stored.parent, progress=False)
    return work.draw(np.arange(3), np.random.default_rng(seed), 0.0)


def test_a_batch_is_moved_on_the_common_grid_and_then_averaged(stored: Path) -> None:
    samples = read(stored, "train", 3, 141, problem=PROBLEMS["darcy_inverse"])
    batch = drawn(stored, 1)
    for pressure, coefficient in zip(batch.inputs[0].numpy(), batch.outputs[0].numpy(), strict=True):
        moved = [(samples.inputs, samples.outputs)]
        moved += [tuple(np.swapaxes(field, 1, 2) for field in moved[0])]
        moved = [tuple(np.flip(field, 1) for field in pair) for pair in moved] + moved
        moved = [tuple(np.flip(field, 2) for field in pair) for pair in moved] + moved
        [found] = [b for u, a in moved for i, b in enumerate(block_mean(a, (36, 36))) if (u[i] == pressure).all()]
        np.testing.assert_array_equal(found, coefficient)


def test_noise_depends_on_the_random_stream_alone(stored: Path) -> None:
    first, again, other = (drawn(stored, seed, *NOISE) for seed in (1, 1, 2))
    assert torch.equal(first.inputs[0], again.inputs[0])
    assert not torch.equal(first.inputs[0], other.inputs[0])
    assert torch.equal(first.outputs[0], other.outputs[0])


def test_a_batch_says_how_large_its_noise_is(stored: Path) -> None:
    samples = read(stored, "train", 3, 141, problem=PROBLEMS["darcy_inverse"])
    batch = drawn(stored, 0, *NOISE)
    assert batch.noise is not None
    added = batch.inputs[0].numpy() - samples.inputs
    np.testing.assert_allclose(batch.noise, np.sqrt(np.square(added).mean(axis=(1, 2))), rtol=0.05)


def test_every_sample_has_a_level_of_its_own() -> None:
    quiet, deviation = np.zeros((200, 40, 40), np.float32), np.full((40, 40), 2, np.float32)
    found = noisy(quiet, deviation, (0.0, 0.01, 0.1), np.random.default_rng(0))
    levels = found.std(axis=(1, 2)) / 2
    assert {round(level, 2) for level in levels.tolist()} == {0.0, 0.01, 0.1}
