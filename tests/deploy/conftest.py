"""What the deployment's tests stand on: programs that Debian has."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def debian() -> Callable[[str], str]:
    """Gives the path of a program of Debian; without it the test is skipped, and fails under CI=true."""

    def find(program: str) -> str:
        path = shutil.which(program)
        if path is None:
            reason = f"{program} is not installed (make programs installs it where it may)"
            pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
        return path

    return find
