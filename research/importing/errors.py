"""The error of a failed import."""

from __future__ import annotations

from training.user_error import UserError


class ReferenceImportError(UserError):
    """A file cannot be imported: the message names the file or key, what was expected and what was found."""
