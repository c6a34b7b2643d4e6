"""Hooks of mkdocs that add the README, the generated pages of metrics and model cards, and convert links.

A link to the source of a page becomes a link to the page. A link to any other file of the repository becomes the
file's name; the file has to exist.
"""  # noqa: INP001 - mkdocs loads this file by its path

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from serving.observability.metrics import Metrics
from serving.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
COPIED = {"index.md": "README.md", "client.md": "clients/python/README.md", "contributing.md": "CONTRIBUTING.md"}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?:)docs/([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files under `docs`."""
    made = {target: (ROOT / source).read_text() for target, source in COPIED.items()}
    made |= {"reference/metrics.md": metrics_page(), "reference/cards.md": cards_page()}
    for target, text in made.items():
        files.append(File.generated(config, target, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Replace links between files of the repository by links between pages."""
    source = PurePosixPath(COPIED.get(page.file.src_uri, f"docs/{page.file.src_uri}"))

    def replaced(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        return linked(text, _from_root(source.parent / target), anchor, page, files)

    return LINK.sub(replaced, PICTURE.sub(r"![\1](\2)", markdown))


def linked(text: str, target: PurePosixPath, anchor: str, page: Page, files: Files) -> str:
    """Return a link to the page made from a file, or the name of a file that has no page.

    Args:
        text: What the link shows.
        target: The file, relative to the repository.
        anchor: The heading in it, with its `#`; empty for none.
        page: The page that holds the link.
        files: All files of the site.

    Returns:
        The link or the name, as Markdown.

    Raises:
        PluginError: The file does not exist.
    """
    copies = {source: name for name, source in COPIED.items()}
    within = str(target.relative_to("docs")) if target.is_relative_to("docs") else ""
    name = copies.get(str(target), within)
    if files.get_file_from_path(name) is not None:
        return f"[{text}]({_relative(name, page.file.src_uri)}{anchor})"
    if not (ROOT / target).exists():
        raise PluginError(f'{page.file.src_uri} links to "{target}", which does not exist')
    return text if str(target) in text else f"{text} (`{target}`)"


def metrics_page() -> str:
    """Return the page that lists every metric of the gateway."""
    opening = (
        "`GET /metrics`, for Prometheus. Histograms have `_bucket`, `_sum` and `_count`; counters end in `_total`. "
        "Labels are bounded: `model` is a model of the repository or `unknown`, `grid` a grid of the card or `other`. "
        "Alerts: [operations](../operations.md). Generated from `serving/observability/metrics.py`."
    )
    return f"# Metrics\n\n{opening}\n\n{table(('metric', 'kind', 'labels', 'meaning'), instruments())}"


def instruments() -> list[tuple[str, ...]]:
    """Return name, kind, labels and meaning of every metric."""
    metrics = Metrics(VERSION)
    described = [(each, family) for each in vars(metrics).values() for family in getattr(each, "describe", list)()]
    labels = {family.name: each._labelnames for each, family in described}  # noqa: SLF001 - there is no public attribute
    suffixes = {"counter": "_total", "info": "_info"}
    return [
        (
            f"`{family.name}{suffixes.get(family.type, '')}`",
            family.type,
            ", ".join(f"`{label}`" for label in labels.get(family.name, ())),
            family.documentation,
        )
        for family in metrics.registry.collect()
    ]


def cards_page() -> str:
    """Return the page with the cards of the released models."""
    cards = [(path.parent.name, json.loads(path.read_text())) for path in sorted(ROOT.glob("checkpoints/*/card.json"))]
    opening = (
        "The training data of each released checkpoint, and its errors on fields that it was not trained on. Errors "
        "are relative; `classical` is the solver on the same grid. A service adds names, shapes, units and limits: "
        "`GET /v1/models/{model}`. Generated from `checkpoints/*/card.json`."
    )
    sections = [f"## {name}\n\n{section(card)}" for name, card in cards]
    return "\n\n".join(["# Model cards", opening, *sections])


def section(card: dict[str, Any]) -> str:
    """Return the parts of a card under their names."""
    return "\n\n".join(f"**{name.replace('_', ' ')}**\n\n{part(value)}" for name, value in card.items())


def part(value: Any) -> str:
    """Return a list of objects as a table, an object as a list, and other values as text."""
    if isinstance(value, dict):
        return "\n".join(f"- {name.replace('_', ' ')}: {cell(each)}" for name, each in value.items())
    if not (isinstance(value, list) and all(isinstance(row, dict) for row in value)):
        return cell(value)
    columns = list(dict.fromkeys(column for row in value for column in row))
    return table(columns, [[cell(row.get(column, "")) for column in columns] for row in value])


def cell(value: Any) -> str:
    """Return a value as text."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {cell(each)}" for name, each in value.items())
    if isinstance(value, list):
        return " x ".join(map(cell, value)) if len(value) == 2 else ", ".join(map(cell, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |" for line in lines) + "\n"


def _from_root(path: PurePosixPath) -> PurePosixPath:
    """Return a path without `..`."""
    parts: list[str] = []
    for part in path.parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return PurePosixPath(*parts)


def _relative(target: str, page: str) -> str:
    return "../" * page.count("/") + target
