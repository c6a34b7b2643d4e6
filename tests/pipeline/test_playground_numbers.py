"""The playground of models whose outputs are numbers: each with its interval, its units and the truth of a sample."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests import toy_numbers
from tests.conftest import Gateway, RunService

PATIENCE = 90_000
PICTURES = Path("test-artefacts/playground")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, run_service: RunService) -> Iterator[Gateway]:
    repository = tmp_path_factory.mktemp("numbers") / "model_repository"
    toy_numbers.add(repository)
    with run_service(repository) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None and "CI" not in os.environ:
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser, service: Gateway) -> Iterator[Page]:
    found, errors = browser.new_page(viewport={"width": 1440, "height": 900}), list[str]()
    found.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    found.on("pageerror", lambda error: errors.append(str(error)))
    found.goto(f"{service.url}/")
    yield found
    found.close()
    assert errors == []


def shown(page: Page, model: str) -> list[tuple[str, str, str]]:
    """Return name, number and note of every number, once there are some."""
    page.select_option("#model", model)
    expect(page.locator("#numbers")).to_have_attribute("data-state", "fresh")
    expect(page.locator("#numbers dt").first).to_be_visible()
    texts = (page.locator(f"#numbers {part}").all_inner_texts() for part in ("dt", "dd:not(.note)", "dd.note"))
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"numbers-{model}.png", full_page=True)
    return [*zip(*texts, strict=True)]


def test_numbers_are_shown_with_their_intervals_beside_the_fields(page: Page) -> None:
    found = shown(page, toy_numbers.PLATE)
    expected = toy_numbers.compute(**toy_numbers.samples())
    mass, *force = expected["mass"][0], *expected["force"][0]
    assert [name for name, _, _ in found] == ["Mass", "Force, x", "Force, y"]
    assert found[0][1] == f"{mass:.2f} ± {toy_numbers.HALF * mass:.2f} kg"
    for value, (_, text, note) in zip(force, found[1:], strict=True):
        half = toy_numbers.HALF * value
        digits = 1 if half >= 1 else 2
        assert text == f"{value:.{digits}f} ± {half:.{digits}f} N"
        assert f"true: {value:.{digits}f} N" in note
    assert "the interval held 90 % of 50 test samples" in found[0][2]
    assert "the interval held 88 % of 50 test samples" in found[1][2]
    expect(page.locator("[data-role=prediction]")).to_have_count(1)
    expect(page.locator("#left-out")).to_be_hidden()
    assert "error over the deviation from the mean: 7 %" in page.inner_text("#measured-others")
    assert page.inner_text("#worth") == "Mean error 2 %, 7 % of the deviation from the mean, on 50 test fields"
    assert "; 0 % of the deviation from the mean" in page.inner_text("#error-note")
    page.get_by_label("Load, x (kN)").fill("4")  # a parameter of two numbers
    page.get_by_label("Load, x (kN)").blur()
    expect(page.locator("#numbers dd:not(.note)").nth(1)).to_have_text("8.0 ± 2.0 N")
    expect(page.locator("#numbers dd.note").nth(1)).not_to_contain_text("true")


def test_a_number_may_be_all_that_is_predicted(page: Page) -> None:
    [(name, text, note)] = shown(page, toy_numbers.MASS)
    mass = float(np.mean(toy_numbers.samples()["thickness"][0]))
    assert (name, text) == ("Mass", f"{mass:.2f} ± {toy_numbers.HALF * mass:.2f} kg")
    assert f"true: {mass:.2f} kg" in note
    expect(page.locator("[data-role=prediction]")).to_have_count(0)
    assert "Error estimate" not in page.locator("#quality").inner_text()  # which would be a share
    expect(page.locator("#error")).to_have_text("0 %")
    assert "deviations" in page.inner_text("#error-note")
