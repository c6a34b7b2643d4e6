"""The clients of other projects, in an environment of their own, which is made once per set of pins."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.conftest import Gateway, RunService, one_instance

ROOT = Path(__file__).parents[2]
CLIENTS = Path(__file__).parent / "clients"
ENVIRONMENT = ROOT / ".third_party/protocol-clients"
RELEASED = ("darcy", "darcy_vjp", "darcy_jvp")


@pytest.fixture(scope="session")
def run_client() -> Callable[..., Any]:
    """Return a function that runs a program of `clients` with arguments, and returns the JSON document it prints."""

    def run(program: str, *arguments: str, requirements: str = "requirements.txt") -> Any:
        python = _interpreter(requirements)
        done = subprocess.run(
            [python, CLIENTS / program, *arguments], check=False, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        printed = done.stdout.splitlines()
        return json.loads(printed[-1]) if printed else None

    return run


@pytest.fixture(scope="session")
def released(
    tmp_path_factory: pytest.TempPathFactory,
    run_service: RunService,
) -> Iterator[Gateway]:
    """Yield a gateway in front of the released `darcy` and its derivatives."""
    repository = tmp_path_factory.mktemp("protocols") / "model_repository"
    for model in RELEASED:
        shutil.copytree(ROOT / "model_repository" / model, repository / model)
    one_instance(repository)
    with run_service(repository, shadow_share=0.0) as running:
        yield running


def _interpreter(requirements: str) -> Path:
    """Return the interpreter of the clients' environment, with these clients in it.

    It is made once per application environment, whose packages it finds, and extended once per set of pins.
    """
    python, pins, application = ENVIRONMENT / "bin/python", CLIENTS / requirements, sysconfig.get_path("purelib")
    made, installed = ENVIRONMENT / "application.txt", ENVIRONMENT / f"installed-{requirements}"
    ENVIRONMENT.parent.mkdir(exist_ok=True)
    with FileLock(f"{ENVIRONMENT}.lock"):
        if not _holds(made, resolved := str(Path(application).resolve())):
            subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", ENVIRONMENT], check=True)
            [packages] = ENVIRONMENT.glob("lib/python*/site-packages")
            (packages / "application.pth").write_text(f"{resolved}\n")
            made.write_text(resolved)
        if not _holds(installed, pins.read_text()):
            pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
            subprocess.run([*pip, "-r", pins], check=True)
            installed.write_text(pins.read_text())
    return python


def _holds(stamp: Path, text: str) -> bool:
    return stamp.exists() and stamp.read_text() == text
