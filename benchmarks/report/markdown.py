"""The writer of generated tables into Markdown pages, between the comments that carry their names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def page_of(name: str, root: Path = Path()) -> Path:
    """Return the page that holds the table `name`: the README, or a page of docs/.

    Raises:
        ValueError: No page holds it.
    """
    marker = f"<!-- table: {name} -->"
    for page in (root / "README.md", *sorted(root.glob("docs/*.md"))):
        if marker in page.read_text():
            return page
    raise ValueError(f"expected {marker} in README.md or in a page of docs/ but found it in none")


def write(page: Path, name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Replace the table `name` of a page.

    Args:
        page: The Markdown file.
        name: The name in the comments around the table.
        header: The titles of the columns.
        rows: The cells.

    Raises:
        ValueError: The page does not hold it.
    """
    lines = [header, ["---"] * len(header), *rows]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    section = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    text, found = section.subn(lambda match: f"{match[1]}{table}\n{match[2]}", page.read_text())
    if not found:
        raise ValueError(f"expected <!-- table: {name} --> in {page}")
    page.write_text(text)
