"""Movies of trajectories, read back by the decoder."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest

from petrov_client import _files as local
from petrov_client import _trajectories as trajectories
from petrov_client._descriptions import model_info
from petrov_client._models import ModelInfo
from tests import toy_rollouts

FRAMES, SIDE = 5, 64


def described(axes: tuple[str, ...] = ("x",)) -> ModelInfo:
    """Return a model of trajectories on these axes."""
    card = toy_rollouts.card()
    card["grid"] |= {"axes": axes, "lengths": [1.0] * len(axes), "boundaries": ["periodic"] * len(axes)}
    card["inputs"][0] |= {"axes": ["batch", *axes], "shape": [None] * (1 + len(axes))}
    card["outputs"][0] |= {"axes": ["batch", "frame", *axes], "shape": [None] * (2 + len(axes))}
    return model_info({"name": "growth", "version": 1, "versions": [1], "card": card})


def pictures(path: Path) -> list[Any]:
    """Return the pictures of a movie, made smaller."""
    arguments = ["-i", str(path), "-vf", f"scale={SIDE}:{SIDE}", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), *arguments], capture_output=True, check=True)
    return list(np.frombuffer(done.stdout, np.uint8).reshape(-1, SIDE, SIDE, 3).astype(int))


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, where a test before has imported it
@pytest.mark.parametrize("axes", [("x",), ("row", "column")])
def test_a_movie_has_a_picture_per_frame(tmp_path: Path, axes: tuple[str, ...]) -> None:
    state = np.random.default_rng(0).random((1, FRAMES, *[16] * len(axes)), np.float32)
    trajectories.write_movie(tmp_path / "out.mp4", {"state": state}, described(axes))
    found = pictures(tmp_path / "out.mp4")
    assert len(found) == FRAMES
    assert all(np.abs(one - other).max() > 20 for one, other in pairwise(found))


def test_an_archive_may_be_named_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("made/out.npz")
    path.parent.mkdir()
    trajectories.write(path, lambda number: {"state": np.full((2, 16), number, np.float32)}, described(), FRAMES)
    with np.load(path) as found:
        assert found["state"][:, :, 0].tolist() == [[*map(float, range(FRAMES))]] * 2


def test_a_movie_shows_one_sample(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a movie shows one sample, and there are 2"):
        trajectories.write_movie(tmp_path / "out.mp4", {"state": np.zeros((2, FRAMES, 16), np.float32)}, described())


def test_what_no_movie_can_show_is_an_error_at_the_first_frame(tmp_path: Path) -> None:
    frame, info = {"state": np.zeros((2, 16), np.float32)}, described()
    with pytest.raises(ValueError, match="a movie shows one sample, and there are 2"):
        trajectories.check_frame(tmp_path / "out.mp4", frame, info)
    trajectories.check_frame(tmp_path / "out.mp4", {"state": frame["state"][0]}, info)
    trajectories.check_frame(tmp_path / "out.h5", frame, info)


def test_a_missing_library_is_named_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ValueError, match="pip install matplotlib imageio-ffmpeg"):
        local.check_output(tmp_path / "out.mp4", local.TRAJECTORIES)
