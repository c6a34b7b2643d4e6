"""The whole road once, by the commands a user types: train a tiny model, export it, serve it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from serving.settings import Settings
from tests.conftest import ready, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Story:
    """What the road left behind: a finished run, the repository it was published to, the samples it learned from."""

    run: Path
    repository: Path
    data: Path

    def train(self, run: Path, *overrides: str) -> None:
        """Train the tiny Darcy model into `run`."""
        sets = [part for override in overrides for part in ("--set", override)]
        command("training", "fit", "darcy-tiny", "--out", run, "--data", self.data, *sets)

    def export(self, run: Path, *options: str) -> None:
        """Publish a run."""
        command("export", run, "--repository", self.repository, *options)


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


def command(*arguments: object) -> None:
    """Run `python -m …` from the root, and fail with its words."""
    done = subprocess.run([sys.executable, "-m", *map(str, arguments)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A tiny model, trained and exported as `darcy_tiny`."""
    root = tmp_path_factory.mktemp("story")
    told = Story(root / "darcy-tiny", root / "model_repository", root / "data")
    told.train(told.run)
    told.export(told.run)
    return told


@pytest.fixture(scope="session")
def serve(make_settings: Callable[..., Settings]) -> Callable[[Path], Iterator[Service]]:
    """Gives a context in which `python -m serving` runs on a repository."""

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
def service(story: Story, serve: Callable[[Path], Iterator[Service]]) -> Iterator[Service]:
    """The story's repository, served."""
    with serve(story.repository) as running:
        yield running
