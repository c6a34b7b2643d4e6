"""Hooks of mkdocs that add the README and the generated pages, fill tables, and convert links.

A line `<!-- table: NAME -->` of a page becomes a table of `benchmarks.tables`, and `<!-- generated: NAME -->` the part
of `GENERATED` by that name. A link to the source of a page becomes a link to the page. A link to any other file of the
repository becomes the file's name; the file has to exist.
"""  # noqa: INP001 - mkdocs loads this file by its path

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import yaml
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from benchmarks.tables import README, TABLES, markdown, memorisation, table
from serving.app import create_app
from serving.observe import Metrics
from serving.settings import Settings
from serving.triton import Triton
from serving.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
COPIED = {"index.md": "README.md", "client.md": "clients/python/README.md", "contributing.md": "CONTRIBUTING.md"}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?:)docs/([^)\s]+)\)")
FILLED = re.compile(r"^<!-- (table|generated): (.+?) -->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files under `docs`."""
    made = {target: (ROOT / source).read_text() for target, source in COPIED.items()}
    made |= {"reference/cards.md": cards_page(), "reference/tables.md": tables_page()}
    for target, text in made.items():
        files.append(File.generated(config, target, content=text))
    return files


def on_page_markdown(text: str, page: Page, files: Files, **_: Any) -> str:
    """Fill tables, and replace links between files of the repository by links between pages."""
    source = PurePosixPath(COPIED.get(page.file.src_uri, f"docs/{page.file.src_uri}"))

    def replaced(found: re.Match[str]) -> str:
        shown, target, anchor = found[1], found[2], found[3] or ""
        return linked(shown, _from_root(source.parent / target), anchor, page, files)

    filled = text if page.file.src_uri == "index.md" else FILLED.sub(lambda found: fill(*found.groups()), text)
    return LINK.sub(replaced, PICTURE.sub(r"![\1](\2)", filled))


def fill(kind: str, name: str) -> str:
    """Return what stands in a page for a line that names it."""
    return GENERATED[name]() if kind == "generated" else markdown(*table(name))


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


def settings() -> str:
    """Return the settings of the service as a table."""

    def default(value: object) -> str:
        return "" if value in {(), ""} else f"`{value}`"

    rows = [
        (f"`PETROV_{name.upper()}`", default(field.default), field.description or "")
        for name, field in Settings.model_fields.items()
    ]
    return markdown(("variable", "default", "meaning"), rows)


def routes() -> str:
    """Return the routes of the gateway as a table, from its OpenAPI document."""
    with tempfile.TemporaryDirectory() as folder:
        paths = create_app(Settings(repository=Path(folder)), Triton("127.0.0.1:8000", 1)).openapi()["paths"]
    rows = []
    for path, operations in paths.items():
        for method, operation in operations.items():
            query = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
            described = " ".join(operation.get("description", operation["summary"]).split("\n\n")[0].split())
            rows.append((f"`{method.upper()} {path}`", ", ".join(f"`{name}`" for name in query), described))
    return markdown(("route", "query", "purpose"), rows)


def alerts() -> str:
    """Return the alerts of Prometheus, each with a heading."""
    document = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    found = [rule for group in document["groups"] for rule in group["rules"]]

    def section(rule: dict[str, Any]) -> str:
        notes = rule["annotations"]
        text = re.sub(r"\{\{.*?\}\}", "…", f"{notes['description']} {notes['action']}")
        return f"### {rule['alert']}\n\n*{rule['labels']['severity']}*: `{' '.join(rule['expr'].split())}`. {text}"

    return "\n\n".join(map(section, found))


def metrics() -> str:
    """Return name, kind, labels and meaning of every metric as a table."""
    found = Metrics(VERSION)
    described = [(each, family) for each in vars(found).values() for family in getattr(each, "describe", list)()]
    labels = {family.name: each._labelnames for each, family in described}  # noqa: SLF001 - there is no public attribute
    suffixes = {"counter": "_total", "info": "_info"}
    rows = [
        (
            f"`{family.name}{suffixes.get(family.type, '')}`",
            family.type,
            ", ".join(f"`{label}`" for label in labels.get(family.name, ())),
            family.documentation,
        )
        for family in found.registry.collect()
    ]
    return markdown(("metric", "kind", "labels", "meaning"), rows)


GENERATED: dict[str, Callable[[], str]] = {
    "settings": settings,
    "routes": routes,
    "alerts": alerts,
    "metrics": metrics,
}


def tables_page() -> str:
    """Return the page with all measurements."""
    opening = (
        "Every measured table, from the results in `docs/` and the cards of the released models. Errors are mean "
        "relative L2 errors, and times processor times of one thread, unless a header says otherwise."
    )
    shown = [f"## {each.title}\n\n<!-- table: {name} -->" for name, each in TABLES.items() if name != README]
    found = [f"### {name.partition(' ')[2].capitalize()}\n\n<!-- table: {name} -->" for name in memorisation()]
    return "\n\n".join(["# All measurements", opening, *shown, "## Memorisation", *found])


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
    return markdown(columns, [[cell(row.get(column, "")) for column in columns] for row in value])


def cell(value: Any) -> str:
    """Return a value as text."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {cell(each)}" for name, each in value.items())
    if isinstance(value, list):
        return " x ".join(map(cell, value)) if len(value) == 2 else ", ".join(map(cell, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _from_root(path: PurePosixPath) -> PurePosixPath:
    """Return a path without `..`."""
    parts: list[str] = []
    for part in path.parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return PurePosixPath(*parts)


def _relative(target: str, page: str) -> str:
    return "../" * page.count("/") + target
