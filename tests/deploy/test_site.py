"""Build the documentation without a warning, with every link and anchor checked and nothing loaded from other hosts."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

pytestmark = pytest.mark.deep

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # hides an advertisement
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def site(built: Path) -> dict[str, str]:
    """Return the pages of the site by name."""
    return {str(page.relative_to(built)): page.read_text() for page in built.rglob("*.html")}


def test_pages_load_nothing_from_other_hosts(site: dict[str, str]) -> None:
    fetched = r'<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//[^"]*"|<link[^>]*\shref="(?:https?:)?//[^"]*"'
    assert {name: found for name, page in site.items() if (found := re.findall(fetched, page))} == {}


def test_formulas_become_mathml(site: dict[str, str]) -> None:
    assert {name for name, page in site.items() if re.search(r":math:|\.\. math::|#!math|<merror", page)} == set()
    for name in ("attention", "networks", "physics"):
        assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in site[f"reference/{name}.html"]


def test_generated_parts_are_shown(site: dict[str, str]) -> None:
    shown = {
        "operate": "<code>PETROV_PORT</code>",
        "routes": "<code>GET /v1/models</code>",
        "accuracy": "<th>grid</th>",
    }
    shown |= {"reference/cards": '<h2 id="burgers_exact">', "reference/metrics": "<code>petrov_ready</code>"}
    assert {page: text for page, text in shown.items() if text not in site[f"{page}.html"]} == {}


def test_notebooks_are_shown_with_their_outputs(site: dict[str, str], built: Path) -> None:
    for source in (ROOT / "docs").glob("*.ipynb"):
        page = site[f"notebooks/{source.stem}.html"]
        for picture in re.findall(r'<img alt="output of the cell above" src="([^"]+)"', page):
            assert (built / "notebooks" / picture).read_bytes().startswith(b"\x89PNG")
        cells = json.loads(source.read_text())["cells"]
        assert page.count('alt="output of the cell above"') == sum("image/png" in str(each) for each in cells) > 0
    assert 'href="notebooks/tutorial.html"' in site["usage.html"]
    assert "they differ by" in site["notebooks/tutorial.html"]
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML"' in site["notebooks/tutorial.html"]


def test_pages_are_searched_and_tables_scroll_without_a_server(built: Path) -> None:
    if (program := shutil.which("chromium")) is None and "CI" not in os.environ:
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        for name in ("closed-form", "reference/networks", "reference/physics", "reference/cards"):
            page.goto(f"{built.as_uri()}/{name}.html")
            assert page.evaluate("() => document.documentElement.scrollWidth") == 390, name
        assert page.evaluate("() => document.querySelector('.md-typeset__scrollwrap').scrollWidth") > 390
        page.locator("label[for=__search]").first.click()
        expect(page.locator(".md-search-result")).to_contain_text("Type to start searching")
        page.locator(".md-search__input").press_sequentially("delayed acceptance")
        expect(page.locator(".md-search-result")).to_contain_text("Sampling a posterior")
        browser.close()


def test_the_readme_is_the_front_page(site: dict[str, str]) -> None:
    assert 'href="operate.html"' in site["index.html"]
    assert 'href="contributing.html"' in site["index.html"]
    assert 'src="flow.svg"' in site["index.html"]


def test_a_formula_of_a_docstring_becomes_markdown() -> None:
    formulas = runpy.run_path(str(ROOT / "docs/site/formulas.py"))
    found = formulas["markdown"]("Say :math:`a\n+ b`.\n\n.. math::\n    x = y,\n    z\n\nwith x.\n")
    assert found == "Say `#!math a + b`.\n\n\n```math\nx = y,\nz\n```\n\n\nwith x.\n"
    assert "<msqrt>" in formulas["display"](r"\sqrt{2}")
