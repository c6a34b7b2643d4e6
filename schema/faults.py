"""What pydantic found wrong in a document, in one line that names the keys."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

MOST_FAULTS = 5
OURS = {
    "extra_forbidden": "the key is unknown",
    "tuple_type": "expected a list",
}  # for "inputs" and "tuple" of pydantic
KEY = "[key]"  # what pydantic's locations end with where the key itself is wrong


class PartError(ValueError):
    """The faults that pydantic found in a part of a document which is validated by itself.

    `keyed`: the part holds tables by name which may say another name of their data as `key`.
    """

    def __init__(self, error: Any, *, keyed: bool = False) -> None:
        super().__init__("; ".join(listed(error, keyed=keyed)))
        self.error, self.keyed = error, keyed


def faults(error: Any) -> str:
    """Say in one line which keys of a document pydantic found wrong, and what was found there."""
    found = listed(error)
    more = f"; and {len(found) - MOST_FAULTS} more" if len(found) > MOST_FAULTS else ""
    return "; ".join(found[:MOST_FAULTS]) + more


def listed(error: Any, *, keyed: bool = False) -> list[str]:
    """Return every fault as a sentence that begins with the key."""
    found = []
    errors = error.errors(include_url=False)
    wrong = {each["loc"][-2] for each in errors if each["loc"][-1:] == (KEY,)}  # names that are refused
    wrong |= {each["loc"][-1] for each in errors if each["type"] == "extra_forbidden"}
    for each in errors:
        if each["loc"][-1:] == ("name",) and {*each["loc"][-2:-1]} & wrong:
            continue  # the name of a table, which is its key
        # The location in a union holds the name of a class, too.
        parts = (part for part in each["loc"] if part not in {"constrained-int", KEY})
        location = ".".join(str(part) for part in parts if part in wrong or not str(part)[:1].isupper())
        inner = each.get("ctx", {}).get("error")
        if isinstance(inner, PartError):
            found += [f"{location}.{text}" for text in listed(inner.error, keyed=inner.keyed)]
            continue
        message = OURS.get(each["type"], re.sub(r"^Value error, ", "", each["msg"]))
        if each["loc"][-1:] == (KEY,) and each["type"] == "string_pattern_mismatch":
            found.append(f"{location}: {advice(str(each['input']), keyed=keyed)}")
            continue
        if each["type"] not in {"missing", "value_error"}:
            message = f"{message} (found {textwrap.shorten(repr(each['input']), 60)})"
        found.append(f"{location}: {message}" if location else message)
    return found


def advice(name: str, *, keyed: bool) -> str:
    """Say how to write a name that is refused: in small letters, with `key` for that of the data."""
    plain = re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_")
    small = plain if plain[:1].isalpha() else f"a{plain}"
    key = f", and `key = {json.dumps(name, ensure_ascii=False)}` for that of the data" if keyed else ""
    return f"expected a name in small letters, digits and _, such as {small!r}{key}"
