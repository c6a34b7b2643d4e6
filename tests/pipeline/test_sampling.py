"""Run the notebook about sampling with short chains against a service, and check what it prints."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest

from tests.pipeline.notebooks import MEBIBYTE, ROOT, code, execute, pictures, printed

NOTEBOOK = ROOT / "docs" / "sampling.ipynb"
STEPS = "3"


@pytest.fixture(scope="module")
def service(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Serve `darcy` with its derivatives; `make test` has installed them."""
    repository = tmp_path_factory.mktemp("sampling") / "model_repository"
    for model in ("darcy", "darcy_vjp", "darcy_jvp"):
        shutil.copytree(ROOT / "model_repository" / model, repository / model)
    with serve(repository) as running:
        yield running


@pytest.fixture(scope="module")
def executed(service: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the notebook after a run of the command that it names."""
    return execute(NOTEBOOK, tmp_path_factory.mktemp("executed"), PETROV_URL=service.url, PETROV_STEPS=STEPS)


def test_the_chains_agree_with_the_inversion_of_the_service(executed: Any) -> None:
    text = printed(executed)
    assert 0.5 < float(re.findall(r"misfit ([\d.]+)", text)[0]) < 1.5
    assert all(float(share) < 1 for share in re.findall(r"([\d.]+)% from the solver", text))
    accepted = [int(share) for share in re.findall(r"(\d+)% accepted", text)]
    assert len(accepted) == 6
    assert min(accepted[3:]) > 20  # proposals of the Gaussian approximation
    assert float(re.findall(r"differ by ([\d.]+) standard", text)[0]) < 4
    assert int(re.findall(r"truth at (\d+)%", text)[0]) > 50
    assert pictures(executed) == 2


def test_the_stored_outputs_are_those_of_a_run_and_small() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert [cell.execution_count for cell in code(notebook)] == list(range(1, len(code(notebook)) + 1))
    assert len(re.findall(r"[\d.]+ effective samples per second", printed(notebook))) == 6
    assert NOTEBOOK.stat().st_size < MEBIBYTE
    assert not any(output.output_type == "error" for cell in code(notebook) for output in cell.outputs)
