"""Takes a table by name, writes it into the README between the comments that carry that name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def write(readme: Path, name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Replace the table `name`.

    Raises:
        ValueError: the README has no place for it.
    """
    lines = [header, ["---"] * len(header), *rows]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    place = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    text, found = place.subn(lambda match: f"{match[1]}{table}\n{match[2]}", readme.read_text())
    if not found:
        raise ValueError(f"expected <!-- table: {name} --> in {readme}")
    readme.write_text(text)
