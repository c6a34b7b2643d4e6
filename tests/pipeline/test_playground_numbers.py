"""The playground of models of numbers: outputs with intervals, units and truths, and parameters as the only inputs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect
from safetensors.numpy import load_file

from tests import toy_numbers, toy_waves
from tests.conftest import Gateway, RunService
from tests.pipeline.test_playground import browser  # noqa: F401  a fixture

PATIENCE = 90_000
PICTURES = Path("test-artefacts/playground")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, run_service: RunService) -> Iterator[Gateway]:
    repository = tmp_path_factory.mktemp("numbers") / "model_repository"
    toy_numbers.add(repository)
    toy_waves.add(repository)
    with run_service(repository) as gateway:
        yield gateway


@contextmanager
def opened(chromium: Browser, service: Gateway) -> Iterator[Page]:
    """Open the playground; in the end no script of it has failed."""
    found, errors = chromium.new_page(viewport={"width": 1440, "height": 900}), list[str]()
    found.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    found.on("pageerror", lambda error: errors.append(str(error)))
    found.goto(f"{service.url}/")
    yield found
    found.close()
    assert errors == []


@pytest.fixture
def page(browser: Browser, service: Gateway) -> Iterator[Page]:  # noqa: F811  as above
    with opened(browser, service) as found:
        yield found


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


@pytest.mark.deep
def test_a_number_may_be_all_that_is_predicted(page: Page) -> None:
    [(name, text, note)] = shown(page, toy_numbers.MASS)
    mass = float(np.mean(toy_numbers.samples()["thickness"][0]))
    assert (name, text) == ("Mass", f"{mass:.2f} ± {toy_numbers.HALF * mass:.2f} kg")
    assert f"true: {mass:.2f} kg" in note
    expect(page.locator("[data-role=prediction]")).to_have_count(0)
    assert "Error estimate" not in page.locator("#quality").inner_text()  # which would be a share
    expect(page.locator("#error")).to_have_text("0 %")
    assert "deviations" in page.inner_text("#error-note")


def archive(page: Page, button: str) -> dict[str, np.ndarray]:
    """Return the arrays of a download."""
    with page.expect_download() as waiting:
        page.click(button)
    return dict(np.load(waiting.value.path()))


@pytest.mark.deep
def test_a_field_of_parameters_alone_is_shown_on_the_grid_that_is_chosen(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [(_, text, note)] = shown(page, toy_waves.WAVES)
    found = toy_waves.samples()
    lift = 2 * found["speed"][0]
    assert text == f"{lift:.2f} ± {toy_waves.HALF * lift:.2f} N"
    assert f"true: {lift:.2f} N" in note
    expect(page.locator("#left-out")).to_be_hidden()
    expect(page.locator("#error")).to_have_text(re.compile("^(0|[\\d.]+ \N{MULTIPLICATION SIGN} 10⁻[⁵⁶]) %$"))
    expect(page.locator("#grid")).to_have_value("12 \N{MULTIPLICATION SIGN} 16")
    for role in ("prediction", "classical", "difference"):
        expect(page.locator(f"[data-role={role}][data-name=height]")).to_have_attribute("data-state", "fresh")
    expect(page.locator("#stage [data-role=input]")).to_have_count(0)
    for tool in ("#size-row", "#fill", "#blobs", "#upload", "#swatches", "#random-row"):
        expect(page.locator(tool)).to_be_hidden()

    page.click("#sample-after")
    expect(page.locator("#sample")).to_have_text("Test sample 2 of 2")
    expect(page.locator("#numbers dd.note")).to_contain_text(f"true: {2 * found['speed'][1]:.2f} N")

    page.get_by_label("Speed (m/s), 0 to 4").fill("3")  # the slider
    page.get_by_label("Wind, y (m/s)").fill("1.5")
    page.select_option("#grid", "24 \N{MULTIPLICATION SIGN} 32")
    expect(page.locator("[data-role=prediction] .view > *").first).to_have_attribute(
        "aria-label", re.compile("24 by 32 points")
    )
    expect(page.locator("#numbers dd").first).to_have_text("6.0 ± 1.5 N")
    expect(page.locator("#numbers dd.note")).not_to_contain_text("true")
    expect(page.locator("#trust")).to_contain_text("The numbers are your own")
    page.screenshot(path=PICTURES / "numbers-waves-own.png", full_page=True)

    expected = toy_waves.compute(np.array([3.0]), np.array([[found["wind"][1][0], 1.5]]), toy_waves.OTHER)
    page.click("#tab-python")
    np.savez(tmp_path / "waves.npz", **archive(page, "#download-input"))
    results = [archive(page, "#download-output")]
    subprocess.run([sys.executable, "-c", page.inner_text("#program")], cwd=tmp_path, check=True)
    results.append(dict(np.load(tmp_path / "waves_output.npz")))
    page.click("#tab-shell")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    subprocess.run(["bash", "-ec", page.inner_text("#program")], cwd=tmp_path, check=True, capture_output=True)
    results.append(dict(np.load(tmp_path / "waves_output.npz")))
    for result in results:
        np.testing.assert_allclose(result["height"].reshape(toy_waves.OTHER), expected["height"][0], rtol=1e-5)
    page.click("#undo")
    page.click("#undo")
    expect(page.locator("#grid")).to_have_value("12 \N{MULTIPLICATION SIGN} 16")
    expect(page.locator("#numbers dd.note")).to_contain_text(f"true: {2 * found['speed'][1]:.2f} N")

    page.click("#sample-after")
    expect(page.locator("#sample")).to_have_text("Test sample 1 of 2")
    page.click("#tab-curl")
    expect(page.locator("#program")).to_contain_text("predict?grid=12,16")
    subprocess.run(["bash", "-ec", page.inner_text("#program")], cwd=tmp_path, check=True, capture_output=True)
    answer = load_file(tmp_path / "waves_output.safetensors")
    np.testing.assert_allclose(answer["height"], toy_waves.compute(**found, grid=toy_waves.GRID)["height"][0], 1e-5)


@pytest.mark.deep
def test_a_number_of_parameters_alone_has_no_grid(page: Page, tmp_path: Path) -> None:
    [(name, text, note)] = shown(page, toy_waves.LIFT)
    lift = 2 * toy_waves.samples()["speed"][0]
    assert (name, text) == ("Lift", f"{lift:.2f} ± {toy_waves.HALF * lift:.2f} N")
    assert f"true: {lift:.2f} N" in note
    for part in ("#grid-label", "#points-label"):
        expect(page.locator(part)).to_be_hidden()
    assert "grid" not in page.inner_text("#trust")
    page.set_viewport_size({"width": 390, "height": 844})
    page.screenshot(path=PICTURES / "numbers-lift-phone.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.get_by_label("Speed (m/s), 0 to 4").fill("3")
    expect(page.locator("#numbers dd").first).to_have_text("6.0 ± 1.5 N")
    page.click("#tab-python")
    np.savez(tmp_path / "lift.npz", **archive(page, "#download-input"))
    subprocess.run([sys.executable, "-c", page.inner_text("#program")], cwd=tmp_path, check=True)
    assert np.load(tmp_path / "lift.npy") == pytest.approx(6)
    page.select_option("#model", toy_waves.WAVES)
    expect(page.locator("[data-role=prediction][data-name=height]")).to_have_attribute("data-state", "fresh")
    page.screenshot(path=PICTURES / "numbers-waves-phone.png", full_page=True)


def test_a_prediction_that_is_late_is_marked_as_outdated(page: Page) -> None:
    shown(page, toy_waves.WAVES)
    prediction = page.locator("[data-role=prediction][data-name=height]")
    held: list[Route] = []
    page.route("**/predict*", lambda route: held.append(route))  # noqa: PLW0108  a builtin takes no mark
    page.locator("#parameters input[type=number]").first.fill("1.5")
    expect(prediction).to_have_attribute("data-state", "stale")
    expect(prediction).to_have_attribute("aria-busy", "true")
    expect(page.locator("#below")).to_have_attribute("aria-busy", "true")
    expect(page.locator("#download-output")).to_be_disabled()
    page.emulate_media(color_scheme="dark")  # draws everything again
    expect(prediction).to_have_attribute("data-state", "stale")
    held.pop().continue_()
    expect(prediction).to_have_attribute("data-state", "fresh")
    expect(page.locator("#below")).to_have_attribute("aria-busy", "false")


def test_a_field_that_is_emptied_is_no_number(page: Page) -> None:
    shown(page, toy_waves.WAVES)
    page.locator("#grid").select_option("other")
    page.fill("#points", "")
    page.press("#points", "Enter")
    assert not page.locator("#points").evaluate("field => field.validity.valid")
    page.locator("#parameters input[type=number]").first.fill("1.5")
    expect(page.locator("#trust")).to_contain_text("your own")
    expect(page.locator("#program")).to_contain_text("predict?grid=12,16")


def test_what_the_service_is_too_busy_for_is_said_and_tried_again(page: Page) -> None:
    shown(page, toy_waves.WAVES)
    full = {"status": 503, "headers": {"Retry-After": "1"}}  # as a gateway without a file for another connection
    page.route("**/predict*", lambda route: route.fulfill(**full), times=1)
    page.locator("#parameters input[type=number]").first.fill("1.5")
    expect(page.locator("#banner")).to_contain_text("The page tries again in 1 s.")
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator("[data-role=prediction][data-name=height]")).to_have_attribute("data-state", "fresh")
