"""The error that ends a start of the service."""

from __future__ import annotations


class StartupError(RuntimeError):
    """The service cannot start; the message lists every reason, one sentence a line, each with its remedy."""
