"""The playground in a real browser with the released models: what a user does there, and what it must never do."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
import pytest
from playwright.sync_api import Browser, FloatRect, Locator, Page, Route, expect
from safetensors.numpy import load_file, save_file

import physics.darcy
from petrov_client import Client, ModelInfo
from serving.settings import Settings
from serving.version import VERSION
from tests import toy_fields, toy_gauges
from tests.conftest import Gateway, RunService, one_instance
from tests.pipeline.conftest import PATIENCE, open_browser
from tests.processes import below
from tests.reverse_proxy import published

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "serving" / "playground"
PICTURES = ROOT / "test-artefacts" / "playground"
FORWARD, INVERSE, CURVE = "darcy", "darcy_inverse", "burgers"
EXPRESSION, LETTERS = "listops", "memoriser"
SEVERAL, OPTIONAL, REPORTING = toy_fields.NAME, "drift_at_ease", "gauge"
METHOD, POOR = "burgers_exact", "drift_at_a_loss"
#: Test samples of the model that reports on itself: the second is unlike its training data.
GAUGED = np.stack([np.full((16, 16), 3.0), np.full((16, 16), 40.0)]).astype(np.float32)
#: How far what is seen has moved without the user since the page was opened: from 0.1 on, browsers call it poor.
SHIFTED = """() => new Promise((resolve) => {
  const shifts = (list) => list.getEntries().filter(({ hadRecentInput }) => !hadRecentInput);
  const sum = (list) => shifts(list).reduce((total, { value }) => total + value, 0);
  new PerformanceObserver((list) => resolve(sum(list))).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => resolve(0), 1000);
})"""
#: A control or a picture in Playwright's accessibility tree that has no name.
NAMELESS = re.compile(
    r"^\s*- (?:button|link|textbox|spinbutton|slider|checkbox|combobox|tab|tabpanel|application|img|group)\b(?! \")",
    re.MULTILINE,
)

#: Pages and files that differ from others here by what is drawn on them alone.
ALIKE = pytest.mark.deep

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def service(
    request: pytest.FixtureRequest,
    browser: Browser,
    tmp_path_factory: pytest.TempPathFactory,
    run_service: RunService,
) -> Iterator[Gateway]:
    """Serve the released models, which `make test` has installed, and toys; without deep tests those of the others."""
    assert browser.is_connected()  # requested first: without it nothing is started
    repository = tmp_path_factory.mktemp("playground") / "model_repository"
    own = [item for item in request.session.items if item.path == request.path]
    whole = any(item.get_closest_marker("deep") for item in own)
    for name in (FORWARD, INVERSE, CURVE, METHOD, EXPRESSION, LETTERS) if whole else (FORWARD,):
        shutil.copytree(ROOT / "model_repository" / name, repository / name)
    toy_fields.add(repository)
    toy_gauges.add(repository)
    if whole:
        add_others(repository)
    else:
        kept = {FORWARD, SEVERAL, REPORTING, f"{REPORTING}_refined"}
        for model in {path.name for path in repository.iterdir()} - kept:
            shutil.rmtree(repository / model)
    one_instance(repository)
    with card_of(repository, REPORTING) as card:
        held = {"grid": [16, 16], "fields": 80, "outside": 0.0}
        card["calibration"] = {"test": [held | {"coverage": 0.92}, {**held, "grid": [60, 60], "coverage": 0.32}]}
    save_file({"coefficient": GAUGED, "solution": GAUGED / 9}, repository / REPORTING / "1" / "examples.safetensors")
    with run_service(repository) as gateway:
        yield gateway


def add_others(repository: Path) -> None:
    """Add a model with optional inputs, and a poor one of guessed axes."""
    toy_fields.add(repository, OPTIONAL, velocity=0.5)
    toy_fields.add(repository, POOR, velocity=0.5)
    with card_of(repository, POOR) as card:
        card["outputs"][0] |= {"meaning": "density at the end", "positive": True}
        card["errors"] = [{"grid": list(toy_fields.GRID), "fields": 53, "relative_l2": 0.41, "relative_h1": 0.52}]
        card["grid"]["guessed"] = ["row.length", "row.boundary", "row.points", "column.length", "column.boundary"]
        card["measures"] = {"relative_l2": "relative L2 error", "relative_h1": "H1 error", "vrmse": "not measured"}


@contextmanager
def card_of(repository: Path, model: str) -> Iterator[dict[str, Any]]:
    """Change the card of a model."""
    file = repository / model / "1" / "card.json"
    card = json.loads(file.read_text())
    yield card
    file.write_text(json.dumps(card))


class Visit:
    """A user at the page: what they see, and errors and foreign requests, which must not happen."""

    def __init__(self, browser: Browser, url: str, **look: Any) -> None:
        look = {"viewport": {"width": 1440, "height": 900}, **look}
        self.context = browser.new_context(**look)
        self.context.set_default_timeout(PATIENCE)
        self.page: Page = self.context.new_page()
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda sent: None if self._own(sent.url, url) else self.foreign.append(sent.url))
        self.page.goto(url)

    @staticmethod
    def _own(requested: str, url: str) -> bool:
        return requested.startswith((f"{url}/", f"blob:{url}/", "data:"))

    @property
    def sentence(self) -> Locator:
        return self.page.locator("#sentence")

    def surface(self, role: str = "input", number: int = 0) -> Locator:
        return self.page.locator(f"[data-role={role}] .view > :first-child").nth(number)

    def panel(self, role: str) -> Locator:
        return self.page.locator(f"[data-role={role}]")

    def choose(self, model: str) -> None:
        self.page.select_option("#model", model)

    def settled(self, part: str) -> str:
        """Return the sentence once it contains a part and belongs to what is shown."""
        expect(self.sentence).to_contain_text(part)
        expect(self.panel("difference").first).to_have_attribute("data-state", "fresh")
        return self.sentence.inner_text()

    def labelled(self, part: str) -> str:
        """Return the label of the text once it contains a part and belongs to what is written."""
        section = self.page.locator("#sequence")
        expect(section.get_by_role("status")).to_contain_text(part)
        expect(section).to_have_attribute("data-state", "fresh")
        return section.get_by_role("status").inner_text()

    def drag(self, start: tuple[float, float], *stops: tuple[float, float], number: int = 0) -> None:
        """Press at a share (right, down) of the view of an input, move over the stops and let go."""
        self.page.evaluate("scrollTo(0, 0)")  # else the end of the page moves when panels without a truth leave
        self.surface(number=number).scroll_into_view_if_needed()
        box = self.surface(number=number).bounding_box()
        assert box is not None
        mouse = self.page.mouse
        mouse.move(*_within(box, start))
        mouse.down()
        for stop in stops:
            mouse.move(*_within(box, stop), steps=5)
        mouse.up()

    def picture(self, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png", full_page=True)

    def header_picture(self, name: str) -> None:
        """Take a picture from the top of the page to the end of the first row of panels."""
        box = self.panel("difference").first.bounding_box()
        assert box is not None
        end = self.page.evaluate("scrollY") + box["y"] + box["height"]
        clip = FloatRect(x=0, y=0, width=1440, height=end + 16)
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png", clip=clip, full_page=True)

    def download(self, button: str) -> Any:
        with self.page.expect_download() as waiting:
            self.page.click(button)
        return np.load(waiting.value.path())

    def archive(self, button: str) -> dict[str, np.ndarray]:
        return dict(self.download(button))


def _within(box: FloatRect, share: tuple[float, float]) -> tuple[float, float]:
    return box["x"] + share[0] * box["width"], box["y"] + share[1] * box["height"]


@pytest.fixture
def visit(browser: Browser, service: Gateway) -> Iterator[Callable[..., Visit]]:
    """Open the page; afterwards there are neither errors nor requests to other hosts."""
    visits: list[Visit] = []

    def opened(**look: Any) -> Visit:
        visits.append(Visit(browser, service.url, **look))
        return visits[-1]

    yield opened
    for each in visits:
        each.context.close()
        assert each.errors == []
        assert each.foreign == []


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


#: Files that are no field to draw on, and a part of the message.
REFUSED = {
    b"\x89PNG" + bytes(100): "not an .npy file",
    npy(np.array(["a", "b"])): "plain numbers",
    npy(np.ones((3, 20, 20))): "one field with axes row, column",
    npy(np.ones((20, 20)))[:-8]: "takes 3200 bytes",
    npy(np.ones((600, 600), np.float32)): "the largest grid takes",
    npy(np.ones((600, 600), np.uint8)): "the most is 177241",
}


def relative_l2(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def per_cent(text: str) -> float:
    return float(text.removesuffix("%")) / 100


@contextmanager
def connected(service: Gateway, model: str) -> Iterator[tuple[Client, ModelInfo]]:
    """Yield the client and its description of a model."""
    with Client(service.url) as client:
        yield client, client.model(model)


def predicted(service: Gateway, model: str, field: np.ndarray) -> np.ndarray:
    response = httpx2.post(
        f"{service.url}/v1/models/{model}/predict",
        content=npy(field),
        headers={"Content-Type": "application/x-npy"},
        timeout=60,
    )
    found: np.ndarray = np.load(io.BytesIO(response.raise_for_status().content))
    return found


def test_the_page_may_load_nothing_from_elsewhere(service: Gateway) -> None:
    with httpx2.Client(base_url=service.url) as http:
        page = http.get("/", headers={"Accept": "text/html"})
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        linked = re.findall(r'(?:src|href)="(playground/[^"]+)"', page.text)
        for path in ["", *linked, *(f"playground/{module.name}" for module in FOLDER.glob("*.js"))]:
            response = http.get(f"/{path}").raise_for_status()
            policy = dict(part.split(" ", 1) for part in response.headers["content-security-policy"].split("; "))
            assert policy["default-src"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
            again = http.get(f"/{path}", headers={"If-None-Match": response.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        for path in ("none.js", "..%2fapp.py", "%2e%2e/app.py"):
            assert http.get(f"/playground/{path}").status_code == 404


def test_the_page_knows_no_model_by_name() -> None:
    for path in FOLDER.iterdir():
        assert not re.search(
            r"darcy|burgers|drift|permeab|pressure|listops|memoris", path.read_text(), re.IGNORECASE
        ), path


def test_one_draws_and_sees_the_prediction_beside_the_solution(visit: Callable[..., Visit], service: Gateway) -> None:
    person = visit()
    first = person.settled("they differ by")
    person.picture("picture-light")
    before = person.download("#download-input")
    assert before.shape == (141, 141)
    person.page.click("#low")
    person.drag((0.2, 0.2), (0.8, 0.3), (0.3, 0.8))
    expect(person.sentence).not_to_have_text(first)
    person.settled("they differ by")
    person.header_picture("header")
    drawn = person.download("#download-input")
    assert np.unique(drawn).tolist() == np.unique(before).tolist() == [3.0, 12.0]
    assert (drawn != before).mean() > 0.02
    found = person.download("#download-output")
    np.testing.assert_array_equal(found, predicted(service, FORWARD, drawn))
    error = per_cent(person.page.inner_text("#error"))
    assert error == pytest.approx(relative_l2(found, physics.darcy.solve(drawn)), rel=0.1)  # two digits are shown
    assert "on this grid, which is itself 0.36 % off the truth" in person.page.inner_text("#error-note")
    for part in ("predict", "classical"):
        assert re.fullmatch(r"processor time; [\d.]+ m?s round trip", person.page.inner_text(f"#{part}-note"))
    assert "own" in person.page.inner_text("#trust")
    person.page.click("#undo")
    person.settled("they differ by")
    np.testing.assert_array_equal(person.download("#download-input"), before)
    assert "from the training distribution" in person.page.inner_text("#trust")


@pytest.mark.deep
def test_after_a_fill_the_brush_leaves_a_trace(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.settled("they differ by")
    person.page.click("#low")
    person.page.click("#fill")
    person.settled("they differ by")
    assert np.unique(person.download("#download-input")).tolist() == [3.0]
    person.drag((0.2, 0.2), (0.8, 0.3))
    person.settled("they differ by")
    assert np.unique(person.download("#download-input")).tolist() == [3.0, 12.0]
    about = person.panel("difference").locator(".about").inner_text()
    assert re.fullmatch(r"predicted . solved, up to [\d.]+ % of max", about)


@pytest.mark.deep
def test_the_page_and_the_documentation_are_whole_under_the_path_of_a_proxy(
    browser: Browser, service: Gateway, free_ports: Callable[[int], list[int]]
) -> None:
    says = {"X-Forwarded-Prefix": "/petrov"}
    with published(service.url, free_ports(1)[0], "/petrov", says) as url:
        person = Visit(browser, url)
        person.settled("they differ by")
        assert f"{url}/v1/models/{FORWARD}/predict" in person.page.inner_text("#program")
        person.page.click("nav >> text=API")
        person.page.click('[data-path="/health/live"]')
        person.page.click("text=Try it out")
        person.page.click("text=Execute")
        expect(person.page.locator(".request-url")).to_contain_text(f"{url}/health/live")
        expect(person.page.locator(".live-responses-table tbody .response-col_status")).to_contain_text("200")
        person.context.close()
        assert (person.errors, person.foreign) == ([], [url])  # the first of all, which the proxy redirects


@pytest.mark.deep
def test_the_page_ends_with_release_device_documentation_and_licence(
    visit: Callable[..., Visit], service: Gateway
) -> None:
    person = visit()
    expect(person.page.locator("#release")).to_have_text(VERSION)
    device = httpx2.get(f"{service.url}/v1/models").json()["device"]
    expect(person.page.locator("#device")).to_contain_text(device["name"] or "on the processor")
    assert person.page.locator("footer a").all_inner_texts() == [
        *("Documentation of the interface", "Models", "Metrics", "Apache-2.0")
    ]


@pytest.mark.deep
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=ALIKE)])
def test_the_borders_of_controls_have_contrast(visit: Callable[..., Visit], scheme: str) -> None:
    person = visit(color_scheme=scheme)
    person.settled("they differ by")
    ground = luminance(person.page.locator("body"), "backgroundColor")
    for control in ("#model", "#fill", "#seed", "#low"):
        edge = luminance(person.page.locator(control), "borderTopColor")
        low, high = sorted([edge, ground])
        assert (high + 0.05) / (low + 0.05) >= 3, control  # WCAG 2.2, contrast of controls


def luminance(element: Locator, style: str) -> float:
    """Return the relative luminance of a computed colour."""
    text = element.evaluate(f"element => getComputedStyle(element).{style}")
    share = np.array([float(part) for part in re.findall(r"[\d.]+", text)[:3]]) / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.deep
def test_at_a_desk_all_that_one_draws_with_is_seen(visit: Callable[..., Visit]) -> None:
    person = visit(viewport={"width": 1400, "height": 900})
    person.settled("they differ by")
    for control in ("#low", "#high", "#undo", "#size", "#value", "#random", "#upload"):
        box = person.page.locator(control).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900, control


@pytest.mark.deep
def test_on_a_phone_the_picture_is_first_and_scrolling_draws_nothing(visit: Callable[..., Visit]) -> None:
    person = visit(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    person.settled("they differ by")
    before = person.download("#download-input")
    person.page.evaluate("scrollTo(0, 0)")
    box = person.surface().bounding_box()
    assert box is not None
    assert (box["width"], box["y"] < 120) == (358, True)
    person.surface().evaluate("element => element.scrollIntoView({block: 'start'})")
    boxes = [person.surface(role).bounding_box() for role in ("input", "prediction")]
    for box in boxes:
        assert box is not None
        assert -1 <= box["y"] <= 844 - box["height"]
    touch = "element => element.dispatchEvent(new PointerEvent('{}', {{pointerType: 'touch', bubbles: true, {}}}))"
    middle = "clientX: 100, clientY: element.getBoundingClientRect().top + 40"
    for kind in ("pointerdown", "pointermove", "pointercancel"):  # as a browser reports a finger that scrolls
        person.surface().evaluate(touch.format(kind, middle))
    np.testing.assert_array_equal(person.download("#download-input"), before)
    expect(person.page.locator("#trust")).to_contain_text("drawn from the training distribution")  # and still is
    expect(person.page.locator("#undo")).to_be_disabled()
    person.page.click("#high" if before[40, 70] == 3 else "#low")
    for kind in ("pointerdown", "pointerup"):  # a tap
        person.surface().evaluate(touch.format(kind, middle))
    assert (person.download("#download-input") != before).any()


@pytest.mark.deep
def test_nothing_moves_on_a_phone_once_the_models_are_known(visit: Callable[..., Visit]) -> None:
    person = visit(viewport={"width": 390, "height": 844})
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    person.page.route("**/v1/models", hold)
    person.page.reload(wait_until="domcontentloaded")
    person.page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
    held[0].continue_()
    person.settled("they differ by")
    assert person.page.evaluate(SHIFTED) < 0.1


@pytest.mark.deep
@pytest.mark.parametrize(("model", "first"), [(FORWARD, "stage"), pytest.param(EXPRESSION, "sequence", marks=ALIKE)])
def test_the_first_link_leads_past_the_head_of_the_page(visit: Callable[..., Visit], model: str, first: str) -> None:
    person = visit()
    person.choose(model)
    expect(person.page.locator(f"#{first}")).to_be_visible()
    address = person.page.url
    person.page.evaluate("document.activeElement.blur()")
    person.page.keyboard.press("Tab")
    person.page.keyboard.press("Enter")
    expect(person.page.locator(f"#{first}")).to_be_focused()
    person.page.keyboard.press("Tab")
    assert person.page.evaluate(f"document.getElementById('{first}').contains(document.activeElement)")
    assert person.page.url == address
    expect(person.page.get_by_role("alert")).to_be_hidden()


@pytest.mark.deep
def test_one_draws_with_the_keyboard_alone(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.settled("they differ by")
    before = person.download("#download-input")
    person.surface().focus()
    keys = person.page.keyboard
    for key in ("x", "]", "]", "ArrowUp", "ArrowUp", " ", "Shift+ArrowLeft", "Shift+ArrowLeft", "x", "ArrowDown", " "):
        keys.press(key)
    for role in ("input", "prediction"):  # what a screen reader says of the point under the brush
        reading = person.panel(role).locator("[aria-live=polite]")
        expect(reading).to_have_text(re.compile(r"row \d+, column \d+: \d"))
    expect(person.page.locator("#undo")).to_be_enabled()
    assert person.page.input_value("#size") == "11"
    assert (person.download("#download-input") != before).any()
    keys.press("Control+z")
    person.page.focus("#tab-curl")
    keys.press("ArrowRight")
    expect(person.page.locator("#program")).to_contain_text("petrov_client")
    person.page.focus("#grid")
    keys.press("ArrowUp")
    expect(person.page.locator("#trust")).to_contain_text(re.compile("85 . 85"))
    person.settled("they differ by")


@pytest.mark.deep
def test_the_coefficient_is_recovered_from_noisy_readings(visit: Callable[..., Visit], service: Gateway) -> None:
    person = visit(color_scheme="dark")
    person.choose(INVERSE)
    exact = person.settled("from the truth")
    assert per_cent(person.page.inner_text("#error")) < 0.05
    person.page.locator("#noise").fill("10")
    expect(person.sentence).to_contain_text("with 10 % of noise")
    assert person.sentence.inner_text() != exact
    person.picture("inverse-dark")
    readings, found = person.download("#download-input"), person.download("#download-output")
    np.testing.assert_array_equal(found, predicted(service, INVERSE, readings))
    truth = physics.darcy.example(141, seed=0)
    noise = readings - physics.darcy.solve(truth)
    assert 0 < np.abs(noise[0]).max() < np.abs(noise[70]).max()  # in units of the usual deviation, small at the walls
    assert 0.01 < per_cent(person.page.inner_text("#error")) < 0.2
    assert "10 % of noise" in person.page.inner_text("#measured-note")
    person.page.locator("#noise").fill("7")
    expect(person.page.locator("#measured-note")).to_contain_text("the nearest measured level to 7 %")
    expect(person.page.locator("#others")).to_be_hidden()  # the network takes the source at its default


@pytest.mark.deep
def test_a_curve_is_dragged(visit: Callable[..., Visit], service: Gateway) -> None:
    person = visit()
    person.choose(CURVE)
    person.settled("they differ by")
    before = person.download("#download-input")
    person.drag((0.3, 0.5), (0.3, 0.3))
    expect(person.page.locator("#trust")).to_contain_text("own")
    person.settled("they differ by")
    expect(person.page.locator("#error")).to_have_text(re.compile("%"))
    person.picture("curve-light")
    ends = [person.panel(role).locator(".scale").inner_text() for role in ("input", "prediction")]
    assert ends[0] == ends[1] != "", "the velocity has two scales"
    after = person.download("#download-input")
    middle = round(0.3 * after.size)
    assert after[middle] - before[middle] > 0.1
    assert after.mean() == pytest.approx(before.mean(), abs=1e-4)  # as in the training distribution
    np.testing.assert_array_equal(person.download("#download-output"), predicted(service, CURVE, after))
    person.surface().focus()
    person.page.keyboard.press("ArrowUp")
    expect(person.page.locator("#undo")).to_be_enabled()
    assert not np.array_equal(person.download("#download-input"), after)


@pytest.mark.parametrize("model", [FORWARD, *(pytest.param(model, marks=ALIKE) for model in (INVERSE, CURVE))])
def test_a_test_sample_is_compared_with_its_truth(visit: Callable[..., Visit], service: Gateway, model: str) -> None:
    person = visit()
    person.choose(model)
    person.page.click("#sample")
    expect(person.page.locator("#sample")).to_have_text(re.compile("Test sample 1 of [1-8]"))
    person.settled("from the truth (relative L2)")
    assert "test sample 1" in person.page.inner_text("#trust")
    person.page.click("#sample-before")
    expect(person.page.locator("#sample")).to_have_text(re.compile(r"Test sample ([1-8]) of \1"))
    count = int(person.page.inner_text("#sample").split()[-1])
    person.settled("from the truth (relative L2)")
    person.surface("prediction").hover()
    reading = "point .*, true " if model == CURVE else "row .*, column "
    expect(person.panel("prediction").locator(".reading")).to_have_text(re.compile(reading))
    example = httpx2.get(f"{service.url}/v1/models/{model}/example?index={count - 1}").json()
    [truth] = (np.array(field) for field in example["outputs"].values())
    found = person.download("#download-output")
    assert per_cent(person.page.inner_text("#error")) == pytest.approx(relative_l2(found, truth), rel=0.1)
    person.page.click("#blobs")
    expect(person.page.locator("#trust")).to_contain_text("own")
    expect(person.page.locator("#sample")).to_have_text("Test sample")


@pytest.mark.deep
def test_every_field_component_and_parameter_of_a_sample_is_shown(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.choose(SEVERAL)
    person.settled("0 % from the truth")
    person.picture("several-light")
    titles = person.page.locator("[data-role=input] h2").all_inner_texts()
    assert titles == ["Density (kg/m3)", "Velocity, x (m/s)", "Velocity, y (m/s)"]
    shown = person.page.locator("[data-role=prediction] h2").all_inner_texts()
    assert shown == ["Density afterwards (kg/m3)", "Flux, x (kg/(m2 s))", "Flux, y (kg/(m2 s))"]
    assert person.page.locator("[data-role=difference][data-state=fresh]").count() == 3
    for panel in (person.panel("input").nth(1), person.panel("prediction").nth(1)):  # both have both signs
        low, high = panel.locator(".scale").inner_text().split()
        assert low == f"\N{MINUS SIGN}{high}"
    box = person.surface("prediction", 1).bounding_box()
    assert box is not None
    assert box["width"] / box["height"] == pytest.approx(1.5, rel=0.02)  # the lengths of the axes
    assert person.page.locator("#grid option").all_inner_texts() == ["60 \N{MULTIPLICATION SIGN} 90", "other …"]
    assert float(person.page.get_by_role("spinbutton", name="Time (s)").input_value()) == pytest.approx(
        float(toy_fields.samples()["time"][0]), rel=1e-4
    )
    assert person.page.locator("#random-row").is_hidden()  # there is neither a sampler
    assert person.page.locator("#solver-row").is_hidden()  # nor a solver


def test_one_component_is_drawn_and_a_parameter_is_moved(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.choose(SEVERAL)
    person.settled("from the truth")
    person.page.click("#tab-python")
    person.drag((0.2, 0.2), (0.8, 0.8), number=2)
    assert person.page.inner_text("#active") == "Drawing on Velocity, y"
    person.page.get_by_role("slider", name=re.compile("Time")).fill("0.5")
    expect(person.page.locator("#trust")).to_contain_text("own")
    expect(person.panel("difference").first).to_have_attribute("data-state", "empty")
    for part in ("classical", "difference"):
        assert not person.panel(part).first.is_visible()
    assert not person.page.locator("#error").is_visible()
    expect(person.sentence).not_to_contain_text("truth")
    drawn, found = person.archive("#download-input"), person.archive("#download-output")
    stored = {name: array[0] for name, array in toy_fields.samples().items()}
    np.testing.assert_array_equal(drawn["density"], stored["density"])
    np.testing.assert_array_equal(drawn["velocity"][0], stored["velocity"][0])
    assert (drawn["velocity"][1] != stored["velocity"][1]).mean() > 0.02
    assert drawn["time"] == 0.5
    expected = toy_fields.compute(**{name: array[None] for name, array in drawn.items()})
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array[0], rtol=1e-5, atol=1e-6)
    person.page.click("#undo")
    person.page.click("#undo")
    person.settled("0 % from the truth")
    np.testing.assert_array_equal(person.archive("#download-input")["velocity"], stored["velocity"])


@pytest.mark.deep
def test_the_programs_of_several_arrays_do_what_the_page_did(
    visit: Callable[..., Visit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = visit()
    person.choose(SEVERAL)
    person.settled("from the truth")
    subprocess.run(["bash", "-ec", person.page.inner_text("#program")], cwd=tmp_path, check=True, capture_output=True)
    found = load_file(tmp_path / "drift_output.safetensors")
    person.page.click("#tab-python")
    np.savez(tmp_path / "drift.npz", **person.archive("#download-input"))
    subprocess.run([sys.executable, "-c", person.page.inner_text("#program")], cwd=tmp_path, check=True)
    from_python = dict(np.load(tmp_path / "drift_output.npz"))
    (tmp_path / "drift_output.npz").unlink()
    person.page.click("#tab-shell")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    subprocess.run(["bash", "-ec", person.page.inner_text("#program")], cwd=tmp_path, check=True, capture_output=True)
    from_shell = dict(np.load(tmp_path / "drift_output.npz"))
    for name, expected in toy_fields.compute(**toy_fields.samples()).items():
        for output in (found, from_python, from_shell):
            np.testing.assert_allclose(output[name], expected[0], rtol=1e-5, atol=1e-6)


@pytest.mark.deep
def test_a_component_and_a_whole_vector_are_uploaded(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.choose(SEVERAL)
    person.settled("from the truth")
    person.page.click("#tab-python")
    vector = np.random.default_rng(0).normal(size=(2, 20, 31)).astype(np.float32)
    person.surface(number=1).focus()
    person.page.set_input_files("#file", {"name": "mine.npy", "mimeType": "", "buffer": npy(vector)})
    expect(person.page.locator("#trust")).to_contain_text(re.compile("20 . 31"))
    person.page.set_input_files("#file", {"name": "mine.npy", "mimeType": "", "buffer": npy(vector[0] ** 2)})
    expect(person.page.locator("#undo")).to_be_enabled()
    drawn = person.archive("#download-input")
    assert drawn["density"].shape == (20, 31)
    np.testing.assert_array_equal(drawn["velocity"][0], vector[0] ** 2)
    np.testing.assert_array_equal(drawn["velocity"][1], vector[1])


@pytest.mark.deep
@pytest.mark.parametrize("write", [pytest.param(np.savez, marks=ALIKE), np.savez_compressed])
def test_an_archive_is_uploaded(visit: Callable[..., Visit], write: Any) -> None:
    person = visit()
    person.choose(SEVERAL)
    person.settled("from the truth")
    person.page.click("#tab-python")
    inputs = {name: array[2] for name, array in toy_fields.samples(3, (20, 31)).items()}
    person.page.set_input_files("#file", {"name": "mine.npz", "mimeType": "", "buffer": archived(write, **inputs)})
    expect(person.page.locator("#trust")).to_contain_text(re.compile("20 . 31"))
    for name, array in person.archive("#download-input").items():
        np.testing.assert_array_equal(array, inputs[name])
    refused = {
        archived(write, rho=inputs["density"]): "it holds rho; expected density, velocity",
        archived(write, **inputs | {"velocity": inputs["density"]}): "Velocity has shape (20,31); expected (2,20,31)",
        archived(write, **inputs)[:-30]: "not an .npz file",
    }
    for content, part in refused.items():
        person.page.set_input_files("#file", {"name": "mine.npz", "mimeType": "", "buffer": content})
        expect(person.page.get_by_role("alert")).to_contain_text(part)


def archived(write: Any, **arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    write(file, **arrays)
    return file.getvalue()


@pytest.mark.deep
def test_an_input_with_a_default_is_drawn_on_request(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.choose(OPTIONAL)
    person.settled("0 % from the truth")
    person.page.click("#tab-python")
    assert person.archive("#download-input").keys() == {"density", "time"}
    person.page.get_by_role("button", name="Draw velocity (now 0.5)").click()
    expect(person.panel("input")).to_have_count(3)
    person.surface(number=2).focus()
    person.page.click("#blobs")
    velocity = person.archive("#download-input")["velocity"]
    assert np.unique(velocity[0]).tolist() == [0.5]
    assert np.unique(velocity[1]).tolist() == [0.5, 1.0]
    person.page.click("#undo")
    person.page.click("#undo")
    expect(person.panel("input")).to_have_count(1)
    person.settled("0 % from the truth")


def test_what_is_known_about_the_error_is_shown(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.choose(REPORTING)
    person.settled("10 % from the truth")
    badges = person.page.locator("#quality li")
    expect(badges).to_have_count(5)
    shown = [text.split("\n") for text in badges.all_inner_texts()]
    assert [line[0] for line in shown] == ["Error bound", "Solve bound", "Misfit", "Error estimate", "Input"]
    numbers = [per_cent(line[1].split()[-2]) for line in shown[:4]]
    assert numbers == pytest.approx([0.003, 0.012, 0.009, 0.006], rel=0.05)
    assert shown[4][1:] == ["inside", "like the training data: 85 % of the calibration inputs are as unusual"]
    person.page.click("#sample-after")
    expect(badges.nth(4)).to_contain_text("outside")
    expect(badges.nth(4)).to_have_attribute("data-kind", "care")
    person.picture("quality-light")
    expect(badges.nth(3)).to_contain_text("it held for 92 % of 80 test samples on 16 \N{MULTIPLICATION SIGN} 16 points")
    person.page.locator("#grid").select_option("other")
    person.page.fill("#points", "50")
    person.page.press("#points", "Enter")
    expect(badges.nth(3)).to_contain_text("unreliable")
    expect(badges.nth(3)).to_contain_text("it held for 32 % of 80 test samples")
    expect(badges.nth(3)).not_to_contain_text("\N{LESS-THAN OR EQUAL TO}")
    person.choose(FORWARD)
    person.settled("they differ by")


@pytest.mark.deep
def test_a_field_is_uploaded(visit: Callable[..., Visit], service: Gateway) -> None:
    person = visit()
    person.settled("they differ by")
    field = np.asfortranarray(np.random.default_rng(0).uniform(3, 12, (40, 61)))
    person.page.set_input_files("#file", {"name": "mine.npy", "mimeType": "", "buffer": npy(field)})
    expect(person.page.locator("#trust")).to_contain_text(re.compile("40 . 61"))
    person.settled("they differ by")
    sent = person.download("#download-input")
    np.testing.assert_array_equal(sent, field.astype(np.float32))
    np.testing.assert_array_equal(person.download("#download-output"), predicted(service, FORWARD, sent))
    expect(person.page.locator("#measured-note")).to_have_text("not published for this grid")


@pytest.mark.deep
def test_what_is_no_field_is_refused_with_a_reason(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.settled("they differ by")
    for content, part in REFUSED.items():
        person.page.set_input_files("#file", {"name": "mine.npy", "mimeType": "", "buffer": content})
        expect(person.page.get_by_role("alert")).to_contain_text(part)
    person.page.get_by_role("button", name="Dismiss").click()
    expect(person.page.get_by_role("alert")).to_be_hidden()


@pytest.mark.deep
def test_an_upload_that_the_gateway_refuses_keeps_the_input(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.settled("they differ by")
    before = person.download("#download-input")
    field = np.full((30, 30), 3.0)
    field[4, 7] = -2
    alert = person.page.get_by_role("alert")
    for name in ("#file", "#file"):  # a message that is dismissed comes again
        person.page.set_input_files(name, {"name": "mine.npy", "mimeType": "", "buffer": npy(field)})
        expect(alert).to_contain_text("Permeability at row 4, column 7 is -2.0; a permeability must be positive")
        person.page.get_by_role("button", name="Dismiss").click()
    np.testing.assert_array_equal(person.download("#download-input"), before)
    assert person.page.locator("#undo").is_disabled()
    person.choose(INVERSE)
    truth = person.settled("from the truth")
    person.page.set_input_files("#file-reading", {"name": "mine.npy", "mimeType": "", "buffer": npy(field / np.nan)})
    expect(alert).to_contain_text("Pressure at row 0, column 0 is nan")
    assert person.sentence.inner_text() == truth
    assert person.page.locator("#stage").get_attribute("data-layout") == "inverse"
    person.picture("refused")
    assert all("422" in error for error in person.errors), person.errors  # the browser itself logs them
    person.errors.clear()


@pytest.mark.deep
def test_the_address_names_the_model(visit: Callable[..., Visit], service: Gateway) -> None:
    person = visit()
    person.settled("they differ by")
    person.choose(CURVE)
    person.settled("they differ by")
    assert person.page.url == f"{service.url}/#{CURVE}"
    person.page.goto(f"{service.url}/#{EXPRESSION}")
    person.labelled("with a probability of")
    person.page.go_back()
    expect(person.page.locator("#model")).to_have_value(CURVE)
    person.page.go_back()
    expect(person.page.locator("#model")).to_have_value(FORWARD)
    person.page.go_forward()
    expect(person.page.locator("#model")).to_have_value(CURVE)
    person.settled("they differ by")
    person.page.goto(f"{service.url}/#darcie")
    expect(person.page.get_by_role("alert")).to_contain_text("no model “darcie”; did you mean “darcy”?")
    person.page.reload()
    person.settled("they differ by")
    expect(person.page.get_by_role("alert")).to_contain_text("no model “darcie”")
    assert person.page.input_value("#model") == FORWARD
    person.page.goto(f"{service.url}/#50%")  # no escape
    expect(person.page.get_by_role("alert")).to_contain_text("no model “50%”")
    person.page.reload()
    person.settled("they differ by")
    person.page.goto(f"{service.url}/playground#{CURVE}")
    expect(person.page).to_have_url(f"{service.url}/#{CURVE}")
    expect(person.page.locator("#model")).to_have_value(CURVE)


@pytest.mark.deep
def test_nothing_is_said_of_the_model_that_was_shown_before(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.settled("they differ by")
    page = person.page
    worth = page.inner_text("#worth")

    def hold(_: Route) -> None: ...

    page.route("**/example?*", hold)
    person.choose(CURVE)
    for part in ("#sentence", "#trust", "#program", "#quality", "#measured-note"):
        expect(page.locator(part)).to_have_text("")
    for part in ("#error", "#predict-time", "#measured-error"):
        expect(page.locator(part)).to_have_text("\N{EN DASH}")
    for button in ("#download-input", "#download-output", "#solve"):
        expect(page.locator(button)).to_be_disabled()
    assert worth != page.inner_text("#worth") != ""
    person.choose(EXPRESSION)
    person.labelled("with a probability of")
    expect(page.locator("#download-input")).to_be_enabled()
    page.unroute("**/example?*")
    person.choose(CURVE)
    person.settled("they differ by")
    expect(page.locator("#download-input")).to_be_enabled()


@pytest.mark.deep
def test_a_poor_model_looks_poor_and_a_quantity_has_one_scale(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.choose(POOR)
    expect(person.page.locator("#measured-others")).to_have_text("H1 error: 52 %")
    person.settled("0 % from the truth")
    guesses = "length, boundary and points of row; length and boundary of column"
    assert f"Guessed, not read from the data: {guesses}." in person.page.inner_text("#trust")
    assert person.page.inner_text("#worth") == "Poor model: mean error 41 % on 53 test fields"
    expect(person.page.locator("#worth")).to_have_attribute("data-kind", "poor")
    first = person.panel("prediction").first
    expect(first).to_have_attribute("data-worth", "poor")
    assert "mean error 41 %" in first.locator(".about").inner_text()
    person.picture("poor")
    density = [person.panel("input").first, first]
    assert [panel.locator("h2").inner_text() for panel in density] == ["Density (kg/m3)"] * 2
    scales = [panel.locator(".scale").inner_text() for panel in density]
    assert scales[0] == scales[1]
    person.choose(FORWARD)
    person.settled("they differ by")
    expect(person.page.locator("#worth")).to_have_attribute("data-kind", "good")


@pytest.mark.deep
def test_a_method_is_not_compared_with_itself(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.choose(METHOD)
    person.settled("from the truth (relative L2)")
    expect(person.page.locator("#solver-row")).to_be_hidden()
    person.page.click("#random")
    expect(person.page.locator("#trust")).to_contain_text("Nothing was trained")
    expect(person.panel("difference")).to_be_hidden()
    expect(person.sentence).not_to_contain_text("differ")
    assert "/reference" not in person.page.inner_text("#program")


def test_the_programs_do_what_the_page_did(visit: Callable[..., Visit], tmp_path: Path) -> None:
    person = visit()
    person.settled("they differ by")
    found = person.download("#download-output")
    subprocess.run(["bash", "-ec", person.page.inner_text("#program")], cwd=tmp_path, check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "solution.npy"), found)
    assert np.load(tmp_path / "classical.npy").shape == found.shape
    for tab in ("#tab-shell", "#tab-python"):  # which fetch no input
        person.page.click(tab)
        assert person.page.inner_text("#program").startswith("# coefficient.npy: “Download input”\n")
    (tmp_path / "solution.npy").unlink()
    person.page.click("#tab-python")
    subprocess.run([sys.executable, "-c", person.page.inner_text("#program")], cwd=tmp_path, check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "solution.npy"), found)


@pytest.mark.deep
def test_the_colours_rise_evenly(visit: Callable[..., Visit]) -> None:
    script = """async () => {
      const { tide, ember, divergent, signed } = await import("./playground/colours.js");
      return [tide, ember, divergent(false), signed(false), divergent(true), signed(true)].map((map) => [...map]);
    }"""
    tide, ember, *around = (np.array(table).reshape(-1, 3) for table in visit().page.evaluate(script))
    for rising in (tide, ember, *(each[:128] for each in around[:2]), *(each[128:] for each in around[2:])):
        steps = np.diff(lightness(rising)[::16])
        assert steps.min() > 0.6 * steps.mean()
        assert steps.max() < 1.4 * steps.mean()


def lightness(rgb: np.ndarray) -> np.ndarray:
    """CIE L* of sRGB bytes: not the scale that the maps are built on."""
    share = rgb / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return np.asarray(116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16)


@pytest.mark.parametrize(
    "model", [*(pytest.param(model, marks=ALIKE) for model in (FORWARD, INVERSE, CURVE, EXPRESSION)), SEVERAL]
)
def test_everything_has_a_name_and_fits_a_phone(visit: Callable[..., Visit], model: str) -> None:
    person = visit(viewport={"width": 320, "height": 640}, color_scheme="dark", reduced_motion="reduce", has_touch=True)
    person.choose(model)
    if model == EXPRESSION:
        person.labelled("with a probability of")
    else:
        person.settled("from the truth" if model in {INVERSE, SEVERAL} else "they differ by")
    person.picture(f"phone-{model}")
    assert person.page.evaluate("document.documentElement.scrollWidth") == 320
    tree = person.page.locator("body").aria_snapshot()
    assert ("textbox" if model == EXPRESSION else "application") in tree
    assert NAMELESS.findall(tree) == []
    for control in person.page.locator("button:visible, select:visible").all():
        box = control.bounding_box()
        assert box is not None
        assert box["height"] >= 24  # WCAG 2.2, target size


@pytest.mark.deep
def test_a_text_is_labelled(visit: Callable[..., Visit], service: Gateway, tmp_path: Path) -> None:
    person = visit()
    person.settled("they differ by")
    person.choose(EXPRESSION)
    person.labelled("with a probability of")
    person.picture("text-light")
    area = person.page.get_by_role("textbox", name="Text")
    with connected(service, EXPRESSION) as (client, model):
        assert model.encode(area.input_value()).size > 4  # the card's own example
        area.fill("[SM 5 8")
        person.page.get_by_role("button", name="]", exact=True).click()
        assert area.input_value() == "[SM 5 8 ]"
        choice = model.decode(client.predict(EXPRESSION, model.encode("[SM 5 8 ]")))
    shown = person.labelled(f"{choice.label}, with a probability of")
    assert per_cent(shown.split()[-2]) == pytest.approx(choice.probability, rel=0.1)
    assert person.page.locator("#sequence li b").all_inner_texts()[:2] == [choice.label, choice.runner_up]
    tokens = person.download("#download-input")
    assert (tokens.dtype, tokens.tolist()) == (np.int32, model.encode("[SM 5 8 ]").tolist())
    assert person.download("#download-output").shape == (len(model.vocabulary.labels),)
    done = subprocess.run(
        ["bash", "-ec", person.page.inner_text("#program")], cwd=tmp_path, check=True, capture_output=True
    )
    assert len(json.loads(done.stdout)["outputs"]["logits"]) == len(model.vocabulary.labels)
    person.page.click("#tab-python")
    done = subprocess.run([sys.executable, "-c", person.page.inner_text("#program")], check=True, capture_output=True)
    assert repr(choice) in done.stdout.decode()


@pytest.mark.deep
def test_a_text_outside_the_vocabulary_is_explained(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.choose(EXPRESSION)
    person.labelled("with a probability of")
    area, hint = person.page.get_by_role("textbox", name="Text"), person.page.locator("#text-hint")
    area.fill("[SM five 8 ]")
    expect(hint).to_contain_text("“five” at character 5 is not in the vocabulary")
    expect(area).to_have_attribute("aria-invalid", "true")
    person.picture("text-refused")
    area.fill("7 " * 49)
    expect(hint).to_contain_text("49 tokens; the model takes at most 48")
    area.fill("")
    expect(hint).to_contain_text("Type symbols of the vocabulary")
    expect(person.page.locator("#sequence")).to_have_attribute("data-state", "stale")
    person.choose(FORWARD)
    person.settled("they differ by")


@pytest.mark.deep
def test_every_token_is_labelled(visit: Callable[..., Visit], service: Gateway) -> None:
    person = visit(color_scheme="dark")
    person.choose(LETTERS)
    area = person.page.get_by_role("textbox", name="Text")
    with connected(service, LETTERS) as (client, model):
        text = area.input_value()
        choices = model.decode(client.predict(LETTERS, model.encode(text)))
    person.labelled(" ".join(choice.label for choice in choices))
    person.picture("letters-dark")
    shown = [row.split("\n")[:2] for row in person.page.locator("#sequence li").all_inner_texts()]
    assert [symbol for symbol, _ in shown] == text.split()
    assert [label for _, label in shown] == [choice.label for choice in choices]
    hint = person.page.locator("#text-hint")
    assert "learned by heart" not in hint.inner_text()
    area.fill("a b c")
    assert "not one of the 64 sequences that were learned by heart" in hint.inner_text()


@pytest.mark.deep
def test_a_key_opens_the_page(
    browser: Browser,
    service: Gateway,
    free_ports: Callable[[int], list[int]],
    run_gateway: Callable[[Settings], AbstractContextManager[Gateway]],
    tmp_path: Path,
) -> None:
    keys = tmp_path / "keys.toml"
    lines = ["[[key]]", 'name = "page"', 'scopes = ["infer"]', f'sha256 = "{sha256(b"open-sesame").hexdigest()}"']
    keys.write_text("\n".join(lines))
    port, grpc_port = free_ports(2)
    settings = service.settings.model_copy(update={"keys": keys, "port": port, "grpc_port": grpc_port})
    with run_gateway(settings) as guarded:
        person = Visit(browser, guarded.url)
        banner, key = person.page.get_by_role("alert"), person.page.get_by_label("API key", exact=True)
        expect(banner).to_contain_text("key")
        expect(person.page.locator("#key")).to_be_visible()
        person.page.fill("#key", "wrong")
        person.page.press("#key", "Enter")
        expect(banner).to_contain_text("is unknown. Enter a key in the field")
        person.picture("key-wrong")
        person.page.fill("#key", "open-sesame")
        person.page.press("#key", "Enter")
        person.settled("they differ by")
        expect(banner).to_be_hidden()
        assert key.first.is_visible()
        assert "open-sesame" not in person.page.content() + person.page.inner_text("#program")
        assert "$PETROV_API_KEY" in person.page.inner_text("#program")
        assert all("401" in error for error in person.errors), person.errors
        assert person.foreign == []
        person.context.close()


def test_a_lost_triton_is_reported_until_it_is_back(visit: Callable[..., Visit], service: Gateway) -> None:
    person = visit()
    person.settled("they differ by")
    triton(service.settings).kill()
    banner = person.page.get_by_role("alert")
    while banner.is_hidden():
        person.page.click("#blobs")
        person.page.wait_for_timeout(50)
    expect(banner).to_contain_text(re.compile("inference server|not ready"))
    person.picture("triton-down")
    expect(banner).to_be_hidden()
    person.settled("they differ by")
    expect(person.page.locator("#state")).to_contain_text("ready")
    assert all("503" in error for error in person.errors), person.errors
    person.errors.clear()


def triton(settings: Settings) -> psutil.Process:
    [chosen] = below(None, "tritonserver", f"--grpc-port={settings.triton_grpc_port}")
    return chosen
