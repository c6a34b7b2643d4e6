"""Convert the TeX of docstrings to MathML, which browsers draw without a script."""  # noqa: INP001 - mkdocs loads this file by its path

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
    """Return a formula within a line as MathML."""
    return convert(" ".join(source.split()))


def display(source: str, *_: Any, **__: Any) -> str:
    """Return a formula on lines of its own as MathML."""
    return convert(" ".join(source.split()).rstrip(), display="block")


def markdown(docstring: str) -> str:
    """Replace the formulas of a docstring, written for Sphinx, by what `display` and `inline` read."""
    fenced = BLOCK.sub(lambda found: f"{_fence(found[1], found[2])}\n", docstring)
    return ROLE.sub(lambda found: f"`#!math {' '.join(found[1].split())}`", fenced)


def _fence(indent: str, body: str) -> str:
    return textwrap.indent(f"\n```math\n{textwrap.dedent(body).strip()}\n```\n", indent)


class Formulas(Extension):
    """Extension of griffe that converts the formulas of every docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Convert the docstring of one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
