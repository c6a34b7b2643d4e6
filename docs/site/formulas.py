"""TeX in, MathML out: browsers draw it themselves, without a script and without a font of ours."""  # noqa: INP001 - a folder of the site's

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

from griffe import Extension
from latex2mathml.converter import convert

if TYPE_CHECKING:
    from griffe import Object

BLOCK = re.compile(r"^( *)\.\. math::\n((?:\1 +\S.*\n?|[ ]*\n(?=\1 +\S))+)", re.MULTILINE)
ROLE = re.compile(r":math:`([^`]+)`")
MODULE = re.compile(r"^r?[^\n]*?(?=\n|$)")


def inline(source: str, *_: Any, **__: Any) -> str:
    """A formula within a line."""
    return convert(" ".join(source.split()))


def display(source: str, *_: Any, **__: Any) -> str:
    """A formula on lines of its own."""
    return convert(" ".join(source.split()).rstrip(), display="block")


def markdown(docstring: str) -> str:
    """A docstring's formulas, written for Sphinx, as the fences and code that Markdown hands to the two above."""
    fenced = BLOCK.sub(lambda found: f"{_fence(found[1], found[2])}\n", docstring)
    return ROLE.sub(lambda found: f"`#!math {' '.join(found[1].split())}`", fenced)


def _fence(indent: str, body: str) -> str:
    return textwrap.indent(f"\n```math\n{textwrap.dedent(body).strip()}\n```\n", indent)


class Formulas(Extension):
    """Hands every docstring through `markdown`."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
