"""Small, untrained checkpoints and what is published of them; exports take seconds, so the tests share them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from export.graphs import to_onnx
from export.repository import Publication, publish
from schema.card import CheckpointCard
from schema.problem import GridLimits
from training import checkpoint
from training.data.generate import DataConfig
from training.nn.decoders import SpectralDecoderConfig
from training.operators import build
from training.operators.burgers import BurgersConfig
from training.operators.darcy import DarcyConfig
from training.operators.darcy_inverse import DarcyInverseConfig
from training.operators.grid_transformer import GridTransformerConfig
from training.problems.problem import PROBLEMS
from training.recipe import Fit, Recipe

SMALL = {
    "darcy": DarcyConfig(
        layers=1,
        working=15,
        middle=9,
        tokens=7,
        channels=12,
        stem=6,
        feedforward=16,
        decoder=8,
        modes=4,
        spectral=1,
        heads=2,
        steps=2,
    ),
    "darcy_inverse": DarcyInverseConfig(layers=1, patch=12, channels=12, heads=2, feedforward=16),
    "burgers": BurgersConfig(layers=1, tokens=32, band=12, channels=12, feedforward=16, decoder=8, modes=4, spectral=1),
    "poisson": GridTransformerConfig(
        dimensions=3,
        layers=1,
        channels=12,
        heads=2,
        feedforward=16,
        decoder=SpectralDecoderConfig(channels=8, modes=4, layers=1, hidden=8),
    ),
}
#: Grids that graphs are proven on: the problems' own reach so far that a proof takes longer than an export. Those of
#: the released graphs are proven whole, and `test_graphs.py` has the shapes of all problems.
PLANE = GridLimits(minimum=15, maximum=151, declared=(29, 85))
LIMITS = {"darcy": PLANE, "darcy_inverse": PLANE, "poisson": GridLimits(minimum=8, maximum=33, declared=(9, 17))}
LIMITS["burgers"] = GridLimits(minimum=64, maximum=1024, declared=(512,))
CARD: dict[str, Any] = {
    "training": {"distribution": "none", "fields": 8, "grids": [85], "epochs": 1, "seconds": 1.0, "preset": "tiny"},
    "errors": [{"grid": [85, 85], "fields": 4, "relative_l2": 1.0}],
    "classical": [],
}


@pytest.fixture(scope="session")
def save_checkpoint() -> Callable[[Path, str, int], Path]:
    """Save an untrained operator of a problem, drawn from a seed, as a checkpoint folder."""

    def save(folder: Path, problem: str, seed: int = 0) -> Path:
        torch.manual_seed(seed)
        recipe = Recipe(
            model=problem,
            preset="tiny",
            problem=problem,
            data=DataConfig(mesh=421, train=8, validation=4, test=4, grids=(85,)),
            operator=SMALL[problem],
            fit=Fit(epochs=1, batch=2, learning_rate=1e-3),
            formats=("onnx", "torchscript"),
        )
        known = PROBLEMS[problem]
        limits = {"grid": LIMITS.get(problem, known.description.grid)}
        narrow = replace(known, description=known.description.model_copy(update=limits))
        checkpoint.save(folder, build(SMALL[problem]), recipe, narrow, CheckpointCard.model_validate(CARD))
        return folder

    return save


@pytest.fixture(scope="session")
def checkpoints(
    tmp_path_factory: pytest.TempPathFactory, save_checkpoint: Callable[[Path, str, int], Path]
) -> dict[str, Path]:
    """One checkpoint folder for each problem."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return {problem: save_checkpoint(folder / problem, problem, 0) for problem in SMALL}


@pytest.fixture(scope="session")
def published(
    tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Path]
) -> tuple[Path, dict[str, Publication]]:
    """Return a repository with a plane and a line in both formats, and the publications; copy it before a change."""
    repository = tmp_path_factory.mktemp("published") / "model_repository"
    done = [one for model in ("darcy", "burgers") for one in publish(checkpoints[model], repository)]
    return repository, {one.model: one for one in done}


@pytest.fixture(scope="session")
def all_published(
    published: tuple[Path, dict[str, Publication]],
    tmp_path_factory: pytest.TempPathFactory,
    checkpoints: dict[str, Path],
) -> tuple[Path, dict[str, Publication]]:
    """Return a repository with all checkpoints, as the deep suite alone does: it takes three times as long."""
    repository = Path(shutil.copytree(published[0], tmp_path_factory.mktemp("all_published") / "model_repository"))
    done = [one for model in ("darcy_inverse", "poisson") for one in publish(checkpoints[model], repository)]
    return repository, published[1] | {one.model: one for one in done}


@pytest.fixture
def already_traced(published: tuple[Path, dict[str, Publication]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let exports of `burgers` write the graph that is published, instead of tracing the network again."""
    graph = (published[0] / "burgers" / "1" / to_onnx.FILE).read_bytes()
    monkeypatch.setattr(to_onnx, "graph_of", lambda *_: graph)
