"""The playground of a model whose inputs change in time: a test sample, its frames, and a forcing that is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect
from safetensors.numpy import save_file

from tests import toy_rollouts
from tests.conftest import Gateway, RunService
from tests.pipeline.conftest import PATIENCE, open_page

pytestmark = pytest.mark.deep

FRAMES, POINTS, SHOWN = 6, 16, 4


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, run_service: RunService) -> Iterator[Gateway]:
    repository = tmp_path_factory.mktemp("forcing") / "model_repository"
    toy_rollouts.add_pushed(repository)
    rng = np.random.default_rng(0)
    u, f = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, POINTS), (2, FRAMES, POINTS)))
    power = rng.uniform(1, 2, (2, FRAMES)).astype(np.float32)
    found = {"u": u, "f": f, "power": power, "state": toy_rollouts.push(u, f, power).astype(np.float32)}
    save_file(found, repository / toy_rollouts.PUSHED / "1" / "examples.safetensors")
    with run_service(repository) as gateway:
        yield gateway


def test_a_forcing_is_shown_frame_by_frame_and_what_is_drawn_lasts(service: Gateway) -> None:
    with open_page() as page:
        page.goto(f"{service.url}/#{toy_rollouts.PUSHED}")
        page.click("#sample")
        expect(page.locator("#frame-shown")).to_have_text(f"1 of {FRAMES}, time 0.5", timeout=PATIENCE)
        expect(page.locator("#error")).to_contain_text("0", timeout=PATIENCE)
        expect(page.locator("#solver-row")).to_be_hidden()  # there is no solver of the problem
        panel = page.locator('figure[data-role="input"][data-name="f"]')
        picture = (
            "node => [...node.querySelectorAll('canvas, svg')].map(n => n.outerHTML + (n.toDataURL?.() ?? '')).join()"
        )
        before = panel.evaluate(picture)
        page.locator("#frame").fill(str(SHOWN))
        expect(page.locator("#frame-shown")).to_have_text(f"{SHOWN} of {FRAMES}, time 2")
        assert panel.evaluate(picture) != before
        panel.locator('[role="application"]').click()
        page.click("#fill")  # with zeros, from this frame on
        expect(page.locator("#sentence")).not_to_contain_text("from the truth", timeout=PATIENCE)
        expect(page.locator("#download-output")).to_be_enabled(timeout=PATIENCE)
        page.wait_for_load_state("networkidle")
        with page.expect_download() as waiting:
            page.click("#download-output")
        states = np.load(waiting.value.path()).reshape(FRAMES, POINTS)
        folder = Path("test-artefacts/playground")
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / "forcing.png", full_page=True)
    moves = np.abs(np.diff(states, axis=0)).max(axis=1)
    assert (moves[: SHOWN - 2] > 0.1).all()
    np.testing.assert_allclose(moves[SHOWN - 2 :], 0, atol=1e-6)
