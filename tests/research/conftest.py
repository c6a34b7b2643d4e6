"""Fixtures of the tests of research: the golden vectors of the reference implementation."""

from tests.training.conftest import golden

__all__ = ["golden"]
