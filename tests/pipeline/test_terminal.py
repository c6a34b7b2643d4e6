"""The main commands in a terminal, where bars, colours and keys take other ways than in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import terminal
from tests.terminal import CTRL_C, Terminal

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": f"{ROOT}:{ROOT / 'clients/python/src'}"}
FIT = (sys.executable, "-m", "training", "fit", "burgers-tiny")


@pytest.mark.parametrize(
    ("columns", "environment"),
    [(60, {}), (200, {"NO_COLOR": "1"}), (80, {"TERM": "dumb"})],
    ids=["narrow", "without colour", "dumb"],
)
def test_a_training_is_shown(tmp_path: Path, columns: int, environment: Mapping[str, str]) -> None:
    screen = terminal.run(*FIT, folder=tmp_path, columns=columns, environment=ENVIRONMENT | environment)
    assert screen.status == 0, screen.text
    assert "Traceback" not in screen.text
    assert "56 of 56 fields" in screen.text
    assert "epoch 25" in screen.text
    assert screen.coloured == (not environment)
    assert ("\x1b[2K" in screen.written) == ("TERM" not in environment)  # where a line can be drawn again
    bars = [line for line in screen.lines if line.startswith("training ")]
    assert all("100%" in line and "error" in line for line in bars)
    assert len(bars) == ("TERM" not in environment)
    assert (tmp_path / "runs/burgers-tiny/weights.safetensors").exists()


def test_ctrl_c_stops_a_training_and_says_how_to_go_on(tmp_path: Path) -> None:
    training = Terminal([*FIT, "--set", "fit.epochs=4000"], tmp_path, 400, ENVIRONMENT)
    training.wait_for("epoch 2,")
    training.press(CTRL_C)
    screen = training.end()
    assert screen.status == 130
    assert "Traceback" not in screen.text
    again = "python -m training fit burgers-tiny --set fit.epochs=4000 --resume"
    assert screen.text.endswith(f"stopped; what is finished is kept, and this goes on with it: {again}")
    assert list((tmp_path / "runs/burgers-tiny/state").glob("epoch=*.ckpt"))
