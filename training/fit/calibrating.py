"""The samples that the networks of a workload are calibrated with, with their errors."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training.calibration import FEWEST_FITTED, MOST_FITTED, CalibrationSamples, Measured, affordable, joined
from training.data import generate
from training.data.dataset import Rows
from training.data.prepare import prepare
from training.evaluation.cases import Case
from training.fit.drawn import CALIBRATION_SEED
from training.fit.workload import ScopeError
from training.losses import Batch
from training.problems.problem import trajectories_of
from training.problems.sections import DataSection

RENEWED = {"validation": 0.4, "test": 0.3}  # shares of new samples that calibrate and check, the rest is fitted


def renewed(work: Any, samples: int, files: tuple[str, ...]) -> Any:
    """Return a workload of new samples alone, which are divided as those of a training are.

    Samples that our samplers make are drawn. A half as many as calibrate are fitted; of trajectories as many check.
    """
    if work.drawn is not None:
        if files:
            raise ScopeError(f"{work.recipe.name}: its samples are drawn, so --samples makes new ones, and not --files")
        found = copy(work)
        found.drawn = copy(work.drawn)
        found.drawn.new = samples
        return found
    generated = None if files else trajectories_of(work.file.name)
    if generated is not None:
        drawn = DataSection(files=generated.file.data.files, validation=samples, test=samples)
        problem = generated.file.model_copy(update={"data": drawn, "seed": CALIBRATION_SEED})
        draw = partial(generated.draw, count=max(FEWEST_FITTED, samples // 2) + 2 * samples)
        path = generate.trajectories(replace(generated, file=problem, draw=draw), work.data)
    elif files:
        named = {"files": files, "coarse": None, **RENEWED}
        file = work.recipe.file
        problem = file.model_copy(update={"data": file.data.model_copy(update=named)})
        path = prepare(problem, Path(), work.data)
    else:
        raise ScopeError(
            f"{work.recipe.name}: a user's samples cannot be drawn: --files names files of new ones, and without "
            "any the validation samples calibrate"
        )
    recipe = work.recipe.model_copy(update={"problem": problem, "samples": path.name, "coarse": None})
    return type(work)(recipe, work.data, progress=work.progress)


def calibration_samples(work: Any, network: Any) -> CalibrationSamples:
    """Return every other training sample as fitted, the rest as inputs, and the validation samples.

    Of trajectories they are states without errors, for the novelty: rollouts have error estimates by frame. Those
    of a built-in problem are the cases of every measured grid.
    """
    if work.drawn is not None:
        units, held_out, checked = work.drawn.calibrating(vary=network.optional)
        measured = partial(of_case, work, network)
        return CalibrationSamples(
            fitted=(joined(*map(measured, every)) for every in units.by_grid(apart=False)),
            calibration=(joined(*map(measured, every)) for every in held_out.by_grid(apart=False)),
            test=(measured(case) for every in checked.by_grid(apart=True) for case in every),
        )
    splits = {name: np.asarray(work.samples.split(name)) for name in ("train", "validation", "test")}
    if work.is_trajectory:
        fitted, held, test = (states(work, rows) for rows in splits.values())
        return CalibrationSamples([fitted], [held], [test])
    size, points = work.samples.sample_bytes, {"grid": list(work.samples.sides)} if work.file.scattered else {}
    rows = splits["train"][: affordable(2 * MOST_FITTED, size)]
    validation, test = (
        with_errors(work, network, work.batch(splits[name][: affordable(int(splits[name][-1]) + 1, size)]), points)
        for name in ("validation", "test")
    )
    first = with_errors(work, network, work.batch(rows[::2]), points)
    inputs = Measured(work.batch(rows[1::2]).inputs)
    return CalibrationSamples([first], [validation, inputs], [test], work.deviations)


@torch.inference_mode()
def with_errors(work: Any, network: Any, batch: Batch, kind: Mapping[str, Any] | None = None) -> Measured:
    """Return samples of a kind with the errors of a network: those of fields, and of every number by itself."""
    fields, numbers = [], []
    for start in range(0, len(batch.inputs[0]), work.at_once):
        rows = slice(start, start + work.at_once)
        inputs, outputs = ([each[rows] for each in some] for some in batch[:2])
        part = Batch(inputs, outputs, measure=None if batch.measure is None else batch.measure[rows])
        found = work.predictions(network, part)
        if errors := work.field_errors(found, part):
            fields.append(torch.stack(errors).mean(dim=0))
        if pairs := work.scalar_pairs(found, part):
            numbers.append(torch.cat([((p - u) / one).abs().reshape(len(u), -1) for p, u, one in pairs], dim=1))
    of_fields, scalars = (torch.cat(each) if each else None for each in (fields, numbers))
    return Measured(batch.inputs, of_fields, kind or {}, scalars=scalars)


def of_case(work: Any, network: Any, case: Case) -> Measured:
    """Return the samples of a case with the errors of a network."""
    found = with_errors(work, network, case.whole, case.kind)
    level = torch.full((len(case),), case.noise, dtype=torch.float64)
    return found if case.varied else replace(found, noise=level)


def states(work: Any, rows: Rows) -> Measured:
    """Draw what steps of some trajectories start from, at any of their frames, with what the steps see."""
    frames, length = work.samples.frames or 1, work.history + any(one.per_frame for one in work.file.tensors)
    starts = frames - length + 1
    most = affordable(MOST_FITTED, work.samples.sample_bytes * work.history // frames)
    pairs = len(rows) * starts
    drawn = np.random.default_rng(work.recipe.seed).choice(pairs, min(pairs, most), replace=False)
    windows = work.samples.windows(rows[drawn // starts], drawn % starts, length)
    kind = {"grid": list(work.samples.sides)} if work.file.scattered else {}
    return Measured(work.as_batch(windows).inputs, kind=kind)
