"""The repository in, pages of the site out: the README as its front page, tables of settings, metrics and cards.

A link that leaves `docs` leaves the site. If it names a page's source it becomes a link to the page; any other file of
the repository is named, not linked, and has to exist.
"""  # noqa: INP001 - a folder of the site's

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from benchmarks import settings
from serving.http.app import VERSION
from serving.observability.metrics import Metrics

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
    """Adds what is no file under `docs`."""
    made = {target: (ROOT / source).read_text() for target, source in COPIED.items()}
    made |= {"reference/settings.md": settings_page(), "reference/metrics.md": metrics_page()}
    made |= {"reference/cards.md": cards_page()}
    for target, text in made.items():
        files.append(File.generated(config, target, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Turns the repository's links into the site's."""
    source = PurePosixPath(COPIED.get(page.file.src_uri, f"docs/{page.file.src_uri}"))

    def replaced(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        return linked(words, _from_root(source.parent / target), anchor, page, files)

    return LINK.sub(replaced, PICTURE.sub(r"![\1](\2)", markdown))


def linked(words: str, target: PurePosixPath, anchor: str, page: Page, files: Files) -> str:
    """A link to a file of the repository: to its page, or none.

    Raises:
        PluginError: There is no such file.
    """
    copies = {source: name for name, source in COPIED.items()}
    within = str(target.relative_to("docs")) if target.is_relative_to("docs") else ""
    name = copies.get(str(target), within)
    if files.get_file_from_path(name) is not None:
        return f"[{words}]({_relative(name, page.file.src_uri)}{anchor})"
    if not (ROOT / target).exists():
        raise PluginError(f'{page.file.src_uri} links to "{target}", which is not there')
    return words if str(target) in words else f"{words} (`{target}`)"


def settings_page() -> str:
    """Every variable of the service."""
    opening = "The service reads them once, when it starts: `PETROV_…`. Generated from `serving/settings.py`."
    return f"# Settings\n\n{opening}\n\n{table(settings.HEADER, settings.rows())}"


def metrics_page() -> str:
    """Every instrument of the gateway."""
    opening = (
        "`GET /metrics`, for Prometheus. Histograms have `_bucket`, `_sum` and `_count`; counters end in `_total`. "
        "Labels are bounded: a model is one of the repository or `unknown`, a grid one of the card or `other`. "
        "What to do about them is in [operations](../operations.md). Generated from `serving/observability/metrics.py`."
    )
    return f"# Metrics\n\n{opening}\n\n{table(('metric', 'kind', 'labels', 'what it is'), instruments())}"


def instruments() -> list[tuple[str, ...]]:
    """Name, kind, labels and meaning of each."""
    metrics = Metrics(VERSION)
    described = [(each, family) for each in vars(metrics).values() for family in getattr(each, "describe", list)()]
    labels = {family.name: each._labelnames for each, family in described}  # noqa: SLF001 - said nowhere else
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
    """What is known of each released model."""
    cards = [(path.parent.name, json.loads(path.read_text())) for path in sorted(ROOT.glob("checkpoints/*/card.json"))]
    opening = (
        "What each released checkpoint was trained on, and its errors on fields that it was not trained on. Errors "
        "are relative; `classical` is the solver on the same grid. A service adds names, shapes, units and limits: "
        "`GET /v1/models/{model}`. Generated from `checkpoints/*/card.json`."
    )
    sections = [f"## {name}\n\n{section(card)}" for name, card in cards]
    return "\n\n".join(["# Model cards", opening, *sections])


def section(card: dict[str, Any]) -> str:
    """A card's parts, one after another."""
    return "\n\n".join(f"**{name.replace('_', ' ')}**\n\n{part(value)}" for name, value in card.items())


def part(value: Any) -> str:
    """A list of documents as a table, a document as a list, anything else in words."""
    if isinstance(value, dict):
        return "\n".join(f"- {name.replace('_', ' ')}: {cell(each)}" for name, each in value.items())
    if not (isinstance(value, list) and all(isinstance(row, dict) for row in value)):
        return cell(value)
    columns = list(dict.fromkeys(column for row in value for column in row))
    return table(columns, [[cell(row.get(column, "")) for column in columns] for row in value])


def cell(value: Any) -> str:
    """A value in words."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {cell(each)}" for name, each in value.items())
    if isinstance(value, list):
        return " x ".join(map(cell, value)) if len(value) == 2 else ", ".join(map(cell, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |" for line in lines) + "\n"


def _from_root(path: PurePosixPath) -> PurePosixPath:
    """A path without `..`."""
    parts: list[str] = []
    for part in path.parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return PurePosixPath(*parts)


def _relative(target: str, page: str) -> str:
    return "../" * page.count("/") + target
