"""Error against time: each network beside the classical methods for its problem, on the same new fields.

Classical methods are stopped where they are as accurate as the network. All methods see one field at a time on one
thread, interleaved. The truth is the solution on 421 x 421 cells for Darcy, the spectral solution for Burgers, and the
permeability itself for the inverse problem, whose inversion receives the deviation of the noise at each point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import physics.burgers
import physics.cole_hopf
import physics.darcy
import physics.inversion
from benchmarks.harness import Array, Row, graph, interleave, mean, newest_graph, timed
from physics.numerics import volumes
from physics.numerics.grid import CELLS, WALL, coarsen, relative_l2

Solve = Callable[[Array], Array]


MODELS = ("darcy", "burgers", "darcy_inverse")
NETWORK, INVERSION = "network", "total variation"
SEED, INVERSE_SEED = 5_000, 900
STEPS = (2, 4, 6, 8, 10)
#: Points and time steps of the spectral method. Larger steps overflow: 0.04 on 1 of 24 fields, 0.05 on 2.
INTEGRATIONS = ((128, 0.025), (128, 0.02), (256, 0.01), (1024, 0.002))
NOISE, BLOCKS = (0.0, 0.01, 0.1), (36, 36)
OTHERS = 16  # further samples, for the pressure's standard deviation, which is the unit of the noise
FINE = 2  # times as many cells per axis for the truth's own error


def measure(repository: Path, models: tuple[str, ...] = MODELS, *, quick: bool) -> Iterator[Row]:
    """Yield a row per model, input and method: mean relative L2 error, and median seconds per field."""
    measures = {"darcy": darcy, "burgers": burgers, "darcy_inverse": inverse}
    with threadpool_limits(1):
        for model in models:
            yield from measures[model](graph(newest_graph(repository / model)), quick)


def darcy(network: Solve, quick: bool) -> Iterator[Row]:
    """Yield the rows of `darcy`: conjugate gradients are stopped early, and not at all."""
    samples = [physics.darcy.sample(SEED + n) for n in range(4 if quick else 24)]
    solvers: dict[str, Solve] = {
        f"conjugate gradients, {steps} steps, float32": partial(volumes.solve_early_stopped, steps=steps)
        for steps in STEPS
    }
    methods: dict[str, Solve] = {NETWORK: network, **solvers, "conjugate gradients to 1e-10": physics.darcy.solve}
    for points in (85, 141) if quick else (85, 141, 211, 421):
        inputs, truth = (np.stack([physics.darcy.restrict(pair[n], points) for pair in samples]) for n in range(2))
        yield from rows("darcy", f"{points} x {points}", methods, inputs, truth)


def burgers(network: Solve, quick: bool) -> Iterator[Row]:
    """Yield the rows of `burgers`: the spectral method with larger steps, and the closed form."""
    samples = np.stack([physics.burgers.sample(SEED + n) for n in range(4 if quick else 24)])
    solvers: dict[str, Solve] = {
        f"spectral, {points} points, step {step:g}": partial(physics.burgers.solve, resolution=points, step=step)
        for points, step in INTEGRATIONS
    }
    closed = partial(physics.cole_hopf.solve, resolution=128, dtype=np.float32)
    methods: dict[str, Solve] = {NETWORK: network, **solvers, "closed form, 128 points, float32": closed}
    for points in (512,) if quick else (512, 8192):
        inputs, truth = np.moveaxis(samples[:, :, :: samples.shape[2] // points], 1, 0)
        yield from rows("burgers", f"{points} points", methods, inputs, truth)


def inverse(network: Solve, quick: bool) -> Iterator[Row]:
    """Yield the rows of `darcy_inverse`: permeability of blocks from pressure with noise."""
    fields, points = 1 if quick else 12, 141
    samples = [physics.darcy.sample(INVERSE_SEED + n) for n in range(fields + OTHERS)]
    pressures = np.stack([physics.darcy.restrict(pressure, points) for _, pressure in samples])
    clean, spread = pressures[:fields], pressures[fields:].std(axis=0)
    truth = np.stack([coarsen(coefficient, BLOCKS, WALL) for coefficient, _ in samples[:fields]])
    random = np.random.default_rng(INVERSE_SEED)
    for level in (0.01,) if quick else NOISE:
        noisy = clean + level * spread * random.standard_normal(clean.shape)
        invert = partial(physics.inversion.invert, noise=level * spread, points=BLOCKS)
        methods: dict[str, Solve] = {NETWORK: network, INVERSION: invert}
        yield from rows("darcy_inverse", f"{points} x {points}, {level:.0%} noise", methods, noisy, truth, rounds=1)


def rows(
    model: str, name: str, methods: Mapping[str, Solve], inputs: Array, truth: Array, *, rounds: int = 3
) -> Iterator[Row]:
    """Run every method on every field, and yield their rows."""
    sides = {method: timed(solve) for method, solve in methods.items()}
    found = interleave(sides, [(field,) for field in inputs], rounds, warm=rounds > 1)
    for method, measured in found.items():
        error, standard_error = mean(relative_l2(np.stack(measured.outputs), truth))
        yield {
            "model": model,
            "input": name,
            "method": method,
            "fields": len(inputs),
            "error": error,
            "standard_error": standard_error,
            "seconds": measured.seconds,
        }


def own_error(fields: int) -> Row:
    """Return the truth's own error for Darcy: 421 x 421 cells beside twice as many per axis.

    The coefficient of the finer mesh has each cell of the coarser one four times, so both solve the same equation.
    """
    errors = []
    for n in range(fields):
        coefficient, pressure = physics.darcy.sample(SEED + n)
        solution = physics.darcy.solve(np.kron(coefficient, np.ones((FINE, FINE))), wall=0.5 / (FINE * CELLS))
        means = solution.reshape(CELLS, FINE, CELLS, FINE).mean(axis=(1, 3))
        errors.append(float(relative_l2(pressure[None], means[None])[0]))
    error, standard_error = mean(np.array(errors))
    return {"problem": "darcy", "relative_l2": error, "standard_error": standard_error}
