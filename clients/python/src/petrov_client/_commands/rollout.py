"""`petrov rollout`: trajectories, kept frame by frame so that an interrupted command goes on."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from petrov_client._commands.connections import checked_files, connected
from petrov_client._commands.exit_codes import FAILED, end
from petrov_client._commands.options import GATEWAY, Name, Parameters, Timeout, Url, Version, numbers_of
from petrov_client._commands.reports import report_unused
from petrov_client._files import frame_files, kept_frames, local, quality_columns
from petrov_client._requests.rollout import by_name, time_axis
from petrov_client._score import artefact
from petrov_client._values.arrays import check_input
from petrov_client._values.quality import IncompleteRolloutWarning, warn
from petrov_client._wire.retry import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from petrov_client._values.models import ModelInfo


def rollout(
    model: Name,
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="The states to start from: .npy with one array, .npz or .h5.")
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="The trajectories: .npy, .npz, .h5 or, of one sample, .mp4; or a new folder .zarr."
        ),
    ],
    frames: Annotated[
        int | None,
        typer.Option(min=1, help="How many frames follow; as many as a training trajectory has by default."),
    ] = None,
    parameter: Parameters = None,
    url: Url = GATEWAY,
    version: Version = None,
    timeout: Timeout = TIMEOUT_SECONDS,
    partial: Annotated[
        bool, typer.Option("--partial", help="Keep the frames before an error, and the samples that do not fail.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on behind the frames that an earlier run has left in OUT.partial.")
    ] = False,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = False,
) -> None:
    r"""Predict the trajectories that follow from the states in IN, and write them to OUT as \[..., frame, ...].

    IN is read as by [bold]petrov predict[/]. Frames are written to
    OUT.partial as they arrive, so memory holds a few of them. OUT is there
    once it is complete: after an error there is no OUT or, with --partial,
    one with fewer frames.

    After an error, an interrupt or a kill the same command with --resume
    goes on behind the last whole frame in OUT.partial, and the trajectories
    become the same. It refuses the frames of another model, input or
    parameter. An .h5 or .zarr that is complete is continued to more --frames.
    Without --resume the rollout starts again.

    .npz, .h5 and .zarr also hold what is known about the error of every
    frame: error_estimate, novelty and outside, where the model reports them.
    A movie shows every output frame by frame, with one scale for all frames.

    Example: petrov rollout navier_stokes vorticity.npy flow.h5 --frames 200 --progress

    Example: petrov rollout navier_stokes vorticity.npy flow.h5 --frames 200 --resume
    """
    if resume:
        kept_frames.check_left(target)
    with connected(url, timeout) as client:
        info = checked_files(client, model, source, target, local.TRAJECTORIES, resumed=resume)
        total = time_axis(info).trained if frames is None else frames
        with local.opened(source, info) as found:
            report_unused(source, found.unused)
            arrays, number = local.with_numbers(found.arrays, numbers_of(parameter)), version or info.version
            described = kept_frames.job(check_input(info, arrays), number, artefact(info, number))
            with kept_frames.KeptFrames(target, described, resume=resume) as kept, _reported(kept):
                if resume and not kept.done and target.exists() and not _taken(kept, target, info, total):
                    return
                rolled = client.rollout_stream(
                    model,
                    arrays,
                    total,
                    version=number,
                    progress=progress,
                    quality=True,
                    partial=partial,
                    earlier=(frame_files.outputs_of(frame, info) for frame in kept.frames(total)),
                )
                ended = _append_frames(rolled, kept, target, info)
                count = min(kept.done, total)
                written = frame_files.write(target, kept.frames(count), info, count, described)
                if ended:
                    _report_kept(kept)
                else:
                    kept.remove()
        spans = {name: quality_columns.span(array) for name, array in written.spans.items()}
        holds = [f"{name} {list(shape)} {spans[name]}" for name, shape in written.shapes.items()]
        typer.echo(f"{', '.join(holds)} -> {target}")
        if kept.outside:
            warn(model)
    if ended:
        end(ended, FAILED)


def _taken(kept: kept_frames.KeptFrames, target: Path, info: ModelInfo, total: int) -> bool:
    """Return whether a rollout goes on from a finished file, which has fewer frames."""
    with frame_files.finished(target, info) as finished:
        if kept.take(finished, total):
            return True
        typer.echo(f"{target} has {finished.count} frames already")
        return False


def _append_frames(
    rolled: Iterator[Any], kept: kept_frames.KeptFrames, target: Path, info: ModelInfo
) -> IncompleteRolloutWarning | None:
    """Keep frames as they arrive, and return how the rollout ended if not with its last frame."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", IncompleteRolloutWarning)
        try:
            for frame, known in rolled:
                outputs = by_name(frame, info)
                frame_files.check_frame(target, outputs, info)
                columns = quality_columns.of_frame(info, known, frame_files.batch_of(outputs, info))
                kept.add(outputs | columns, outside=known.outside is not None and bool(np.any(known.outside)))
        except IncompleteRolloutWarning as ended:
            return ended
    return None


@contextmanager
def _reported(kept: kept_frames.KeptFrames) -> Iterator[None]:
    """Say which frames are kept where the block fails or is interrupted."""
    try:
        yield
    except BaseException:
        if kept.done:
            _report_kept(kept)
        raise


def _report_kept(kept: kept_frames.KeptFrames) -> None:
    typer.echo(f"petrov: {kept.path} has {kept.done} frames; --resume goes on behind them", err=True)
