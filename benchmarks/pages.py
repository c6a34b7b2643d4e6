"""The generated parts of the documentation: tables of results, cards, and what the service says of itself.

A page of `docs/`, or the README, holds each between the lines `<!-- generated: NAME -->` and `<!-- end -->`, where NAME
is a table of `benchmarks.tables` or one of `PARTS`. `python -m benchmarks pages` writes them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from benchmarks.tables import README, TABLES, cards, markdown, memorisation, table
from serving.app import create_app
from serving.errors import KINDS
from serving.observe import Metrics
from serving.settings import Settings
from serving.triton import Triton
from serving.version import VERSION

ROOT = Path(__file__).parents[1]
GENERATED = re.compile(r"(<!-- generated: (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    """Return the README and all pages of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def write() -> list[Path]:
    """Write the generated parts of all pages, and return the pages that changed."""
    texts = {page: page.read_text() for page in pages()}
    changed = {page: new for page, text in texts.items() if (new := filled(text)) != text}
    for page, text in changed.items():
        page.write_text(text)
    return list(changed)


def filled(text: str) -> str:
    """Return the text of a page with its generated parts made anew."""
    return GENERATED.sub(lambda found: f"{found[1]}\n{part(found[2])}\n\n{found[4]}", text)


def part(name: str) -> str:
    """Return a generated part as Markdown."""
    return (PARTS[name]() if name in PARTS else markdown(*table(name))).strip()


def settings() -> str:
    """Return the settings of the service as a table."""

    def default(value: object) -> str:
        return "" if value in {(), "", None} else f"`{value}`"

    rows = [
        (f"`PETROV_{name.upper()}`", default(field.default), field.description or "")
        for name, field in Settings.model_fields.items()
    ]
    return markdown(("variable", "default", "meaning"), rows)


def routes() -> str:
    """Return the routes of the gateway as a table, from its OpenAPI document."""
    with tempfile.TemporaryDirectory() as folder:
        paths = create_app(Settings.model_construct(repository=Path(folder)), Triton("127.0.0.1:8000", 1)).openapi()[
            "paths"
        ]
    rows = []
    for path, operations in paths.items():
        for method, operation in operations.items():
            query = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
            described = " ".join(operation.get("description", operation["summary"]).split("\n\n")[0].split())
            rows.append((f"`{method.upper()} {path}`", ", ".join(f"`{name}`" for name in query), described))
    return markdown(("route", "query", "purpose"), rows)


def problems() -> str:
    """Return the kinds of errors as a table."""
    rows = [(f"`{slug}`", str(kind.status), kind.meaning) for slug, kind in KINDS.items()]
    return markdown(("name", "status", "when"), rows)


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
    instruments = [*vars(found).values(), *found.catalogue]
    described = [(each, family) for each in instruments for family in getattr(each, "describe", list)()]
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


def all_tables() -> str:
    """Return every table under its title."""
    shown = [f"## {each.title}\n\n{part(name)}" for name, each in TABLES.items() if name != README]
    found = [
        f"### {name.partition(' ')[2].capitalize()}\n\n{markdown(*made).strip()}"
        for name, made in memorisation().items()
    ]
    return "\n\n".join([*shown, "## Memorisation", *found])


def all_cards() -> str:
    """Return the cards of the released models, each under its name."""

    def section(card: dict[str, Any]) -> str:
        return "\n\n".join(f"**{name.replace('_', ' ')}**\n\n{shown(value)}".strip() for name, value in card.items())

    return "\n\n".join(f"## {name}\n\n{section(card)}" for name, card in cards().items())


def shown(value: Any) -> str:
    """Return a list of objects as a table, an object as a list with its tables behind it, and other values as text."""
    if isinstance(value, dict):
        named = [(name.replace("_", " "), each) for name, each in value.items()]
        lines = "\n".join(f"- {name}:{below(each)}" for name, each in named if not is_table(each))
        return "\n\n".join([lines, *(f"*{name}*\n\n{shown(each)}".strip() for name, each in named if is_table(each))])
    if not is_table(value):
        return cell(value)
    columns = list(dict.fromkeys(column for row in value for column in row))
    return markdown(columns, [[cell(row.get(column, "")) for column in columns] for row in value])


def below(value: Any) -> str:
    """Return a value as text behind its name, an object of sentences as a list of its own."""
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        return "".join(f"\n    - {name}: {each}" for name, each in value.items())
    return f" {cell(value)}"


def is_table(value: Any) -> bool:
    """Return whether a value is a list of objects."""
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def cell(value: Any) -> str:
    """Return a value as text."""
    if isinstance(value, dict):
        return "; ".join(f"{name.replace('_', ' ')}: {cell(each)}" for name, each in value.items())
    if isinstance(value, list):
        is_grid = len(value) == 2 and all(isinstance(each, int) for each in value)
        return " x ".join(map(cell, value)) if is_grid else ", ".join(map(cell, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


PARTS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "routes": routes,
    "problems": problems,
    "alerts": alerts,
    "metrics": metrics,
    "tables": all_tables,
    "cards": all_cards,
}
