"""The README's examples run as printed, against the released models."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import physics.darcy
from benchmarks import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PRINTED = "http://127.0.0.1:8080"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def url(serve: Any) -> Iterator[str]:
    """The released models, served; `make test` has exported them."""
    with serve(ROOT / "model_repository") as service:
        yield service.url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a user would stand, with a permeability of theirs."""
    np.save(tmp_path / "permeability.npy", physics.darcy.example(85, seed=3).astype(np.float32))
    return tmp_path


def test_the_python_block(url: str, folder: Path) -> None:
    [block] = [block for block in blocks("python") if "petrov_client" in block]
    code = block.replace(PRINTED, url) + "\nnp.save('pressure.npy', pressure)\n"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
    assert is_a_pressure(folder)


def test_the_layers_block() -> None:
    [block] = [block for block in blocks("python") if "EncoderLayer" in block]
    code = "import torch; torch.set_grad_enabled(False)\n" + block + "\nassert x.shape == (8, 8192, 128)\n"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_command_line_block(url: str, folder: Path) -> None:
    [block] = [block for block in blocks("sh") if "petrov predict" in block]
    script = block.replace(".venv/bin/petrov", str(Path(sys.executable).parent / "petrov"))
    subprocess.run(["bash", "-ec", script], cwd=folder, check=True, env={"PETROV_URL": url, "COLUMNS": "200"})
    assert is_a_pressure(folder)


def test_the_curl_block(url: str, folder: Path) -> None:
    if shutil.which("curl") is None and "CI" not in os.environ:
        pytest.skip("curl is not installed")
    [block] = [block for block in blocks("sh") if block.startswith("curl")]
    done = subprocess.run(
        ["bash", "-ec", block.replace(PRINTED, url)], cwd=folder, check=True, capture_output=True, text=True
    )
    assert is_a_pressure(folder)
    assert "initial" in done.stdout
    assert "64" in done.stdout


def is_a_pressure(folder: Path) -> bool:
    found = np.load(folder / "pressure.npy")
    truth = physics.darcy.solve(np.load(folder / "permeability.npy"))
    return bool(np.linalg.norm(found - truth) < 5e-2 * np.linalg.norm(truth))


def test_every_setting_stands_in_the_table() -> None:
    for row in settings.rows():
        assert f"| {' | '.join(row)} |" in README
