"""The main commands in a terminal, where bars, colours and keys take other ways than in a pipe."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.request import urlopen

import h5py
import numpy as np
import pytest

from serving import running
from serving.settings import Settings
from tests import terminal
from tests.conftest import Gateway
from tests.terminal import CTRL_C, Terminal
from training.messages import typed

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": f"{ROOT}:{ROOT / 'clients/python/src'}"}
FIT = (sys.executable, "-m", "training", "fit", "burgers-tiny", "--set", "data.test=2")
FIT += ("--set", "data.train=8", "--set", "data.validation=2")  # a sample takes a tenth of a second


@pytest.mark.parametrize(
    ("columns", "environment"),
    [
        pytest.param(60, {}, id="narrow"),
        pytest.param(200, {"NO_COLOR": "1"}, id="without colour", marks=pytest.mark.deep),
        pytest.param(80, {"TERM": "dumb"}, id="dumb", marks=pytest.mark.deep),
    ],
)
def test_a_training_is_shown(tmp_path: Path, columns: int, environment: Mapping[str, str]) -> None:
    screen = terminal.run(
        *FIT, "--set", "fit.epochs=4", folder=tmp_path, columns=columns, environment=ENVIRONMENT | environment
    )
    assert screen.status == 0, screen.text
    assert "Traceback" not in screen.text
    assert "12 of 12 fields" in screen.text
    assert "epoch 4" in screen.text
    assert screen.coloured == (not environment)
    assert ("\x1b[2K" in screen.written) == ("TERM" not in environment)  # where a line can be drawn again
    bars = [line for line in screen.lines if line.startswith("training ")]
    assert all("100%" in line and "error" in line for line in bars)
    assert len(bars) == ("TERM" not in environment)
    assert (tmp_path / "runs/burgers-tiny/weights.safetensors").exists()


def test_ctrl_c_stops_a_training_and_says_how_to_go_on(tmp_path: Path) -> None:
    with Terminal([*FIT, "--set", "fit.epochs=4000"], tmp_path, 400, ENVIRONMENT) as training:
        training.wait_for(re.compile(r"epoch ([2-9]|\d\d)"))  # an epoch may be over before it is seen
        training.press(CTRL_C)
        screen = training.end()
    assert screen.status == 130
    assert "Traceback" not in screen.text
    again = typed(*FIT[3:], "--set", "fit.epochs=4000", "--resume")
    assert screen.text.endswith(f"stopped; what is finished is kept, and this goes on with it: {again}")
    assert list((tmp_path / "runs/burgers-tiny/state").glob("epoch=*.ckpt"))


def test_serve_beside_a_running_service_says_where_it_is_and_ctrl_c_ends_the_service(
    toy_repository: Path, tmp_path: Path, make_settings: Callable[..., Settings]
) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(toy_repository / "blur", repository / "blur")
    settings = make_settings(repository, triton_runtime=tmp_path / "runtime")
    chosen = json.loads(settings.model_dump_json(exclude_defaults=True))
    variables = ENVIRONMENT | {f"PETROV_{name.upper()}": str(value) for name, value in chosen.items()}
    serve = (sys.executable, "-m", "serving")
    with Terminal(serve, ROOT, 60, variables) as service:
        service.wait_for("Ready: blur.")
        shutil.copytree(repository / "blur/1", tmp_path / "next")
        card = tmp_path / "next/card.json"
        card.write_text(json.dumps(json.loads(card.read_text()) | {"version": 2}))
        card.parent.rename(repository / "blur/2")
        record = next((tmp_path / "runtime").glob("service-*.json"))
        assert record.stat().st_mode & 0o077 == 0

        checked = terminal.run("python3", "-I", "-S", "deploy/requirements.py", folder=ROOT, environment=variables)
        assert (checked.status, checked.text) == (0, "")
        second = terminal.run(*serve, folder=ROOT, columns=200, environment=variables)
        assert (second.status, second.text.rpartition("INFO ")[2]) == (
            0,
            f"This repository is served already on http://127.0.0.1:{settings.port}: blur",
        )
        elsewhere = variables | {"PETROV_REPOSITORY": str(toy_repository)}
        refused = terminal.run(*serve, folder=ROOT, columns=200, environment=elsewhere)
        assert refused.status == 1
        assert f"port {settings.port} is in use: set PETROV_PORT" in " ".join(refused.text.split())
        assert not re.search("Traceback|listens", refused.text)
        models = json.load(urlopen(f"http://127.0.0.1:{settings.port}/v1/models"))["models"]
        assert [model["version"] for model in models] == [2]

        service.press(CTRL_C)
        screen = service.end()
        assert screen.status == 0
        assert "Traceback" not in screen.text
    assert running.address(settings.triton_runtime, repository) is None  # though its record is left


@pytest.mark.deep
def test_the_client_shows_its_progress(gateway: Gateway, tmp_path: Path) -> None:
    np.save(tmp_path / "fields.npy", np.ones((64, 9, 9), np.float32))
    petrov = (sys.executable, "-m", "petrov_client")
    for columns, environment in ((60, {}), (200, {"NO_COLOR": "1"}), (80, {"TERM": "dumb"})):
        chosen = ENVIRONMENT | {"PETROV_URL": gateway.url} | environment
        models = terminal.run(*petrov, "models", folder=tmp_path, columns=columns, environment=chosen)
        assert models.status == 0, models.text
        assert "blur" in models.text
        assert "…" not in models.text  # no name is cut off
        assert models.coloured <= (not environment)
        score = (*petrov, "score", "blur", "fields.npy", f"{columns}.h5")
        scored = terminal.run(*score, folder=tmp_path, columns=columns, environment=chosen)
        assert scored.status == 0, scored.text
        assert "Traceback" not in scored.text
        with h5py.File(tmp_path / f"{columns}.h5") as file:
            assert file["solution"].shape == (64, 9, 9)


@pytest.mark.deep
def test_a_file_becomes_a_model_with_a_verdict(tmp_path: Path) -> None:
    phase, row, column = np.ix_(np.random.default_rng(0).uniform(0, 9, 40), np.arange(12) / 12, np.arange(16) / 16)
    k = (2 + np.sin(phase + 3 * row) * np.cos(7 * phase + 4 * column)).astype(np.float32)
    np.savez(tmp_path / "heat.npz", conductivity=k, temperature=np.cumsum(k, axis=2) / 16)
    python = (sys.executable, "-m", "training")

    def run(*command: str) -> terminal.Screen:
        return terminal.run(*python, *command, folder=tmp_path, columns=100, environment=ENVIRONMENT)

    described = run("describe", "--write", "heat.npz")
    assert described.status == 0, described.text
    assert "# guess:" in (tmp_path / "heat.toml").read_text()
    refused = run("fit", "heat.toml", "--preset", "tiny")
    assert refused.status == 1
    assert "Traceback" not in refused.text
    assert "OUTPUTS=" in refused.text or "--outputs" in refused.text

    described = run("describe", "--write", "--outputs", "temperature", "heat.npz")
    assert described.status == 0, described.text
    trained = run("fit", "heat.toml", "--preset", "tiny", "--set", "fit.epochs=5")
    assert trained.status == 0, trained.text
    assert "Traceback" not in trained.text
    verdict = json.loads((tmp_path / "runs/heat-tiny/report.json").read_text())["verdict"]
    assert " ".join(verdict.split()) in trained.text
    reported = run("report", "runs/heat-tiny", "--no-amounts")
    assert reported.status == 0, reported.text
    assert " ".join(verdict.split()) in reported.text
