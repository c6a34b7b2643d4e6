"""Write a table, by its name, between the comments of a Markdown page that carry that name."""

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
    found = (page for page in (root / "README.md", *sorted(root.glob("docs/*.md"))) if marker in page.read_text())
    page = next(found, None)
    if page is None:
        raise ValueError(f"expected {marker} in README.md or in a page of docs/ but found it in none")
    return page


def write(readme: Path, name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Replace the table `name` of a page.

    Raises:
        ValueError: The page does not hold it.
    """
    lines = [header, ["---"] * len(header), *rows]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    place = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    text, found = place.subn(lambda match: f"{match[1]}{table}\n{match[2]}", readme.read_text())
    if not found:
        raise ValueError(f"expected <!-- table: {name} --> in {readme}")
    readme.write_text(text)
