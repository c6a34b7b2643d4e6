"""Errors that the user can correct, and commands as they have to be typed, which their messages advise."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class UserError(ValueError):
    """A mistake in what the user passed: commands print its message as one line, without a traceback."""


def typed(*words: str | Path) -> str:
    """Write a command that can be pasted in the folder of the repository, whatever its paths hold."""
    ours = (ROOT / ".venv").is_dir() and Path(sys.prefix).samefile(ROOT / ".venv")
    python = ".venv/bin/python" if ours else sys.executable
    return shlex.join([python, "-m", "training", *(str(located(each)) for each in words)])


def located(word: str | Path) -> str | Path:
    """Return a path from the folder of the repository, absolute where it lies elsewhere; other words as they are."""
    if isinstance(word, str):
        return word
    found = word.resolve()
    return found.relative_to(ROOT) if found.is_relative_to(ROOT) else found
