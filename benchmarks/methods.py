"""Error against time: each network beside the classical methods for its problem, on the same new fields.

Classical methods are stopped where they are as accurate as the network. All methods see one field at a time on one
thread, interleaved. The truth is the solution on 421 x 421 cells for Darcy, the spectral solution for Burgers, and the
permeability itself for the inverse problem, whose inversion receives the deviation of the noise at each point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from scipy.interpolate import make_interp_spline
from threadpoolctl import threadpool_limits

import physics.burgers
import physics.cole_hopf
import physics.darcy
import physics.inversion
from benchmarks.harness import Array, Row, graph, interleave, mean, newest_graph, timed
from physics.numerics import volumes
from physics.numerics.grid import CELLS, WALL, axis, coarsen, overlaps, relative_l2

Solve = Callable[[Array], Array]


MODELS = ("darcy", "burgers", "darcy_inverse")
NETWORK, INVERSION = "network", "total variation"
SEED, INVERSE_SEED = 5_000, 900
STEPS = (2, 4, 6, 8, 10)
#: Points per axis of the finer grids on which the interface between two materials is reconstructed, and steps there.
FINER, FINER_STEPS, TIE = (211, CELLS), 8, 1e-4
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
    """Yield the rows of `darcy`: conjugate gradients are stopped early, and not at all, and on finer grids.

    On these the materials between the points are guessed from those at the points, as the network may.
    """
    samples = [physics.darcy.sample(SEED + n) for n in range(4 if quick else 24)]
    solvers: dict[str, Solve] = {
        f"conjugate gradients, {steps} steps, float32": partial(volumes.solve_early_stopped, steps=steps)
        for steps in STEPS
    }
    methods: dict[str, Solve] = {NETWORK: network, **solvers, "conjugate gradients to 1e-10": physics.darcy.solve}
    for points in (85, 141) if quick else (85, 141, 211, 421):
        inputs, truth = (np.stack([physics.darcy.restrict(pair[n], points) for pair in samples]) for n in range(2))
        finer: dict[str, Solve] = {
            f"interface reconstructed on {fine} x {fine}, {FINER_STEPS} steps, float32": partial(
                reconstructed, points=fine
            )
            for fine in FINER
            if fine > points
        }
        yield from rows("darcy", f"{points} x {points}", methods | finer, inputs, truth)


def reconstructed(coefficient: Array, points: int) -> Array:
    """Solve on a finer grid for two materials whose interface lies where it is likeliest, without any training.

    The share of the second material is interpolated bilinearly to the mesh of the truth, and a cell has the material of
    the larger share, or the geometric mean where both are equal. Cells are averaged to the finer grid by the geometric
    mean of their arithmetic and harmonic means, and the pressure there is interpolated by cubic splines.
    """
    low, high = float(coefficient.min()), float(coefficient.max())
    lift = interpolation(len(coefficient), CELLS, 1)
    share = lift @ (coefficient > (low + high) / 2).astype(np.float32) @ lift.T
    either = np.float32(np.sqrt(low * high))
    fine = np.where(np.abs(share - 0.5) < TIE, either, np.where(share > 0.5, np.float32(high), np.float32(low)))
    if points < CELLS:
        means = averages(points)
        fine = np.sqrt((means @ fine @ means.T) / (means @ (1 / fine) @ means.T))
    back = interpolation(points, len(coefficient), 3)
    return np.asarray(back @ volumes.solve_early_stopped(fine, FINER_STEPS) @ back.T)


@lru_cache
def interpolation(points: int, others: int, degree: int) -> Array:
    """Return the matrix `[others, points]` of interpolation by splines along an axis, in single precision."""
    return np.asarray(make_interp_spline(axis(points), np.eye(points), degree)(axis(others)), np.float32)


@lru_cache
def averages(points: int) -> Array:
    """Return the matrix `[points, CELLS]` of the means over what each point of an axis stands for."""
    return overlaps(CELLS, points, WALL).astype(np.float32)


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
