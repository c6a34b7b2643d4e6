"""A repository of two models."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.serving.catalogue.fake_triton import change


@pytest.fixture
def repository(toy_repository: Path, tmp_path: Path) -> Path:
    """Cards of `good` and `bad`."""
    for name in ("good", "bad"):
        shutil.copytree(toy_repository / "blur", tmp_path / name)
        change(tmp_path, name, model=name)
    return tmp_path
