"""The environments of the baselines, made of their pinned requirements on first use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ENVIRONMENTS = Path(".third_party/baselines")
REQUIREMENTS = Path(__file__).parent / "requirements"
OWN = "own"


def interpreter(name: str) -> Path:
    """Return the Python interpreter of an environment; that of this process for `OWN`.

    Raises:
        CalledProcessError: The requirements cannot be installed.
    """
    if name == OWN:
        return Path(sys.executable)
    pins = (REQUIREMENTS / f"{name}.txt").read_text()
    folder = ENVIRONMENTS / name
    stamp, python = folder / "installed.txt", folder / "bin/python"
    if not stamp.exists() or stamp.read_text() != pins:
        install(REQUIREMENTS / f"{name}.txt", folder)
        stamp.write_text(pins)
    return python.absolute()


def install(requirements: Path, folder: Path) -> None:
    """Create an environment with these packages, by the pip of this process, so that it holds no other package."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)  # noqa: S603 -- our own command
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install", "--quiet"]
    subprocess.run([*pip, "-r", str(requirements)], check=True)  # noqa: S603 -- our own command


def versions(name: str) -> dict[str, str]:
    """Return the pinned versions of an environment's packages."""
    lines = (REQUIREMENTS / f"{name}.txt").read_text().splitlines()
    pins = (line.partition("==") for line in lines if "==" in line and not line.startswith("#"))
    return {package: version for package, _, version in pins}
