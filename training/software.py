"""The software that a checkpoint was trained with: the revision of this repository, and package versions."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ConfigDict

ROOT = Path(__file__).parents[1]
PACKAGES = ("torch", "lightning", "numpy", "scipy", "h5py", "safetensors", "pydantic")


class Software(BaseModel):
    """What a result can be traced back to.

    Attributes:
        revision: The commit of this repository; None where there is no git repository or no git.
        modified: Whether tracked files differed from that commit; None where the revision is unknown.
        python: The version of Python.
        packages: Package versions by name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    revision: str | None
    modified: bool | None
    python: str
    packages: dict[str, str]


def current() -> Software:
    """Return the software that runs now."""
    revision = git("rev-parse", "HEAD")
    changes = None if revision is None else git("status", "--porcelain", "--untracked-files=no")
    return Software(
        revision=revision,
        modified=None if changes is None else bool(changes),
        python=platform.python_version(),
        packages={name: version(name) for name in PACKAGES},
    )


def git(*arguments: str) -> str | None:
    """Return what git prints about this repository, or None where it fails."""
    try:
        done = subprocess.run(  # noqa: S603 -- fixed arguments
            ["git", "-C", str(ROOT), *arguments],  # noqa: S607 -- git is where the user has it
            check=True,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
