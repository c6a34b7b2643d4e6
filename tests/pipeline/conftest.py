"""Fixtures that run the whole pipeline once with the user's commands: train a tiny model, export it, serve it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from typer.testing import CliRunner

from export.__main__ import app as exporting
from serving.settings import Settings
from tests.conftest import ready, wait_until
from training.commands import app as training
from training.evaluation import pictures

#: The share of the pixels of a panel's picture on which something is drawn.
DRAWN = """canvas => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return data.filter((value, i) => i % 4 === 3 && value > 0).length / (data.length / 4);
}"""


PATIENCE = 90_000  # milliseconds, of a browser on a busy machine


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Open a browser; skip where there is none."""
    program = shutil.which("chromium")
    if program is None and "CI" not in os.environ:
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextmanager
def open_page() -> Iterator[Page]:
    """Open a page of a browser of its own, and fail with the errors of its scripts."""
    with open_browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
    assert errors == []


@dataclass(frozen=True)
class Pipeline:
    """Results of the pipeline: a finished run, the repository it was published to, the samples it was trained on."""

    run: Path
    repository: Path
    data: Path

    def train(self, run: Path, *overrides: str) -> None:
        """Train the tiny Darcy model with one layer into `run`."""
        sets = [part for override in ("operator.layers=1", *overrides) for part in ("--set", override)]
        command(training, "fit", "darcy-tiny", "--out", run, "--data", self.data, *sets)

    def export(self, run: Path, *options: str) -> None:
        """Publish a run to the repository."""
        command(exporting, run, "--repository", self.repository, *options)


@dataclass(frozen=True)
class Service:
    """A running `python -m serving`."""

    process: subprocess.Popen[bytes]
    settings: Settings

    @property
    def url(self) -> str:
        return f"http://{self.settings.host}:{self.settings.port}"

    def ready(self) -> bool:
        return ready(self.url)

    def started(self) -> bool:
        assert self.process.poll() is None, f"the service ended with status {self.process.returncode}"
        return self.ready()


def command(app: Any, *arguments: object) -> None:
    """Run a command in this process, which has imported what it needs, and fail with its output."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == 0, (done.output, done.exception)


@pytest.fixture(scope="module", autouse=True)
def few_pictures() -> Iterator[None]:
    """Let reports show one input and one output, of which `tests/training/report` draws several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "MOST", 1)
        yield


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Train a tiny model and export it as `darcy_tiny`."""
    root = tmp_path_factory.mktemp("pipeline")
    made = Pipeline(root / "darcy-tiny", root / "model_repository", root / "data")
    made.train(made.run)
    made.export(made.run)
    return made


@pytest.fixture(scope="session")
def serve(make_settings: Callable[..., Settings]) -> Callable[[Path], Iterator[Service]]:
    """Return a context manager that runs `python -m serving` on a repository."""

    @contextmanager
    def serving(repository: Path) -> Iterator[Service]:
        settings = make_settings(repository)
        chosen = settings.model_dump(exclude={"triton"}, exclude_defaults=True)
        environment = os.environ | {f"PETROV_{name.upper()}": str(value) for name, value in chosen.items()}
        with subprocess.Popen([sys.executable, "-m", "serving"], env=environment) as process:
            try:
                service = Service(process, settings)
                wait_until(service.started, 240)
                yield service
            finally:
                process.terminate()

    return serving


@pytest.fixture(scope="session")
def service(pipeline: Pipeline, serve: Callable[[Path], Iterator[Service]]) -> Iterator[Service]:
    """Serve the repository of the pipeline."""
    with serve(pipeline.repository) as running:
        yield running
