"""The base of all errors that the user can correct."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake in what the user passed: commands print its message as one line, without a traceback."""
