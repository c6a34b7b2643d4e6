"""What notebooks show of the values of this package: small tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> str:
    """Return a table; headings and cells are plain texts, of which a service may have written some."""
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    head = "".join(f"<th>{escape(each)}</th>" for each in headings) if any(headings) else ""
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<table style="text-align: left">{caption}{head and f"<tr>{head}</tr>"}{body}</table>'
