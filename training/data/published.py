"""Conversion of published samples into the project's HDF5 file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from training.data import store
from training.data.store import Layout
from training.files import replacing
from training.problems.problem import Problem
from training.problems.published import Published, Stream
from training.user_error import UserError

STREAMS: tuple[Stream, ...] = ("train", "test")


def convert(problem: Problem, published: Published, mesh: int, counts: Mapping[str, int], path: Path) -> None:
    """Write published samples to `path`, unless it holds these already.

    Args:
        problem: The problem that the samples belong to.
        published: Where they come from.
        mesh: Points per axis of the request.
        counts: How many samples of each stream are requested.
        path: The file.

    Raises:
        ValueError: The published files hold too few samples or fields of another shape, or an array is missing.
    """
    if path.exists() and _holds(path, counts):
        return
    attributes = {"provenance": "published", "points": published.points, "files": published.files}
    with replacing(path) as aside:
        store.create(aside, Layout(problem.description, mesh, {}, attributes))
        for stream in STREAMS:
            _write(aside, problem, published, stream, counts)


def _holds(path: Path, counts: Mapping[str, int]) -> bool:
    # The last test samples of a longer request are not the last of a shorter one.
    with store.opened(path) as file:
        room = store.room(file)
    return room["test"] == counts["test"] and room["train"] >= counts["train"]


def _write(path: Path, problem: Problem, published: Published, stream: Stream, counts: Mapping[str, int]) -> None:
    # One array at a time is in memory: the finest sets have hundreds of megabytes each.
    description = problem.description
    with store.opened(path, "r+") as file:
        for quantity in (*description.inputs, *description.outputs):
            fields = published.read(stream, quantity.name, counts)
            if stream not in file:
                points = fields.shape[-1]
                store.allocate(file.create_group(stream), Layout(description, points, counts, {}), counts[stream])
            stored = file[stream][quantity.name]
            if fields.shape != stored.shape:
                raise UserError(
                    f"expected {stored.shape} but got {fields.shape} for {quantity.name}, {stream}, "
                    f"in {published.files}"
                )
            stored[:] = fields
        file[stream]["done"][:] = 1
