"""Hold docs/how.md true: a real request, training and export pass the functions that it names, in this order."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2
import numpy as np
import pytest
import torch

import physics.darcy
from export.__main__ import app as exporting
from serving.settings import Settings
from tests.conftest import ready, wait_until
from tests.pipeline.conftest import command
from training.commands import app as training

pytestmark = pytest.mark.deep

ROOT = Path(__file__).parents[2]
RECORDER = [sys.executable, str(Path(__file__).with_name("recorder.py"))]
ROW = re.compile(r"\| `([\w/]+\.py)` \| `([\w.]+)` \|$", re.MULTILINE)

HEAT = """
name = "heat"
[data]
files = ["heat.npz"]
[inputs.k]
[outputs.u]
[axes.x]
"""


def named(folder: str, section: str) -> list[str]:
    """Return the functions of a folder that a section of the page names in its tables of steps, in order."""
    [text] = re.findall(rf"^## {section}$(.*?)^## ", (ROOT / "docs/how.md").read_text(), re.MULTILINE | re.DOTALL)
    return [f"{file} {function}" for file, function in ROW.findall(text) if file.startswith(f"{folder}/")]


def assert_passed(expected: list[str], recorded: str) -> None:
    """Assert that all functions are passed, and first called in this order."""
    order = recorded.splitlines()
    assert expected
    assert [each for each in expected if each not in order] == []
    assert sorted(dict.fromkeys(expected), key=order.index) == list(dict.fromkeys(expected))


def recorded(app: Any, *arguments: object) -> str:
    """Run a command in this process, and return the functions that it passes, in the order of first calls."""
    passed: dict[str, None] = {}
    root, export = f"{ROOT}/", torch.onnx.export

    def untraced(*arguments: Any, **named: Any) -> Any:
        """Export a module without a look at the millions of calls, none of which is named."""
        sys.settrace(None)
        try:
            return export(*arguments, **named)
        finally:
            sys.settrace(look)

    def look(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(root):
            passed.setdefault(f"{name[len(root) :]} {frame.f_code.co_qualname}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.onnx, "export", untraced)
        threading.settrace(look)
        sys.settrace(look)
        try:
            command(app, *arguments)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]  # as its documentation says
    return "\n".join(passed)


@pytest.mark.deep
def test_a_training_and_an_export_pass_what_the_page_names(tmp_path: Path) -> None:
    run, repository = tmp_path / "burgers-tiny", tmp_path / "repository"
    small = ("--set", "operator.layers=1", "--set", "fit.epochs=1", "--set", "data.test=2", "--set", 'formats=["onnx"]')
    fit = recorded(training, "fit", "burgers-tiny", *small, "--out", run, "--data", tmp_path)
    assert_passed(named("training", "A model"), fit)
    export = recorded(exporting, run, "--name", "tiny", "--repository", repository)
    assert_passed(named("export", "A model"), export)


def test_an_error_measure_passes_what_the_page_names(tmp_path: Path) -> None:
    k = 10 ** np.random.default_rng(0).uniform(-1, 1, (20, 16))
    np.savez(tmp_path / "heat.npz", k=k, u=np.cumsum(1 / k, axis=1))
    (tmp_path / "heat.toml").write_text(HEAT)
    small = ("--preset", "tiny", "--no-amounts", "--set", "fit.epochs=1", "--set", "operator.layers=1")
    folders = ("--data", tmp_path, "--out", tmp_path / "run")
    fit = recorded(training, "fit", tmp_path / "heat.toml", *small, *folders)
    assert_passed(named("training", "An error measure"), fit)


def test_a_request_and_its_option_pass_what_the_page_names(
    make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    published, served = ROOT / "model_repository/darcy", tmp_path / "repository/darcy"
    newest = max((each for each in published.iterdir() if each.is_dir()), key=lambda each: int(each.name))
    shutil.copytree(newest, served / newest.name)  # older versions are opened while the request is recorded
    shutil.copyfile(published / "config.pbtxt", served / "config.pbtxt")
    settings = make_settings(tmp_path / "repository")
    chosen = settings.model_dump(exclude={"triton"}, exclude_defaults=True)
    variables = {f"PETROV_{name.upper()}": str(value) for name, value in chosen.items()}
    field, npy = physics.darcy.example(85, seed=3).astype(np.float32), tmp_path / "field.npy"
    np.save(npy, field)
    url, file = f"http://{settings.host}:{settings.port}", tmp_path / "serving.txt"
    tensor = {"name": "coefficient", "datatype": "FP32", "shape": [1, *field.shape], "data": field.ravel().tolist()}
    timed = {"inputs": [tensor], "parameters": {"timeout": 60_000_000}}
    with subprocess.Popen([*RECORDER, str(file), "serving"], cwd=ROOT, env=os.environ | variables) as process:

        def record() -> str:
            file.unlink(missing_ok=True)
            process.send_signal(signal.SIGUSR1)
            wait_until(file.exists)
            time.sleep(0.2)  # until it is written
            return file.read_text()

        def predict() -> None:
            headers = {"Content-Type": "application/x-npy"}
            httpx2.post(f"{url}/v1/models/darcy/predict", content=npy.read_bytes(), headers=headers).raise_for_status()

        try:
            wait_until(lambda: process.poll() is not None or ready(url), 240)
            predict()
            record()
            predict()
            time.sleep(0.2)  # the log line of the request is written after its response
            request = record()
            httpx2.post(f"{url}/v2/models/darcy/infer", json=timed).raise_for_status()
            option = record()
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
    assert_passed(named("serving", "A request"), request)
    assert_passed(named("serving", "A request option that reaches Triton"), option)
