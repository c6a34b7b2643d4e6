"""`petrov rollout`: trajectories, kept frame by frame so that an interrupted command goes on."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count as numbers_from
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from petrov_client import _files as files
from petrov_client import _trajectories as trajectories
from petrov_client._arrays import Fields, PredictionInput
from petrov_client._commands.options import (
    GATEWAY,
    Name,
    Parameters,
    RootCertificates,
    ShowProgress,
    Timeout,
    Url,
    Version,
    checked_files,
    connected,
    numbers_of,
    report_unused,
)
from petrov_client._errors import ServiceError
from petrov_client._flow import TIMEOUT_SECONDS
from petrov_client._inputs import check_input
from petrov_client._kept import Description, Kept, check_same, kept_path, outputs_of
from petrov_client._labels import unlabelled
from petrov_client._models import ModelInfo
from petrov_client._quality import FOLLOWS_OUTSIDE, IncompleteRolloutWarning, Quality, columns_of_frame, warn
from petrov_client._rollout import by_name, time_axis
from petrov_client._score import artefact
from petrov_client._spans import Span


def rollout(
    model: Name,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN",
            help="The states to start from: .npy with one array, .npz or .h5; a mesh, such as .vtu, or a series.",
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="The trajectories: .npy, .npz, .h5, .nc or, of one sample, .mp4; a new folder .zarr; .pvd of a mesh.",
        ),
    ],
    frames: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many frames follow; by default as many as a forcing has, or else a training trajectory."
        ),
    ] = None,
    parameter: Parameters = None,
    url: Url = GATEWAY,
    version: Version = None,
    timeout: Timeout = TIMEOUT_SECONDS,
    root_certificates: RootCertificates = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Keep the frames before an error, and the samples that do not fail.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on behind the frames that an earlier run has left in OUT.partial.")
    ] = False,
    progress: ShowProgress = False,
) -> None:
    r"""Predict the trajectories that follow from the states in IN, and write them to OUT as \[..., frame, ...].

    IN is read as by [bold]petrov predict[/]. Frames are written to
    OUT.partial as they arrive, so memory holds a few of them. OUT is there
    once it is complete: after an error there is no OUT or, with --partial,
    one with fewer frames.

    After an error, an interrupt or a kill the same command with --resume
    goes on behind the last whole frame in OUT.partial, and the trajectories
    become the same. It refuses the frames of another model, input or
    parameter. An .h5, .nc or .zarr that is complete is continued to more
    --frames. Without --resume the rollout starts again.

    .npz, .h5, .nc and .zarr also hold what is known about the error of every
    frame: error_estimate, novelty and outside, where the model reports them.
    An .nc has the times of the frames. Of a netCDF file as IN it keeps the
    dimensions and coordinates, and the times go on from that of the file.
    A movie shows every output frame by frame, with one scale for all frames.
    A .pvd lists a mesh file for each frame, in the folder OUT_frames beside it:
    ParaView plays them. As IN, as an .xdmf or .exo with steps, it is what the
    rollout goes on from: its last mesh, or as many as the model starts from.
    Where an input changes in time, its first meshes are the start, and all have
    the input; a single mesh has one that stays what it is for all frames.

    Example: petrov rollout navier_stokes vorticity.npy flow.h5 --frames 200 --progress

    Example: petrov rollout cooling plate.vtu cooling.pvd --frames 50

    Example: petrov rollout navier_stokes vorticity.npy flow.h5 --frames 200 --resume
    """
    left = kept_path(target)
    if resume and target.suffix.lower() not in trajectories.CONTINUED and target.exists() and not left.exists():
        raise ValueError(
            f"{target} is there and {left.name} is not: a finished {target.suffix} does not say what it was computed "
            f"from, so only {' and '.join(sorted(trajectories.CONTINUED))} are continued; without --resume it is "
            "computed again"
        )
    with connected(url, timeout, root_certificates) as client:
        info = checked_files(client, model, source, target, files.TRAJECTORIES, resumed=resume)
        time, number = time_axis(info), version or info.version
        with files.opened(source, info, given=numbers_of(parameter), frames=frames) as found:
            report_unused(source, found)
            trajectories.check_series(source, target, found.mesh)
            arrays = files.with_numbers(found.arrays, numbers_of(parameter))
            checked = check_input(info, arrays)
            total, job = frames or checked.frames or time.trained, _description(checked, number)
            with Kept(target, job, resume=resume) as kept, _reported(kept):
                if kept.damaged:
                    typer.echo(f"petrov: {kept.path}: {len(kept.damaged)} frames are damaged: computed again", err=True)
                if resume and not kept.done and target.exists() and not _copied(kept, target, info, total):
                    return
                done = _whole(kept)
                # Frames are kept as arrays; the file that is written in the end has the labels.
                plain = {each.tensor.name: unlabelled(each.array) for each in checked.inputs}
                rolled = client.rollout_stream(
                    model,
                    {**arrays, **plain},
                    total,
                    version=number,
                    progress=progress,
                    quality=True,
                    partial=partial,
                    earlier=(_earlier(kept.read(frame), info) for frame in range(min(done, total))),
                )
                ended: IncompleteRolloutWarning | None = None
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("error", IncompleteRolloutWarning)
                        for frame, (outputs, known) in enumerate(rolled, done):
                            named = by_name(outputs, info)
                            trajectories.check_frame(target, named, info)
                            numbers = columns_of_frame(info, known, trajectories.batch_of(named, info))
                            kept.add(frame, named | numbers)
                except IncompleteRolloutWarning as warning:
                    ended = warning
                count, outside = min(_whole(kept), total), Span()

                def read(frame: int) -> dict[str, Fields]:
                    record = kept.read(frame)
                    outside.add(record.get(FOLLOWS_OUTSIDE.name, ()))
                    return record

                with kept.finishing() as whole:
                    start = trajectories.Start(target, found.mesh, found.time, checked.labels)
                    written = trajectories.write(whole, read, info, count, job, start)
                if ended is None:
                    kept.remove()
                else:
                    _report_kept(kept)
        holds = [f"{name} {list(shape)} {written.spans[name]}" for name, shape in written.shapes.items()]
        typer.echo(f"{', '.join(holds)} -> {target}")
        if outside.high == 1:
            warn(model)
    if ended is not None:
        raise ServiceError(str(ended))


def _description(batch: PredictionInput, version: int) -> Description:
    """Return what the frames of a rollout depend on: the model, and every input and parameter."""
    described: Description = {
        "model": batch.info.name,
        "version": version,
        "artefact_sha256": artefact(batch.info, version),
    }
    for each in batch.info.arguments:
        if each.default is not None:
            described[each.name] = str(np.float32(each.default))
    for name, array in batch.numbers.items():
        shared = bool((array == array[0]).all())
        described[name] = str(array[0]) if shared else _digest(array.shape, [array])
    for field in batch.inputs:
        pieces = batch.pieces(len(batch))
        described[field.tensor.name] = _digest(field.array.shape, (field.fields(piece) for piece in pieces))
    return described


def _digest(shape: tuple[int, ...], parts: Iterable[Fields]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.data)
    return f"{' x '.join(map(str, shape))} numbers with checksum {digest.hexdigest()[:16]}"


def _earlier(record: Mapping[str, Fields], info: ModelInfo) -> tuple[dict[str, Fields], Quality]:
    """Return a frame that is kept, and which samples were outside, which they stay."""
    outside = record.get(FOLLOWS_OUTSIDE.name)
    return outputs_of(record, info), Quality(outside=None if outside is None else outside == 1)


def _whole(kept: Kept) -> int:
    """Return how many of the first frames are kept."""
    return next(number for number in numbers_from() if number not in kept.done)


def _copied(kept: Kept, target: Path, info: ModelInfo, total: int) -> bool:
    """Keep the frames of a finished file, and return whether it has fewer of them than are wanted."""
    with trajectories.finished(target, info) as (described, count, frames):
        check_same(target, described, kept.job)
        if count >= total:
            typer.echo(f"{target} has {count} frames already")
            return False
        try:
            for number, frame in enumerate(frames):
                kept.add(number, frame)
        except OSError:
            kept.remove()
            raise
    return True


@contextmanager
def _reported(kept: Kept) -> Iterator[None]:
    """Say which frames are kept where the block fails or is interrupted."""
    try:
        yield
    except BaseException:
        if kept.done:
            _report_kept(kept)
        raise


def _report_kept(kept: Kept) -> None:
    typer.echo(f"petrov: {kept.path} has {_whole(kept)} frames; --resume goes on behind them", err=True)
