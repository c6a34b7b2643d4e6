"""The released model of plates: its error on new holes, and the notebook that finds a hole with even stress."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from research.plates import sample
from tests.pipeline.notebooks import MEBIBYTE, ROOT, code, execute, pictures, printed
from training import checkpoint

NOTEBOOK = ROOT / "docs" / "plate.ipynb"
SEED = 2**31  # of no sample of the training
MARGIN = 1.5  # the mean of six plates varies by a fifth


def test_it_keeps_the_error_of_its_card_on_new_holes() -> None:
    released, errors = checkpoint.load(ROOT / "checkpoints" / "plate"), []
    for number in range(6):
        plate = sample(np.random.default_rng([SEED, number]))
        on_edge = np.bincount(plate.cells.ravel()) == 2  # nodes inside belong to four cells
        apart, _ = cKDTree(plate.points[on_edge]).query(plate.points)
        arrays = [plate.points, on_edge, apart, np.zeros(())]
        with torch.inference_mode():
            found = released.operator(*(torch.as_tensor(each, dtype=torch.float32)[None] for each in arrays))
        errors.append(np.linalg.norm(found[0].double().numpy() - plate.stress) / np.linalg.norm(plate.stress))
    assert np.mean(errors) < MARGIN * released.card["errors"][0]["relative_l2"]


@pytest.fixture(scope="module")
def service(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Serve `plate` with its derivative; `make test` has installed them."""
    repository = tmp_path_factory.mktemp("plate") / "model_repository"
    for model in ("plate", "plate_vjp"):
        shutil.copytree(ROOT / "model_repository" / model, repository / model)
    with serve(repository) as running:
        yield running


@pytest.mark.timeout(900)  # about a hundred solves and requests, on a busy machine
def test_the_notebook_finds_a_hole_with_even_stress(service: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    executed = execute(NOTEBOOK, tmp_path_factory.mktemp("executed"), PETROV_URL=service.url)
    text = printed(executed)
    gradient, difference = re.findall(r"gradient (-?[\d.]+), difference (-?[\d.]+)", text)[0]
    assert float(gradient) == pytest.approx(float(difference), rel=0.02)
    spread = {name: float(share) for name, share in re.findall(r"(\w[\w ']*): from .* deviation ([\d.]+)%", text)}
    assert spread["found with the network"] < 0.5 * spread["circle"]
    assert spread["finite elements"] < spread["found with the network"]
    assert pictures(executed) == 2
    stored = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(stored)
    assert [cell.execution_count for cell in code(stored)] == list(range(1, len(code(stored)) + 1))
    number = re.compile(r"[+-]?[\d.]+")  # the text is the same, times and the last digits are not
    assert number.sub("0", printed(stored)) == number.sub("0", text)
    assert NOTEBOOK.stat().st_size < MEBIBYTE
