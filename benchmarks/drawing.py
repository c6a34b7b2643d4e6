"""The pictures of the playground: one of its first model after a stroke, and a moving one of the stroke itself."""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import FloatRect, Page, sync_playwright

WIDTH, HEIGHT = 1440, 900
PAUSE, STEP, END = 700, 70, 2600  # milliseconds that a frame is shown: before a stroke, in it, and once it is solved
FOLLOWS = 140  # milliseconds from a move to its frame, in which the prediction follows
SOLVED = "[data-role=difference][data-state=fresh]"
#: Strokes: the button of their value, and points (right, down) as shares of the picture.
STROKES = (
    ("#low", [(0.12 + 0.5 * t, 0.22 - 0.1 * math.sin(2 * math.pi * t)) for t in (n / 22 for n in range(23))]),
    ("#high", [(0.5 + 0.24 * math.cos(t), 0.66 + 0.17 * math.sin(t)) for t in (n / 4 for n in range(26))]),
)


def record(url: str, still: Path, moving: Path) -> None:
    """Draw on the first picture of a running service, and write both files."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(url)
        page.wait_for_selector(SOLVED)
        frames, times = zip(*strokes(page), strict=True)
        frames[-1].save(still, optimize=True)
        browser.close()
    options = {"save_all": True, "append_images": frames[1:], "duration": list(times), "loop": 0}
    frames[0].save(moving, quality=88, method=6, minimize_size=True, **options)


def strokes(page: Page) -> Iterator[tuple[Image.Image, int]]:
    """Yield frames, and the milliseconds that each is shown."""
    surface = page.locator("[data-role=input] canvas:not(.ramp)").bounding_box()
    panel = page.locator(SOLVED).bounding_box()
    if surface is None or panel is None:
        raise RuntimeError("the page has no picture to draw on")
    box = surface
    clip = FloatRect(x=0, y=0, width=WIDTH, height=panel["y"] + panel["height"] + 12)

    def frame() -> Image.Image:
        return Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")

    def move(point: tuple[float, float]) -> None:
        page.mouse.move(box["x"] + point[0] * box["width"], box["y"] + point[1] * box["height"])
        page.wait_for_timeout(FOLLOWS)

    yield frame(), PAUSE
    for button, points in STROKES:
        page.click(button)
        move(points[0])
        page.mouse.down()
        for point in points[1:]:
            move(point)
            yield frame(), STEP
        page.mouse.up()
        page.wait_for_selector(SOLVED)
        page.wait_for_timeout(FOLLOWS)
        yield frame(), END
