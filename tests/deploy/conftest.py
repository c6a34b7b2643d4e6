"""Fixture of the deployment tests: programs that come as Debian packages."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def debian() -> Callable[[str], str]:
    """Return a function that finds a program; without it the test is skipped, and fails under CI=true."""

    def find(program: str) -> str:
        path = shutil.which(program)
        if path is None:
            reason = f"{program} is not installed (`make programs` installs it as root)"
            pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
        return path

    return find
