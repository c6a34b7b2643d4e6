"""What a server sends, before anything is made of it: texts without control characters, JSON of bounded cost.

A title of a model reaches a terminal, a log and a notebook. Escape sequences in it can write a clipboard or fake a
prompt, a newline fakes a line of a log, and characters that change the direction of a text hide what it says.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

#: Bytes of the longest JSON document, which describes models or is the result of an inversion.
LONGEST_JSON = 16 * 2**20
#: Values, objects and lists in a document, and how deep they are nested. 16 MiB of `[],` would become 400 MiB.
MOST_VALUES, MOST_CONTAINERS, DEEPEST = 2**20, 2**18, 64

#: Control characters (C0, DEL, C1), those that separate lines or change the direction of a text, and surrogates.
_UNPRINTABLE = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


def printable(text: str) -> str:
    """Return a text with a space for every character that moves to another line or column, and U+FFFD for others."""
    if text.isprintable():  # most are, and this is ten times as fast
        return text
    return _UNPRINTABLE.sub(lambda found: " " if found[0].isspace() else "\N{REPLACEMENT CHARACTER}", text)


def parsed(document: bytes | str) -> Any:
    """Return the content of a JSON document, its texts printable.

    Brackets and commas in texts are counted, too: no document of a service has so many.

    Raises:
        ValueError: It is no JSON, or would take too much memory or depth.
    """
    content = document.encode(errors="surrogatepass") if isinstance(document, str) else document
    if len(content) > LONGEST_JSON:
        raise ValueError(f"expected a document of at most {LONGEST_JSON} bytes but got {len(content)}")
    containers = content.count(b"[") + content.count(b"{")
    if containers > MOST_CONTAINERS or content.count(b",") + containers > MOST_VALUES:
        raise ValueError(f"expected at most {MOST_VALUES} values and {MOST_CONTAINERS} lists or objects but got more")
    if containers > DEEPEST:
        steps = _STEPS[np.frombuffer(content, np.uint8)]
        if np.cumsum(steps[steps != 0], dtype=np.int32).max() > DEEPEST:
            raise ValueError(f"expected lists and objects in at most {DEEPEST} others but got more")
    return _printable_texts(json.loads(content))


def _printable_texts(content: Any) -> Any:
    if isinstance(content, str):
        return printable(content)
    if isinstance(content, dict):
        return {printable(name): _printable_texts(each) for name, each in content.items()}
    if isinstance(content, list):
        numbers = not content or isinstance(content[0], int | float)  # as in a sample, which has many
        if numbers and all(type(each) in _NUMBERS for each in content):
            return content
        return [_printable_texts(each) for each in content]
    return content


_NUMBERS = frozenset({int, float})
