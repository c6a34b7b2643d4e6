"""What the modules of the playground compute, each by itself: the page is served from its folder, without a service."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Error, Page, Request, Route
from safetensors.numpy import load, save

from schema.parts import Axis, locations
from serving.app import PLAYGROUND_FOLDER
from tests.pipeline.conftest import PATIENCE
from tests.pipeline.test_playground import browser  # noqa: F401  a fixture

ADDRESS = "http://playground.test"


@pytest.fixture(scope="module")
def modules(browser: Browser) -> Iterator[Page]:  # noqa: F811  as above
    """Open the page, which reaches no service."""

    def answer(route: Route) -> None:
        path = route.request.url.removeprefix(f"{ADDRESS}/").removeprefix("playground/") or "index.html"
        file = PLAYGROUND_FOLDER / path
        if file.is_file():
            route.fulfill(path=file)
        else:
            route.fulfill(status=404)

    page, errors = browser.new_page(), list[str]()
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.route(f"{ADDRESS}/**", answer)
    page.goto(f"{ADDRESS}/")
    yield page
    page.close()
    assert errors == []


@pytest.mark.parametrize(
    ("points", "ends", "across"),
    [
        ("left", [], "x 0, y 0.25"),
        ("cells", [], "x 0.25, y 0.375"),
        ("nodes", [], "x 0, y 0.333"),
        ("left", [[-1, 0.5], [5, 4.25]], "x \N{MINUS SIGN}1, y 4.75"),  # where the training data lie: one axis falls
        ("cells", [[-0.75, 0.75], [4.875, 4.125]], "x \N{MINUS SIGN}0.75, y 4.63"),
        ("nodes", [[-1000, 1000], [5, 4]], "x 0, y 4.67"),  # in other units than the length
    ],
)
def test_a_reading_says_where_its_point_lies(modules: Page, points: Any, ends: Any, across: str) -> None:
    axes = (Axis(name="x", length=2, points=points), Axis(name="y", length=1, points=points))
    script = """async ([points, lengths, ends]) => {
      const { axes } = await import("./playground/card.js");
      const { Picture } = await import("./playground/picture.js");
      const picture = new Picture(document.createElement("div"));
      picture.axes = axes({ inputs: [], grid: { axes: ["x", "y"], lengths, points, ends } });
      return picture.reading({ shape: [4, 4], data: new Float32Array(16).fill(7) }, [0.1, 0.3]);
    }"""
    assert modules.evaluate(script, [locations(axes), [axis.length for axis in axes], ends]) == f"{across}: 7"


def test_an_error_says_of_which_samples_it_is(modules: Page) -> None:
    script = """async ([shape, row]) => {
      const { trust, worth } = await import("./playground/published.js");
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


def test_a_bound_is_never_shown_smaller_than_it_is(modules: Page) -> None:
    script = """async (bounds) => {
      const { badges } = await import("./playground/quality.js");
      return bounds.map((bound) => badges({ bound }, null)[0].value);
    }"""
    bounds = {0.003: "≤ 0.3 %", 0.00145: "≤ 0.15 %", 7.34e-8: "≤ 7.4 \N{MULTIPLICATION SIGN} 10⁻⁶ %"}
    assert modules.evaluate(script, list(bounds)) == list(bounds.values())


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


def test_an_equation_has_all_its_powers(modules: Page) -> None:
    script = """async (equations) => {
      const { typeset } = await import("./playground/equation.js");
      const text = (node) => (node.tagName === "SUP" ? `^${node.textContent}` : (node.textContent ?? node));
      return equations.map((equation) => typeset(equation).map(text).join(""));
    }"""
    shown = {
        "u_t = laplace(u^m)": "ut = ∆(u^m)",
        "p = k kappa^delta": "p = k κ^δ",
        "u^-2 + u^(n+1)": "u^\N{MINUS SIGN}2 + u^(n+1)",
    }
    assert modules.evaluate(script, list(shown)) == list(shown.values())


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
      const array = (...data) => ({ shape: [1, 2], data: Float32Array.from(data) });
      const reported = { error_estimate: array(0.01, NaN), novelty: array(0.5, 0.002), outside: array(0, 1) };
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


def test_arrays_go_to_the_service_and_back_as_bytes(modules: Page) -> None:
    """In JSON, meshes of a million points are beyond the service's limit."""
    sent: list[Request] = []

    def answer(route: Route) -> None:
        sent.append(route.request)
        known = {"error_estimate": np.float32([np.nan]), "outside": np.ones(1, bool)}
        headers = {"Content-Type": "application/vnd.safetensors", "Server-Timing": "gateway;dur=1.5, triton;dur=2"}
        route.fulfill(body=save({"u": np.float32([[1, 2.5], [3, 4]]), **known}), headers=headers)

    script = """async () => {
      const { predict } = await import("./playground/api.js");
      const array = (shape, ...data) => ({ shape, data: Float32Array.from(data) });
      const inputs = { a: array([2, 2], 1, 2, 3, 4), time: array([], 7) };
      const { outputs, processor } = await predict("heat", 3, inputs, undefined, [12, 16]);
      const shown = Object.entries(outputs).map(([name, { shape, data }]) => [name, [shape, String(data)]]);
      return [Object.fromEntries(shown), processor];
    }"""
    modules.route(f"{ADDRESS}/v1/**", answer)
    outputs, processor = modules.evaluate(script)
    modules.unroute(f"{ADDRESS}/v1/**")
    assert outputs == {"u": [[2, 2], "1,2.5,3,4"], "error_estimate": [[1], "NaN"], "outside": [[1], "1"]}
    assert processor == 3.5
    [request] = sent
    assert request.url == f"{ADDRESS}/v1/models/heat/versions/3/predict?grid=12,16"
    assert request.headers["content-type"] == "application/vnd.safetensors"
    arrays = load(request.post_data_buffer or b"")
    assert {name: array.tolist() for name, array in arrays.items()} == {"a": [[1, 2], [3, 4]], "time": 7}


READ = """async ([name, bytes, card]) => {
  const { read } = await import("./playground/files.js");
  const { arrays } = await read([new File([Uint8Array.from(bytes)], name)], card);
  const shown = ([key, array]) => [key, array && [array.shape, [...array.data]]];
  return Object.fromEntries(Object.entries(arrays).map(shown));
}"""
STATE = {"name": "state", "axes": ["batch", "history", "row", "column"], "shape": [None, 2, None, None]}
FRAMES = {"inputs": [STATE], "outputs": [], "grid": {"maximum": 4, "axes": ["row", "column"]}, "frames": {"maximum": 9}}
CLOUD: dict[str, Any] = {
    "inputs": [{"name": "coordinates", "axes": ["batch", "point", "component"], "shape": [None, None, 2]}],
    "outputs": [{"name": "u", "axes": ["batch", "point"], "shape": [None, None]}],
    "parameters": [{"name": "counts", "axes": ["batch"]}],
    "grid": {"maximum": 9, "axes": ["point"]},
}


@pytest.mark.parametrize("name", ["mine.npz", "MINE.NPZ", "mine.safetensors"])
def test_archives_are_read_whatever_else_they_hold(modules: Page, name: str) -> None:
    def content(**arrays: np.ndarray) -> list[int]:
        if name == "mine.safetensors":
            return list(save(arrays))
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, names=np.array(["a", "b"]), **arrays)
        return list(file.getvalue())

    state = np.arange(32, dtype=np.float64).reshape(1, 2, 4, 4)  # a batch of one on the largest grid
    found = modules.evaluate(READ, [name, content(state=state, others=np.zeros(99)), FRAMES])
    assert found["state"] == [[2, 4, 4], [*range(32)]]
    assert found["others"] is None
    truth = "outputs.u" if name == "mine.safetensors" else "u"
    points = {"coordinates": np.eye(3, 2), "counts": np.array(2), truth: np.arange(3)}
    found = modules.evaluate(READ, [name, content(**points), CLOUD])
    assert (found["coordinates"], found["u"]) == ([[2, 2], [1, 0, 0, 1]], [[2], [0, 1]])  # without padding
    assert "xy" in modules.evaluate(READ, [name, content(xy=np.eye(3, 2)), CLOUD])
    with pytest.raises(Error, match="state: expected plain numbers such as"):
        modules.evaluate(READ, [name, content(state=np.zeros((2, 4, 4), np.float16)), FRAMES])
    with pytest.raises(Error, match="this is not a"):
        modules.evaluate(READ, [name, list(b"no such file"), FRAMES])


def test_a_file_without_a_parameter_leaves_the_number_that_was_entered(modules: Page) -> None:
    script = """async () => {
      const { Inputs } = await import("./playground/inputs.js");
      const inputs = new Inputs({ changed() {}, moved() {}, sliced() {} });
      const tensor = { name: "a", axes: ["batch", "row", "column"], shape: [null, null, null] };
      const parameters = [{ name: "wind", minimum: 0, maximum: 1 }, { name: "time", default: 1 }];
      inputs.open({ inputs: [tensor], outputs: [], parameters, grid: { axes: ["row", "column"], points: "" } }, "");
      const arrays = { a: { shape: [2, 2], data: Float32Array.of(1, 2, 3, 4) } };
      inputs.set({ fields: arrays, parameters: { wind: 0.9, time: 5 }, origin: { kind: "own" }, truth: null });
      inputs.set(inputs.read(arrays));
      return inputs.sample.parameters;
    }"""
    assert modules.evaluate(script) == {"wind": 0.9, "time": 1}


def test_an_output_without_a_truth_is_compared_with_none(modules: Page) -> None:
    script = """async () => {
      const { Outputs } = await import("./playground/outputs.js");
      const tensor = (name) => ({ name, axes: ["batch", "row", "column"], shape: [null, null, null] });
      const grid = { axes: ["row", "column"], points: "" };
      const card = { inputs: [], outputs: [tensor("heat"), tensor("flux")], grid };
      const field = () => ({ shape: [2, 2], data: Float32Array.of(1, 2, 3, 4) });
      const outputs = new Outputs(document.createElement("div"));
      outputs.open(card, "forward", false, false);
      const state = ({ figure }) => figure.dataset.state;
      const states = () => outputs.rows.map(({ classical, difference }) => [classical, difference].map(state));
      const about = () => outputs.rows[0].classical.figure.querySelector(".about").textContent;
      return [["heat", "flux"], ["heat"]].map((known) => {
        outputs.age("classical", "difference");
        const fields = Object.fromEntries(known.map((name) => [name, field()]));
        const truth = { kind: "sample", source: "file", outputs: fields };
        outputs.show({ heat: field(), flux: field() }, truth, {}, { base: null, whole: {}, drawn: {}, when: "" });
        return [states(), about()];
      });
    }"""
    fresh, empty = ["fresh", "fresh"], ["empty", "empty"]
    said = "true, of the file"
    assert modules.evaluate(script) == [[[fresh, fresh], said], [[fresh, empty], said]]
