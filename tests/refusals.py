"""Expect an error of the gateway by its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from serving.errors import Problem

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def refused(kind: str, match: str | None = None) -> AbstractContextManager[pytest.ExceptionInfo[Problem]]:
    """Expect a `Problem` of a kind, with a detail that a pattern matches."""
    return pytest.raises(Problem, match=match, check=lambda problem: problem.kind == kind)
