"""Build the documentation without a warning, with every link and anchor checked and nothing loaded from other hosts."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.tables import README, TABLES, table
from serving.app import create_app
from serving.observe import Metrics
from serving.settings import Settings
from serving.triton import Triton
from serving.version import VERSION

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the pages of the site by name."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # hides an advertisement
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {str(page.relative_to(folder)): page.read_text() for page in folder.rglob("*.html")}


def test_pages_load_nothing_from_other_hosts(site: dict[str, str]) -> None:
    fetched = r'<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//[^"]*"|<link[^>]*\shref="(?:https?:)?//[^"]*"'
    assert {name: found for name, page in site.items() if (found := re.findall(fetched, page))} == {}


def test_formulas_become_mathml(site: dict[str, str]) -> None:
    assert {name for name, page in site.items() if re.search(r":math:|\.\. math::|#!math|<merror", page)} == set()
    for name in ("attention", "networks", "physics"):
        assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in site[f"reference/{name}.html"]


def test_settings_routes_alerts_metrics_and_cards_are_complete(site: dict[str, str], tmp_path: Path) -> None:
    for setting in Settings.model_fields:
        assert f"<code>PETROV_{setting.upper()}</code>" in site["operate.html"]
    for path, operations in (
        create_app(Settings(repository=tmp_path), Triton("127.0.0.1:8000", 1)).openapi()["paths"].items()
    ):
        for method in operations:
            assert f"<code>{method.upper()} {path}</code>" in site["routes.html"]
    for alert in re.findall(r"- alert: (\w+)", (ROOT / "deploy/prometheus/alerts.yml").read_text()):
        assert f'<h3 id="{alert.lower()}">' in site["operate.html"]
    for family in Metrics(VERSION).registry.collect():
        assert f"<code>{family.name}" in site["reference/metrics.html"]
    for card in ROOT.glob("checkpoints/*/card.json"):
        assert f'<h2 id="{card.parent.name}">' in site["reference/cards.html"]


def test_every_page_shows_its_tables(site: dict[str, str]) -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        shown = site[str(page.relative_to(ROOT / "docs").with_suffix(".html"))]
        for name in re.findall(r"<!-- table: (.*?) -->", page.read_text()):
            header, _ = table(name)
            assert f"<th>{header[0]}</th>" in shown, name
        assert "<!-- table" not in shown
    for each in (each for name, each in TABLES.items() if name != README):
        assert each.title in site["reference/tables.html"]


def test_the_readme_is_the_front_page(site: dict[str, str]) -> None:
    assert 'href="operate.html"' in site["index.html"]
    assert 'href="contributing.html"' in site["index.html"]
    assert 'src="flow.svg"' in site["index.html"]


def test_a_formula_of_a_docstring_becomes_markdown() -> None:
    formulas = runpy.run_path(str(ROOT / "docs/site/formulas.py"))
    found = formulas["markdown"]("Say :math:`a\n+ b`.\n\n.. math::\n    x = y,\n    z\n\nwith x.\n")
    assert found == "Say `#!math a + b`.\n\n\n```math\nx = y,\nz\n```\n\n\nwith x.\n"
    assert "<msqrt>" in formulas["display"](r"\sqrt{2}")
