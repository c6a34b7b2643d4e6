"""The client as a distribution: a wheel and an sdist, built, checked, installed and imported without the repository."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from serving.version import VERSION

CLIENT = Path(__file__).parents[2] / "clients" / "python"
IMPORT = "import petrov_client; print(petrov_client.__file__); petrov_client.Client().close()"
COMMAND = "from petrov_client.__main__ import main; sys.argv = ['petrov', '--version']; main()"


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build the sdist, and the wheel from it."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, CLIENT]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def test_both_are_accepted_by_package_indexes(distributions: dict[str, Path]) -> None:
    check = [sys.executable, "-m", "twine", "check", "--strict", *distributions.values()]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_they_hold_the_client_alone(distributions: dict[str, Path]) -> None:
    with zipfile.ZipFile(distributions["wheel"]) as wheel:
        names = wheel.namelist()
    assert "petrov_client/py.typed" in names
    assert {name.partition("/")[0] for name in names} == {"petrov_client", f"petrov_client-{VERSION}.dist-info"}
    with tarfile.open(distributions["sdist"]) as sdist:
        assert not [name for name in sdist.getnames() if "tests" in name]


@pytest.mark.parametrize("kind", ["wheel", pytest.param("sdist", marks=pytest.mark.deep)])
def test_what_is_installed_is_imported(distributions: dict[str, Path], kind: str, tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--target", tmp_path, distributions[kind]], check=True, capture_output=True)
    begin = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
    assert Path(run(begin + IMPORT, tmp_path)) == tmp_path / "petrov_client" / "__init__.py"
    assert run(begin + COMMAND, tmp_path) == f"petrov-client {VERSION}"


def run(code: str, folder: Path) -> str:
    """Run Python code without the repository, and return what it prints."""
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()
