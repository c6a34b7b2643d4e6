"""Notebooks of docs/, run by the command that they name, and what they print."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parents[2]
MEBIBYTE = 2**20


def execute(notebook: Path, folder: Path, **environment: str) -> Any:
    """Return a notebook after a run beside `physics` and `research`, as in the folder docs/."""
    aside = folder / "docs"
    aside.mkdir()
    shutil.copy(notebook, aside)
    for package in ("physics", "research"):
        (folder / package).symlink_to(ROOT / package)
    command = [Path(sys.executable).with_name("jupyter"), "execute", "--inplace", aside / notebook.name]
    own = os.environ | environment | {"IPYTHONDIR": str(folder / "ipython")}
    done = subprocess.run(command, env=own, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return nbformat.read(aside / notebook.name, as_version=4)


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(notebook: Any) -> str:
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")


def pictures(notebook: Any) -> int:
    return sum("image/png" in output.get("data", {}) for cell in code(notebook) for output in cell.outputs)
