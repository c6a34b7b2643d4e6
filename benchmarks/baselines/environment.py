"""Takes a rival's name, gives the interpreter of its own environment, made of its pinned requirements if need be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ENVIRONMENTS = Path(".third_party/rivals")
REQUIREMENTS = Path(__file__).parent / "requirements"
OURS = "ours"


def interpreter(name: str) -> Path:
    """Give the Python that runs a rival: this one for `ours`, else one of its own.

    Raises:
        CalledProcessError: the requirements cannot be installed.
    """
    if name == OURS:
        return Path(sys.executable)
    wanted = (REQUIREMENTS / f"{name}.txt").read_text()
    folder = ENVIRONMENTS / name
    stamp, python = folder / "installed.txt", folder / "bin/python"
    if not stamp.exists() or stamp.read_text() != wanted:
        install(REQUIREMENTS / f"{name}.txt", folder)
        stamp.write_text(wanted)
    return python.absolute()


def install(requirements: Path, folder: Path) -> None:
    """Make an environment of these packages, with our own pip: theirs would be one package more."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)  # noqa: S603 -- our own command
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install", "--quiet"]
    subprocess.run([*pip, "-r", str(requirements)], check=True)  # noqa: S603 -- our own command


def versions(name: str) -> dict[str, str]:
    """Give the pinned versions of a rival's packages."""
    lines = (REQUIREMENTS / f"{name}.txt").read_text().splitlines()
    pins = (line.partition("==") for line in lines if "==" in line and not line.startswith("#"))
    return {package: version for package, _, version in pins}
