"""The clients of other projects, in an environment of their own, which is made once per set of pins."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from filelock import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENTS = Path(__file__).parent / "clients"
ENVIRONMENT = Path(".third_party/protocol-clients").absolute()
REQUIREMENTS = CLIENTS / "requirements.txt"


@pytest.fixture(scope="session")
def run_client() -> Callable[..., Any]:
    """Return a function that runs a program of `clients` with arguments, and returns the JSON document it prints."""
    python = _interpreter()

    def run(program: str, *arguments: str) -> Any:
        done = subprocess.run(
            [python, CLIENTS / program, *arguments], check=False, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def _interpreter() -> Path:
    python, stamp = ENVIRONMENT / "bin/python", ENVIRONMENT / "installed.txt"
    ENVIRONMENT.parent.mkdir(exist_ok=True)
    with FileLock(f"{ENVIRONMENT}.lock"):
        if not stamp.exists() or stamp.read_text() != REQUIREMENTS.read_text():
            _install(python)
            stamp.write_text(REQUIREMENTS.read_text())
    return python


def _install(python: Path) -> None:
    """Make an environment with the clients, which finds all other packages in the application's."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", ENVIRONMENT], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path = ENVIRONMENT / "lib" / version / "site-packages" / "application.pth"
    path.write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "-r", REQUIREMENTS], check=True)
