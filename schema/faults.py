"""What pydantic found wrong in a document, in one line that names the keys."""

from __future__ import annotations

import re
import textwrap
from typing import Any

MOST_FAULTS = 5


class PartError(ValueError):
    """The faults that pydantic found in a part of a document which is validated by itself."""

    def __init__(self, error: Any) -> None:
        super().__init__(faults(error))
        self.error = error


def faults(error: Any) -> str:
    """Say in one line which keys of a document pydantic found wrong, and what was found there."""
    found = listed(error)
    more = f"; and {len(found) - MOST_FAULTS} more" if len(found) > MOST_FAULTS else ""
    return "; ".join(found[:MOST_FAULTS]) + more


def listed(error: Any) -> list[str]:
    """Return every fault as a sentence that begins with the key."""
    found = []
    for each in error.errors(include_url=False):
        # The location in a union holds the name of a class, too.
        parts = (str(part) for part in each["loc"] if part not in {"constrained-int", "[key]"})
        location = ".".join(part for part in parts if not part[:1].isupper())
        inner = each.get("ctx", {}).get("error")
        if isinstance(inner, PartError):
            found += [f"{location}.{text}" for text in listed(inner.error)]
            continue
        message = re.sub(r"^Value error, ", "", each["msg"])
        if each["type"] not in {"missing", "value_error"}:
            message = f"{message} (found {textwrap.shorten(repr(each['input']), 60)})"
        found.append(f"{location}: {message}" if location else message)
    return found
