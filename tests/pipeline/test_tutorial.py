"""Run the notebook from top to bottom against a service, and check what it prints."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest

from tests.pipeline.notebooks import MEBIBYTE, ROOT, code, execute, pictures, printed

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
MODELS = ("darcy", "darcy_inverse")


@pytest.fixture(scope="module")
def service(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Serve the released models that the notebook uses; `make test` has installed them."""
    repository = tmp_path_factory.mktemp("tutorial") / "model_repository"
    for model in MODELS:
        shutil.copytree(ROOT / "model_repository" / model, repository / model)
    with serve(repository) as running:
        yield running


@pytest.fixture(scope="module")
def executed(service: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the notebook after a run of the command that it names."""
    grpc = f"127.0.0.1:{service.settings.grpc_port}"
    return execute(NOTEBOOK, tmp_path_factory.mktemp("executed"), PETROV_URL=service.url, PETROV_GRPC=grpc)


def percentages(label: str, text: str) -> list[float]:
    """Return the percentages printed after a label, as fractions."""
    return [float(found) / 100 for found in re.findall(rf"{label} ([\d.]+)%", text)]


def shares(text: str) -> list[float]:
    """Return all percentages of a text, as fractions."""
    return [float(found) / 100 for found in re.findall(r"([\d.]+)%", text)]


def test_the_printed_errors_are_small(executed: Any) -> None:
    text = printed(executed)
    assert all(f"{model}: " in text for model in MODELS)
    assert max(percentages("differ by", text)) < 0.02
    assert len(percentages("points: network", text)) == 4
    assert max(percentages("points: network", text)) < 0.05
    assert max(map(float, re.findall(r"([\d.]+)% from the direct", text))) < 2
    assert float(re.findall(r"over HTTP: ([\d.e+-]+)", text)[0]) < 1e-6
    assert "InvalidInput at coefficient[17,3]: coefficient[17,3] is -2.0" in text


def test_many_predictions_reduce_the_error_of_few_solves(executed: Any) -> None:
    means = re.findall(r": ([\d.]+) \+- ([\d.]+)", printed(executed))
    (together, error), (alone, wider) = [tuple(map(float, pair)) for pair in means]
    assert error < wider
    assert abs(together - alone) < 3 * wider


def test_the_stored_outputs_agree_with_the_run(executed: Any) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(stored)
    numbers = [cell.execution_count for cell in code(stored)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert pictures(stored) == pictures(executed) == 4
    number = re.compile(r"[\d.]+(e-\d+)?")  # numbers and times differ from run to run, the text does not
    assert number.sub("0", printed(stored)) == number.sub("0", printed(executed))
    expected = shares(printed(executed))
    assert len(expected) > 10
    assert shares(printed(stored)) == pytest.approx(
        expected, abs=0.0002
    )  # errors are the same, two decimals of per cent
    assert "stderr" not in {output.get("name") for cell in code(stored) for output in cell.outputs}
    assert NOTEBOOK.stat().st_size < MEBIBYTE
