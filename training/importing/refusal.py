"""The one error of this package: takes what was wrong with a file of the reference, tells it in one line."""

from __future__ import annotations


class ReferenceImportError(ValueError):
    """A file cannot be imported: the message names the file or key, what was expected and what was found."""
