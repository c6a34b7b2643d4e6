"""The playground of models of numbers: outputs with intervals, units and truths, and parameters as the only inputs."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect
from safetensors.numpy import load_file

from schema.parts import Axis, locations
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


@pytest.fixture(scope="module")
def modules(browser: Browser, service: Gateway) -> Iterator[Page]:  # noqa: F811  as above
    """Open one page for the tests that import its modules alone."""
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


@pytest.mark.parametrize(
    ("points", "across"),
    [("left", "x 0, y 0.25"), ("cells", "x 0.25, y 0.375"), ("nodes", "x 0, y 0.333")],
)
def test_a_reading_says_where_its_point_lies(modules: Page, points: Any, across: str) -> None:
    axes = (Axis(name="x", length=2, points=points), Axis(name="y", length=1, points=points))
    script = """async ([points, lengths]) => {
      const { axes } = await import("./playground/card.js");
      const { Picture } = await import("./playground/picture.js");
      const picture = new Picture(document.createElement("div"));
      picture.axes = axes({ inputs: [], grid: { axes: ["x", "y"], lengths, points } });
      return picture.reading({ shape: [4, 4], data: new Float32Array(16).fill(7) }, [0.1, 0.3]);
    }"""
    assert modules.evaluate(script, [locations(axes), [axis.length for axis in axes]]) == f"{across}: 7"


def test_an_error_says_of_which_samples_it_is(modules: Page) -> None:
    script = """async ([shape, row]) => {
      const { trust, worth } = await import("./playground/card.js");
      const coarse = { grid: [64], fields: 9, relative_l2: 0.01 };
      const errors = [coarse, { grid: [128], fields: 32, relative_l2: 0.029, ...row }];
      const card = { inputs: [], outputs: [], errors, training: { distribution: "the 448 training samples" } };
      return [worth(card, shape, 0).text, trust(card, shape, { kind: "own" }).at(-1).text];
    }"""
    found, source = modules.evaluate(script, [[128], {"frames": 20}])
    assert found == "Mean error 2.9 % over the first 20 frames on 32 test fields"
    assert source.endswith("those of test samples like the training's: the 448 training samples.")
    assert modules.evaluate(script, [[128], {}])[0] == "Mean error 2.9 % on 32 test fields"
    assert modules.evaluate(script, [[500], {}])[0] == "Mean error 2.9 % on 32 test fields of 128 points"


def test_numbers_have_the_digits_that_they_need(modules: Page) -> None:
    script = """async (shares) => {
      const { percent } = await import("./playground/numbers.js");
      return shares.map(percent);
    }"""
    shares = {
        0: "0 %",
        7.3e-8: "7.3 \N{MULTIPLICATION SIGN} 10⁻⁶ %",
        8.9e-6: "8.9 \N{MULTIPLICATION SIGN} 10⁻⁴ %",
        0.00145: "0.14 %",
        1.6: "160 %",
        1.26e9: "1.3 \N{MULTIPLICATION SIGN} 10¹¹ %",
    }
    assert modules.evaluate(script, list(shares)) == list(shares.values())
    script = """async (ranges) => {
      const { ends, short } = await import("./playground/numbers.js");
      return ranges.map(([low, high]) => [...ends([low, high]), short(low + 0.25 * (high - low), high - low)]);
    }"""
    texts = {  # of ranges whose ends would be the same to three digits, and of others
        (293.0, 293.75): ["293", "293.75", "293.188"],
        (101325, 101329): ["1.01325 x 10⁵", "1.01329 x 10⁵", "1.01326 x 10⁵"],
        (1.001e-9, 1.002e-9): ["1.001 x 10⁻⁹", "1.002 x 10⁻⁹", "1.00125 x 10⁻⁹"],
        (-1e-8, 12.3456): ["0", "12.3", "3.09"],
        (0, 250): ["0", "250", "62.5"],
        (5, 5): ["5", "5", "5"],
    }
    found = modules.evaluate(script, [list(each) for each in texts])
    assert [[each.replace("\N{MULTIPLICATION SIGN}", "x") for each in row] for row in found] == list(texts.values())


def test_a_parameter_is_named_with_its_sign(modules: Page) -> None:
    script = """async (parameters) => {
      const { label } = await import("./playground/card.js");
      return parameters.map(([name, meaning]) => label({ name, meaning }));
    }"""
    named = {
        ("viscosity", "nu"): "Viscosity \N{GREEK SMALL LETTER NU}",
        ("viscosity", "viscosity nu"): "Viscosity \N{GREEK SMALL LETTER NU}",
        ("nu", ""): "\N{GREEK SMALL LETTER NU}",
        ("kappa", "kappa"): "κ",
        ("length", "period L"): "Period L",
        ("time", "time t of the final velocity"): "Time t of the final velocity",
        ("inflow", ""): "Inflow",
    }
    assert modules.evaluate(script, [list(each) for each in named]) == list(named.values())


def test_an_estimate_promises_nothing_for_inputs_unlike_the_training_data(modules: Page) -> None:
    script = """async (outside) => {
      const { badges } = await import("./playground/quality.js");
      return badges({ estimate: 0.006, outside }, { text: "held for 92 % of 80 test samples", holds: true })[0];
    }"""
    inside, outside = (modules.evaluate(script, each) for each in (False, True))
    assert (inside["value"], inside.get("care")) == ("≤ 0.6 %", None)
    assert (outside["value"], outside["care"]) == ("0.6 %", True)
    assert outside["note"] == "it held for 92 % of 80 test samples, which were like the training data"


def test_a_frame_has_its_own_quality(modules: Page) -> None:
    script = """async (frame) => {
      const { badges, ofFrame } = await import("./playground/quality.js");
      const reported = { error_estimate: [[0.01, null]], novelty: [[0.5, 0.002]], outside: [[false, true]] };
      const whole = { estimate: 0.3, novelty: 0.002, outside: true }; // of the worst frame, as in the headers
      return badges(ofFrame(whole, reported, frame), null).map(({ title, value }) => [title, value]);
    }"""
    assert modules.evaluate(script, 0) == [["Error estimate", "≤ 1 %"], ["State", "inside"]]
    assert modules.evaluate(script, 1) == [["State", "outside"]]


@pytest.mark.parametrize("dtype", ["<i8", ">i8", "<u8", "<f8", "|i1"])
def test_arrays_of_numpy_are_read(modules: Page, dtype: str) -> None:
    file = io.BytesIO()
    np.save(file, np.array([[3, 12], [100, 0]], dtype))
    script = """async (bytes) => {
      const { decode } = await import("./playground/npy.js");
      const { shape, data } = decode(Uint8Array.from(bytes).buffer, 4);
      return [shape, [...data]];
    }"""
    assert modules.evaluate(script, list(file.getvalue())) == [[2, 2], [3, 12, 100, 0]]


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


def test_errors_on_a_masked_grid_are_of_the_domain(modules: Page) -> None:
    script = """async (beyond) => {
      const { truthIn } = await import("./playground/samples.js");
      const { errors } = await import("./playground/result.js");
      const card = { mask: "inside", outputs: [{ name: "u" }, { name: "lift", scalar: true }] };
      const field = (...data) => ({ shape: [2, 2], data: Float32Array.from(data) });
      const found = { inside: field(0, 1, 1, 1), u: field(beyond, 3, 0, 4), lift: { shape: [], data: [7] } };
      const truth = truthIn(found, card);
      return [errors(card, { u: field(0, 3, 0, 9) }, { outputs: truth })[0].error, truth.lift.data[0]];
    }"""
    assert modules.evaluate(script, -9999) == [1.0, 7]


def test_a_field_keeps_its_place_on_another_grid(modules: Page) -> None:
    script = """async ([values, grid, lie]) => {
      const { resized } = await import("./playground/fields.js");
      const shape = Array.isArray(values[0]) ? [values.length, values[0].length] : [values.length];
      return [...resized({ shape, data: Float32Array.from(values.flat()) }, grid, lie).data];
    }"""

    def wave(points: int, lie: str) -> Any:
        at = {"left": np.arange(points) / points, "cells": (np.arange(points) + 0.5) / points}
        return np.cos(2 * np.pi * at.get(lie, np.arange(points) / (points - 1)))

    for lie in ("left", "cells", "nodes"):
        found = modules.evaluate(script, [wave(64, lie).tolist(), [1024], [lie]])
        np.testing.assert_allclose(found, wave(1024, lie), atol=3e-3)
    columns = modules.evaluate(script, [[[1.0, 2.0]], [1, 4], ["left", "left"]])
    assert columns == [1, 2, 2, 1]  # those at 0, 1/4, 1/2 and 3/4 of the period
    assert modules.evaluate(script, [[[1.0, 2.0]], [1, 4], ["cells", "cells"]]) == [1, 1, 2, 2]


def test_a_curve_is_whole_where_its_points_are(modules: Page) -> None:
    script = """async ([count, points, changes]) => {
      const { Curve } = await import("./playground/curve.js");
      const curve = new Curve(document.createElement("div"));
      curve.axes = [{ name: "x", ends: [0, 2], points }];
      const data = new Float32Array(count);
      for (const [at, value] of changes) data[at] = value ?? NaN;
      curve.show({ shape: [count], data }, [0, 1]);
      return [curve.line.getAttribute("d"), ...[0, 1].map((end) => curve.reading({ data }, [0, end]))];
    }"""
    path, first, last = modules.evaluate(script, [8192, "left", [[4001, 1.0]]])
    assert " 0.0L" in path  # the only point that is not 0, between those of every eighth
    assert path.count("L") < 2100
    path, first, last = modules.evaluate(script, [5, "nodes", [[2, None]]])
    assert path == "M0.0 1000.0L250.0 1000.0M750.0 1000.0L1000.0 1000.0"  # no line over what is outside the domain
    assert (first, last) == ("x 0: 0", "x 2: 0")
    path, first, last = modules.evaluate(script, [4, "cells", []])
    assert path.startswith("M125.0 ")
    assert (first, last) == ("x 0.25: 0", "x 1.75: 0")
    assert modules.evaluate(script, [4, "left", []])[2] == "x 1.5: 0"


def test_what_the_service_is_too_busy_for_is_said_and_tried_again(page: Page) -> None:
    shown(page, toy_waves.WAVES)
    full = {"status": 503, "headers": {"Retry-After": "1"}}  # as a gateway without a file for another connection
    page.route("**/predict*", lambda route: route.fulfill(**full), times=1)
    page.locator("#parameters input[type=number]").first.fill("1.5")
    expect(page.locator("#banner")).to_contain_text("The page tries again in 1 s.")
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator("[data-role=prediction][data-name=height]")).to_have_attribute("data-state", "fresh")
