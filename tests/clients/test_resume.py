"""Rollouts that were interrupted and go on from the frames that the command has kept."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from petrov_client import Client, InvalidInput, InvalidResponse, OutsideTrainingWarning, Quality
from petrov_client._descriptions import model_info
from petrov_client._inputs import check_input
from petrov_client._quality import Options, Response
from petrov_client._rollout import Rollouts
from tests import toy_rollouts
from tests.clients.conftest import KINDS
from tests.clients.test_files import read
from tests.clients.test_rollout import frames_sent, taken
from tests.conftest import Gateway, wait_until

U = np.linspace(1, 2, 3 * 1000, dtype=np.float32).reshape(3, 1000)
RATE = "rate=0.9999"


@pytest.fixture
def start(tmp_path: Path) -> Path:
    np.save(tmp_path / "start.npy", U)
    return tmp_path / "start.npy"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_killed_command_goes_on_behind_its_last_whole_frame(
    petrov: Callable[..., Any], gateway: Gateway, start: Path, tmp_path: Path
) -> None:
    out, kept = tmp_path / "out.npy", tmp_path / "out.npy.partial"
    command = ["rollout", "growth", str(start), str(out), "--url", gateway.url, "--parameter", RATE]
    with subprocess.Popen([sys.executable, "-m", "petrov_client", *command, "--frames", "100000"]) as process:
        wait_until(lambda: len(list(kept.glob("*.safetensors"))) > 30)
        process.kill()
        assert process.wait() < 0
    assert names(tmp_path) == {"start.npy", "out.npy.partial"}
    whole = len(list(kept.glob("*.safetensors"))) - 1
    os.truncate(kept / f"{whole}.safetensors", U.nbytes)  # as if the last frame had not reached the disk
    wait_until(lambda: gateway.service.admission.requests == 0)
    before = frames_sent(gateway)
    done = petrov(*command, "--frames", whole + 20, "--resume")
    assert done.returncode == 0, done.stderr
    assert frames_sent(gateway) - before == 3 * 20
    resumed = out.read_bytes()
    assert petrov(*command, "--frames", whole + 20).returncode == 0
    assert resumed == out.read_bytes()
    assert np.load(out).shape == (3, whole + 20, 1000)
    assert names(tmp_path) == {"start.npy", "out.npy"}


@pytest.fixture
def kept(petrov: Callable[..., Any], gateway: Gateway, tmp_path: Path) -> tuple[Any, ...]:
    """Return a command of which 8 frames are kept: in the ninth a sample is beyond float32."""
    np.save(tmp_path / "start.npy", np.stack([np.full(16, 1e30, np.float32), U[0, :16]]))
    command = ("rollout", "growth", tmp_path / "start.npy", tmp_path / "out.h5", "--url", gateway.url)
    done = petrov(*command, "--parameter", "rate=9", "--frames", 12)
    assert done.returncode == 4
    assert f"{tmp_path / 'out.h5.partial'} has 8 frames; --resume goes on behind them" in done.stderr
    return command


def test_frames_of_another_rollout_are_refused(petrov: Callable[..., Any], kept: tuple[Any, ...]) -> None:
    u, out = kept[2:4]
    path = out.with_name("out.h5.partial")

    def contents() -> dict[str, bytes]:
        return {entry.name: entry.read_bytes() for entry in path.iterdir()}

    frames = contents()

    def refused(*options: object) -> str:
        done = petrov(*kept, "--frames", 12, "--resume", *options)
        assert (done.returncode, contents()) == (2, frames)
        return str(done.stderr)

    assert "rate: expected 8.0 but found 9.0. Repeat" in refused("--parameter", "rate=8")
    assert "rate: expected 1.0 but found 9.0. Repeat" in refused()  # its default
    np.save(u, np.load(u)[::-1])
    found = refused("--parameter", "rate=9")
    assert re.search(
        r"u: expected 2 x 16 numbers with checksum \w+ but found 2 x 16 numbers with checksum \w+\.", found
    )
    (path / "job.json").unlink()
    frames = contents()
    assert f"expected unfinished results in {path} but it holds something else" in refused("--parameter", "rate=9")


@pytest.mark.parametrize("name", ["job.json", "3.safetensors", "lock", ""])
def test_a_symbolic_link_is_refused_in_a_sentence_and_not_followed(
    petrov: Callable[..., Any], kept: tuple[Any, ...], tmp_path: Path, name: str
) -> None:
    path, other = tmp_path / "out.h5.partial" / name, tmp_path / "other"
    path.rename(other)
    path.symlink_to(other)
    before = other.read_bytes() if name else names(other)
    for resume in ([], ["--resume"]):
        done = petrov(*kept, "--frames", 12, "--parameter", "rate=9", *resume)
        assert done.returncode == 2
        assert re.search("symbolic link|is none: remove it", done.stderr)
        assert done.stderr.count("\n") == 1
    assert (other.read_bytes() if name else names(other)) == before


@pytest.mark.parametrize("content", [b"", b"[1", b"[" * 100_000, b"7", b"\xff"])
def test_a_damaged_description_is_said_in_a_sentence(
    petrov: Callable[..., Any], kept: tuple[Any, ...], tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "out.h5.partial" / "job.json").write_bytes(content)
    done = petrov(*kept, "--frames", 12, "--parameter", "rate=9", "--resume")
    assert done.returncode == 2
    assert "out.h5.partial is damaged (job.json is not readable" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_a_damaged_frame_is_said_and_computed_again(
    petrov: Callable[..., Any], kept: tuple[Any, ...], tmp_path: Path, gateway: Gateway, content: bytes | None
) -> None:
    record = tmp_path / "out.h5.partial" / "3.safetensors"
    whole = record.read_bytes()
    record.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if content is None else content)
    before = frames_sent(gateway)
    with pytest.warns(OutsideTrainingWarning):
        done = petrov(*kept, "--parameter", "rate=9", "--frames", 8, "--resume")
    assert done.returncode == 0, done.stderr
    assert "1 frames are damaged" in done.stderr
    assert frames_sent(gateway) - before == 2 * 5
    np.testing.assert_allclose(read(tmp_path / "out.h5")[1], toy_rollouts.compute(U[:1, :16], 9.0, 8)[0], rtol=1e-5)


def test_frames_that_are_all_there_are_not_asked_for(
    petrov: Callable[..., Any], kept: tuple[Any, ...], gateway: Gateway, tmp_path: Path
) -> None:
    whole = tmp_path / "out.h5.partial" / "whole"  # of a process that was killed while it wrote the file
    whole.mkdir()
    (whole / "out.h5").write_bytes(b"half of it")
    before = frames_sent(gateway)
    with pytest.warns(OutsideTrainingWarning):  # of the frames that are there
        assert petrov(*kept, "--parameter", "rate=9", "--frames", 8, "--resume").returncode == 0
    assert frames_sent(gateway) == before
    assert names(tmp_path) == {"start.npy", "out.h5"}
    assert read(tmp_path / "out.h5", "outside").tolist() == [[1] * 8, [0] * 8]


@pytest.mark.parametrize("suffix", ["h5", "nc", "zarr"])
def test_a_finished_rollout_is_continued(
    petrov: Callable[..., Any], gateway: Gateway, start: Path, tmp_path: Path, suffix: str
) -> None:
    out, whole = tmp_path / f"out.{suffix}", tmp_path / f"whole.{suffix}"
    command = ("rollout", "growth", start, "--url", gateway.url, "--parameter", RATE)
    for target, count in ((out, 30), (whole, 50)):
        assert petrov(*command, target, "--frames", count).returncode == 0
    before = frames_sent(gateway)
    done = petrov(*command, out, "--frames", 50, "--resume")
    assert done.returncode == 0, done.stderr
    assert frames_sent(gateway) - before == 3 * 20
    np.testing.assert_array_equal(read(out), read(whole))
    for column in ("error_estimate", "outside"):
        np.testing.assert_array_equal(read(out, column), read(whole, column))
    estimates = read(out, "error_estimate")
    np.testing.assert_allclose(estimates[:, :12], [toy_rollouts.ESTIMATES] * 3, rtol=1e-6)
    assert np.isnan(estimates[:, 12:]).all()
    assert estimates.shape == read(out, "novelty").shape == (3, 50)
    assert petrov(*command, out, "--frames", 40, "--resume").stdout == f"{out} has 50 frames already\n"
    done = petrov(*command, out, "--frames", 40, "--resume", "--parameter", "rate=2")
    assert (done.returncode, f"{out} belongs to another job: rate: expected 2.0" in done.stderr) == (2, True)
    assert names(tmp_path) == {"start.npy", out.name, whole.name}


@pytest.mark.parametrize("name", ["out.h5 changed", "out.nc changed", "out.zarr cut", "out.zarr removed"])
def test_a_finished_file_that_is_damaged_is_not_continued(
    petrov: Callable[..., Any], gateway: Gateway, start: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / name.partition(" ")[0]
    command = ("rollout", "growth", start, out, "--url", gateway.url, "--parameter", RATE)
    assert petrov(*command, "--frames", 3).returncode == 0
    if out.suffix != ".zarr":
        with h5py.File(out, "r+") as file:
            file["state"][0, 1, 2] += 1
    else:
        chunk = next(path for path in (out / "state/c").rglob("*") if path.is_file())
        os.truncate(chunk, 20) if "cut" in name else chunk.unlink()
    done = petrov(*command, "--frames", 5, "--resume")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"petrov: {out} is damaged" in done.stderr
    assert names(tmp_path) == {"start.npy", out.name}


@pytest.mark.parametrize("name", ["out.npy", "out.npz", "out.mp4"])
def test_a_finished_file_that_does_not_say_what_it_is_from_is_refused(
    petrov: Callable[..., Any], start: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).touch()
    done = petrov("rollout", "growth", start, tmp_path / name, "--resume", "--url", "http://127.0.0.1:1")  # not asked
    assert (done.returncode, "so only .h5 and .hdf5 and .nc and .nc4 and .zarr are continued" in done.stderr) == (
        2,
        True,
    )


@pytest.mark.filterwarnings("ignore::petrov_client.OutsideTrainingWarning")
@pytest.mark.parametrize("kind", KINDS)
async def test_earlier_frames_are_not_computed_again(gateway: Gateway, kind: str) -> None:
    u = np.stack([np.full(16, 1e30, np.float32), U[0, :16]])  # times 9 the first is beyond float32 in frame 9
    frames = await taken(kind, gateway, 20, u, 20, rate=[9.0, 1.1], partial=True)
    later = await taken(kind, gateway, 20, u, 20, rate=[9.0, 1.1], partial=True, earlier=frames[:12])
    np.testing.assert_array_equal(later, frames[12:])
    assert np.isnan(later)[:, 0].all()
    with pytest.raises(InvalidInput, match="a sample has failed in earlier frame 9: the others go on with `partial`"):
        await taken(kind, gateway, 20, u, 20, rate=[9.0, 1.1], earlier=frames)
    with pytest.raises(InvalidInput, match="at most 11 earlier frames"):
        await taken(kind, gateway, 20, u, 11, rate=[9.0, 1.1], partial=True, earlier=frames)


def test_a_state_of_several_frames_is_made_of_the_last_ones() -> None:
    card = toy_rollouts.card()
    card["frames"]["history"] = 3
    card["inputs"][0] |= {"axes": ["batch", "history", "x"], "shape": [None, 3, None]}
    info = model_info({"name": "growth", "version": 1, "versions": [1], "card": card})
    u, made = np.split(np.random.default_rng(0).random((2, 6, 16), np.float32), 2, axis=1)
    checked = check_input(info, u)
    for count in range(4):
        [piece] = Rollouts(checked, Options(), 9).repeat(made[:, index] for index in range(count)).pieces
        np.testing.assert_array_equal(piece.inputs["u"], np.concatenate([u, made], 1)[:, count : count + 3])
        assert (piece.options().frames, piece.options().after) == (9 - count, count)
    with pytest.raises(InvalidInput, match=r"earlier frame 1 does not fit: expected a frame of shape \(2, 16\)"):
        Rollouts(checked, Options(), 9).repeat([made])


def test_a_sample_that_was_outside_stays_so_in_later_requests() -> None:
    """A service says what it knows of one request: whether a sample has left in that one."""
    info = model_info({"name": "growth", "version": 1, "versions": [1], "card": toy_rollouts.card()})
    checked = check_input(info, U[:2, :16])

    def shown(rollouts: Rollouts, novelty: list[list[float]]) -> list[Any]:
        [piece], numbers = rollouts.pieces, np.array(novelty, np.float32)
        replies = (Response({"state": U[:2, :16]}, {"novelty": each}) for each in numbers)
        return [rollouts.shown(rollouts.together([piece.follow(each)])) for each in replies]

    rollouts = Rollouts(checked, Options(quality=True), 9)
    frames = shown(rollouts, [[0.0, 0.5], [0.5, 0.5], [0.5, np.nan]])
    assert [known.outside.tolist() for _, known in frames] == [[True, False]] * 3
    assert [known.outside.tolist() for _, known in shown(rollouts, [[0.5, 0.0], [0.5, 0.5]])] == [[True, True]] * 2
    later = Rollouts(checked, Options(quality=True), 9).repeat(frames)
    assert [known.outside.tolist() for _, known in shown(later, [[0.5, 0.5]])] == [[True, False]]
    with pytest.raises(InvalidInput, match="earlier frame 1 does not fit"):
        rollouts.repeat([(frames[0][0], Quality(outside=np.ones(3, np.bool_)))])
    with pytest.raises(InvalidResponse, match=r'expected 2 numbers for "novelty" but got \(3,\)'):
        shown(later, [[0.5, 0.5, 0.5]])


def test_a_rollout_that_goes_on_knows_what_was_outside(
    petrov: Callable[..., Any], gateway: Gateway, tmp_path: Path
) -> None:
    u = np.stack([np.full(16, 30, np.float32), U[0, :16]])  # the first is outside, and in frame 9 no longer so large
    np.save(tmp_path / "start.npy", u)
    command = ("rollout", "growth", tmp_path / "start.npy", tmp_path / "out.h5", "--url", gateway.url)
    for options in (["--frames", 8], ["--frames", 20, "--resume"]):
        with pytest.warns(OutsideTrainingWarning):
            assert petrov(*command, "--parameter", "rate=0.5", *options).returncode == 0
    with pytest.warns(OutsideTrainingWarning):  # also where the file has no place for it
        assert petrov(*command[:3], tmp_path / "out.npy", *command[4:], "--parameter", "rate=0.5").returncode == 0
    assert read(tmp_path / "out.h5", "novelty")[0, 8:].min() > 0.5
    assert read(tmp_path / "out.h5", "outside").tolist() == [[1] * 20, [0] * 20]
    with Client(gateway.url) as client:
        found = [known.outside for _, known in client.rollout_stream("growth", u, 20, rate=0.5, quality=True)]
        _, known = client.rollout("growth", u, 20, rate=0.5, quality=True)
    np.testing.assert_array_equal(np.stack(found, axis=1), known.outside)
