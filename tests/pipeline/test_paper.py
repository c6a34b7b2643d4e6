"""Run the notebook about the paper's networks against a service: their errors are those of their cards."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest

from tests.pipeline.notebooks import ROOT, code, execute, pictures, printed

NOTEBOOK = ROOT / "docs" / "paper.ipynb"


@pytest.fixture(scope="module")
def service(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Serve the released models that the notebook uses; `make test` has installed them."""
    repository = tmp_path_factory.mktemp("paper") / "model_repository"
    for model in ("burgers_galerkin", "darcy_galerkin", "darcy_inverse_galerkin", "darcy_inverse"):
        shutil.copytree(ROOT / "model_repository" / model, repository / model)
    with serve(repository) as running:
        yield running


def test_the_errors_are_those_of_the_cards_and_of_the_stored_run(
    service: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    executed = execute(NOTEBOOK, tmp_path_factory.mktemp("executed"), PETROV_URL=service.url)
    text, stored = printed(executed), nbformat.read(NOTEBOOK, as_version=4)
    errors = [float(found) for found in re.findall(r"points: network (\S+) ", text)]
    assert len(errors) == 6
    assert max(errors[:3]) < 1.3 * 9.3e-3  # eight fields
    assert max(errors[3:]) < 1.3 * 1.3e-3
    inverse = dict(re.findall(r"(darcy_inverse\w*): (\S+) ", text))
    assert float(inverse["darcy_inverse_galerkin"]) < 1.3 * 3.5e-2
    assert float(inverse["darcy_inverse"]) < 1.3 * 1.5e-2
    assert errors == pytest.approx(
        [float(found) for found in re.findall(r"points: network (\S+) ", printed(stored))], rel=0.01
    )
    assert pictures(stored) == pictures(executed) == 2
    assert [cell.execution_count for cell in code(stored)] == list(range(1, len(code(stored)) + 1))
