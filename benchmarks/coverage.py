"""How often error estimates of models of few samples hold: their coverage on many new samples.

Data are two-valued permeabilities on 32 x 32 points and the pressures of finite volumes. `fit --preset quick` trains
on 80 % of the samples, race included, and the 10 % for validation calibrate, as those of a user do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import ONE_THREAD, Array, ResultFile, Row
from physics import darcy
from physics.numerics.fields import neumann_field
from training import checkpoint
from training.calibration.error_estimate import guarantee
from training.metrics import Grid
from training.metrics.fields import relative_l2

SIDE, FRESH, FRESH_SEED, BATCH = 32, 2000, 999, 100
LEAST = 100  # steps of a training
PROBLEM = """name = "pressure_{count}"
[data]
files = ["{name}.npz"]
[inputs.k]
positive = true
[outputs.u]
[axes.y]
boundary = "wall"
[axes.x]
boundary = "wall"
"""


def measure(
    counts: Sequence[int], seconds: float, seeds: int, kept: ResultFile, folder: Path, fresh: int = FRESH
) -> None:
    """Train on every number of samples with each seed, and add a row for each that is not kept."""
    folder.mkdir(parents=True, exist_ok=True)
    known, new = {(row["samples"], row["seed"]) for row in kept.rows}, drawn(FRESH_SEED, fresh)
    for seed in range(seeds):
        for count in counts:
            if (count, seed) not in known:
                kept.add(row(fitted(count, seed, seconds, folder), new) | {"samples": count, "seed": seed})


def drawn(seed: int, count: int) -> tuple[Array, Array]:
    """Draw permeabilities, and solve: `[sample, row, column]` each."""
    rng = np.random.default_rng([seed, 5])
    fields = np.stack([darcy.permeability(neumann_field(SIDE, rng)) for _ in range(count)])
    return fields, np.stack([darcy.solve(field) for field in fields])


def fitted(count: int, seed: int, seconds: float, folder: Path) -> Path:
    """Train as a user does, and return the folder of the run."""
    name = f"pressure-{count}-{seed}"
    k, u = drawn(10 * seed + count, count)
    np.savez(folder / f"{name}.npz", k=k.astype(np.float32), u=u.astype(np.float32))
    problem, run = folder / f"{name}.toml", folder / name
    problem.write_text(PROBLEM.format(count=count, name=name))
    settings = [f"fit.seconds={seconds:g}", f"fit.least={LEAST}", f"seed={seed}"]
    command = [sys.executable, "-m", "training", "fit", str(problem), "--out", str(run), "--data", str(folder)]
    arguments = [argument for each in settings for argument in ("--set", each)]
    alone = os.environ | ONE_THREAD  # the seconds are those of the training's thread, and others would add to it
    subprocess.run([*command, *arguments, "--resume"], check=True, stdout=sys.stderr, env=alone)  # noqa: S603 -- our own command
    return run


@torch.inference_mode()
def row(run: Path, new: tuple[Array, Array]) -> Row:
    """Return how often the estimates of a model hold for new samples, beside their means."""
    found, (fields, truths) = checkpoint.load(run), (torch.from_numpy(each.astype(np.float32)) for each in new)
    network, calibration = found.operator.eval(), found.calibration
    if calibration is None:
        raise ValueError(f"{run}: expected a calibrated model")
    pairs = list(zip(fields.split(BATCH), truths.split(BATCH), strict=True))
    errors = torch.cat([relative_l2(network(k), u, Grid()) for k, u in pairs])
    estimates = torch.cat([calibration(*network.canonical(k))[0][:, 0] for k, _ in pairs])
    held = (found.card.calibration or {})["errors"]
    return {
        "calibration_samples": held,
        "between": guarantee(held)["between"],
        "coverage": (errors <= estimates).double().mean().item(),
        "error": errors.mean().item(),
        "estimate": estimates.mean().item(),
    }
