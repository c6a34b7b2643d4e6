"""Expect an error of the gateway by its kind."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from serving.errors import Problem


def refused(kind: str, match: str | None = None) -> AbstractContextManager[pytest.ExceptionInfo[Problem]]:
    """Expect a `Problem` of a kind, with a detail that a pattern matches."""
    return pytest.raises(Problem, match=match, check=lambda problem: problem.kind == kind)
