"""The notebooks of docs/, run from top to bottom by the command that they name, against a service."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.pipeline.conftest import Service

pytestmark = pytest.mark.timeout(900)  # a start of Triton, solves and requests, on a busy machine
ROOT = Path(__file__).parents[2]
MEBIBYTE = 2**20
#: The released models of two services, installed by `make test`.
FIRST = ("darcy", "darcy_vjp", "darcy_jvp", "darcy_inverse")
SECOND = ("burgers_galerkin", "darcy_galerkin", "darcy_inverse_galerkin", "darcy_inverse", "plate", "plate_vjp")
Execute = Callable[..., Any]


@pytest.fixture(scope="module", params=[FIRST, SECOND], ids=["first", "second"])
def service(
    request: pytest.FixtureRequest,
    serve: Callable[[Path], AbstractContextManager[Service]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    repository = tmp_path_factory.mktemp("notebooks") / "model_repository"
    for model in request.param:
        shutil.copytree(ROOT / "model_repository" / model, repository / model)
    with serve(repository) as running:
        yield running


@pytest.fixture
def execute(service: Service, tmp_path: Path) -> Execute:
    """Return a function that runs a notebook beside `physics` and `research`, as in docs/, and returns it."""

    def run(name: str, **environment: str) -> Any:
        aside = tmp_path / "docs"
        aside.mkdir()
        shutil.copy(notebook(name), aside)
        for package in ("physics", "research"):
            (tmp_path / package).symlink_to(ROOT / package)
        command = [Path(sys.executable).with_name("jupyter"), "execute", "--inplace", aside / f"{name}.ipynb"]
        addresses = {"PETROV_URL": service.url, "PETROV_GRPC": f"127.0.0.1:{service.settings.grpc_port}"}
        own = os.environ | addresses | environment | {"IPYTHONDIR": str(tmp_path / "ipython")}
        done = subprocess.run(command, env=own, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return nbformat.read(aside / f"{name}.ipynb", as_version=4)

    return run


def notebook(name: str) -> Path:
    return ROOT / "docs" / f"{name}.ipynb"


def kept(name: str) -> Any:
    """Return a notebook as it is stored, checked: run from top to bottom without an error, and small."""
    stored = nbformat.read(notebook(name), as_version=4)
    nbformat.validate(stored)
    assert [cell.execution_count for cell in code(stored)] == list(range(1, len(code(stored)) + 1))
    assert not any(output.output_type == "error" for cell in code(stored) for output in cell.outputs)
    assert notebook(name).stat().st_size < MEBIBYTE
    return stored


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(notebook: Any) -> str:
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")


def pictures(notebook: Any) -> int:
    return sum("image/png" in output.get("data", {}) for cell in code(notebook) for output in cell.outputs)


def percentages(text: str, label: str = "") -> list[float]:
    """Return the percentages printed after a label, as fractions."""
    return [float(found) / 100 for found in re.findall(rf"{label}([\d.]+)%", text)]


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "docs").glob("*.ipynb")))
def test_a_notebook_is_stored_as_it_was_run(name: str) -> None:
    assert pictures(kept(name)) == {"tutorial": 4}.get(name, 2)


@pytest.mark.deep
@pytest.mark.parametrize("service", [FIRST], indirect=True)
def test_the_tutorial_prints_small_errors_and_what_it_has_stored(execute: Execute) -> None:
    executed, stored = execute("tutorial"), kept("tutorial")
    text = printed(executed)
    assert all(f"{model}: " in text for model in ("darcy", "darcy_inverse"))
    assert max(percentages(text, "differ by ")) < 0.02
    assert len(percentages(text, "points: network ")) == 4
    assert max(percentages(text, "points: network ")) < 0.05
    assert max(map(float, re.findall(r"([\d.]+)% from the direct", text))) < 2
    assert float(re.findall(r"over HTTP: ([\d.e+-]+)", text)[0]) < 1e-6
    assert "InvalidInput at coefficient[17,3]: coefficient[17,3] is -2.0" in text
    # Many predictions reduce the error of few solves.
    means = re.findall(r": ([\d.]+) \+- ([\d.]+)", text)
    (together, error), (alone, wider) = [tuple(map(float, pair)) for pair in means]
    assert error < wider
    assert abs(together - alone) < 3 * wider
    assert pictures(stored) == pictures(executed) == 4
    number = re.compile(r"[\d.]+(e-\d+)?")  # numbers and times differ from run to run, the text does not
    assert number.sub("0", printed(stored)) == number.sub("0", text)
    assert len(percentages(text)) > 10
    assert percentages(printed(stored)) == pytest.approx(percentages(text), abs=0.0002)  # two decimals of per cent
    assert "stderr" not in {output.get("name") for cell in code(stored) for output in cell.outputs}


@pytest.mark.deep
@pytest.mark.parametrize("service", [FIRST], indirect=True)
def test_the_chains_of_the_notebook_about_sampling_agree_with_the_inversion_of_the_service(execute: Execute) -> None:
    executed = execute("sampling", PETROV_STEPS="3")
    text = printed(executed)
    assert 0.5 < float(re.findall(r"misfit ([\d.]+)", text)[0]) < 1.5
    distances = [float(share) for share in re.findall(r"([\d.]+)% from the solver", text)]
    assert distances
    assert max(distances) < 1
    accepted = [int(share) for share in re.findall(r"(\d+)% accepted", text)]
    assert len(accepted) == 6
    assert min(accepted[3:]) > 20  # proposals of the Gaussian approximation
    assert float(re.findall(r"differ by ([\d.]+) standard", text)[0]) < 4
    assert int(re.findall(r"truth at (\d+)%", text)[0]) > 50
    assert pictures(executed) == 2
    assert len(re.findall(r"[\d.]+ effective samples per second", printed(kept("sampling")))) == 6


@pytest.mark.deep
@pytest.mark.parametrize("service", [SECOND], indirect=True)
def test_the_errors_of_the_paper_s_networks_are_those_of_the_cards_and_of_the_stored_run(execute: Execute) -> None:
    executed, stored = execute("paper"), kept("paper")
    text = printed(executed)
    errors = [float(found) for found in re.findall(r"points: network (\S+) ", text)]
    assert len(errors) == 6
    assert max(errors[:3]) < 1.3 * 9.3e-3  # eight fields
    assert max(errors[3:]) < 1.3 * 1.3e-3
    inverse = dict(re.findall(r"(darcy_inverse\w*): (\S+) ", text))
    assert float(inverse["darcy_inverse_galerkin"]) < 1.3 * 3.2e-2
    assert float(inverse["darcy_inverse"]) < 1.3 * 1.5e-2
    assert errors == pytest.approx(
        [float(found) for found in re.findall(r"points: network (\S+) ", printed(stored))], rel=0.01
    )
    assert pictures(stored) == pictures(executed) == 2


@pytest.mark.deep
@pytest.mark.parametrize("service", [SECOND], indirect=True)
def test_the_notebook_about_plates_finds_a_hole_with_even_stress(execute: Execute) -> None:
    executed, stored = execute("plate"), kept("plate")
    text = printed(executed)
    gradient, difference = re.findall(r"gradient (-?[\d.]+), difference (-?[\d.]+)", text)[0]
    assert float(gradient) == pytest.approx(float(difference), rel=0.02)
    spread = {name: float(share) for name, share in re.findall(r"(\w[\w ']*): from .* deviation ([\d.]+)%", text)}
    assert spread["found with the network"] < 0.5 * spread["circle"]
    assert spread["finite elements"] < spread["found with the network"]
    assert pictures(executed) == 2
    number = re.compile(r"[+-]?[\d.]+")  # the text is the same, times and the last digits are not
    assert number.sub("0", printed(stored)) == number.sub("0", text)
