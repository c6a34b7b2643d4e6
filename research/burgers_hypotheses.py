r"""What may explain the error of the paper's network on Burgers' equation: experiments that need no training.

The first ones read the trainings in `docs/accuracy`, the others evaluate the served `burgers_galerkin` on fields of
1,024 points that are drawn anew, whose solutions at t = 1 are the closed form's. A generator has waves of the deviation
:math:`\sigma(4\pi^2k^2 + \tau^2)^{-\alpha/2}`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from physics import cole_hopf
from physics.numerics import fields

POINTS, VISCOSITY, BATCH = 1024, 0.01, 20
LAWS = {
    "25 (4 pi^2 k^2 + 25)^-1, the paper's": (2.0, 5.0, 25.0),
    "49 (4 pi^2 k^2 + 49)^-1.25, the generator's": (2.5, 7.0, 49.0),
}
VISCOSITIES = (0.01, 0.1, 0.001)
Array = NDArray[np.float64]


def draw(count: int, rng: np.random.Generator, law: tuple[float, float, float]) -> Array:
    """Draw periodic fields `[count, POINTS]` of mean zero by a law (alpha, tau, sigma)."""
    alpha, tau, sigma = law
    k = np.arange(1, POINTS // 2)
    deviation = np.sqrt(2) * sigma * ((2 * np.pi * k) ** 2 + tau**2) ** (-alpha / 2)
    waves = np.zeros((count, POINTS // 2 + 1), complex)
    noise = rng.standard_normal((count, len(k))) + 1j * rng.standard_normal((count, len(k)))
    waves[:, 1:-1] = POINTS / 2 * deviation * noise
    return np.fft.irfft(waves, POINTS)


def solved(initial: Array, viscosity: float) -> Array:
    """Return the velocities at t = 1."""
    return np.stack([cole_hopf.solve(each, time=1.0, viscosity=viscosity, resolution=512) for each in initial])


@torch.inference_mode()
def errors(network: nn.Module, initial: Array, final: Array) -> Array:
    """Return the relative L2 error of each field."""
    parts = torch.from_numpy(initial.astype(np.float32)).split(BATCH)
    found = torch.cat([network(each) for each in parts]).numpy()
    return np.asarray(np.linalg.norm(found - final, axis=1) / np.linalg.norm(final, axis=1))


def steepest(final: Array) -> Array:
    """Return the steepest slope of each field."""
    return np.asarray(np.abs(np.gradient(final, 1 / POINTS, axis=1)).max(axis=1))


def trained(folder: Path) -> Iterator[tuple[str, str]]:
    """Compare the best validation error with the last one of each training whose epochs are in a folder."""
    for file in sorted(folder.glob("burgers_galerkin-paper512-*.csv")):
        with file.open() as rows:
            found = [float(row["relative_l2"]) for row in csv.DictReader(rows)]
        yield f"{file.stem}: best and last of {len(found)} epochs", f"{min(found):.3e} and {found[-1]:.3e}"


def measured(network: nn.Module, count: int, others: int) -> Iterator[tuple[str, str]]:
    """Measure a network on `count` fields of its distribution, and on `others` fields per law and viscosity."""
    rng = np.random.default_rng(5)
    initial = np.stack([fields.periodic_field(POINTS, rng) for _ in range(count)])
    final = solved(initial, VISCOSITY)
    found = errors(network, initial, final)
    yield (
        f"{count} fields",
        f"{found.mean():.2e} ± {found.std(ddof=1) / np.sqrt(count):.1e}, median {np.median(found):.2e}",
    )
    tenths = [each.mean() for each in np.array_split(found, 10)]
    yield "in ten parts", f"{min(tenths):.2e} to {max(tenths):.2e}, deviation {np.std(tenths, ddof=1):.1e}"
    quarters = np.array_split(np.argsort(steepest(final)), 4)
    yield "by the steepest slope, in quarters", ", ".join(f"{found[each].mean():.2e}" for each in quarters)
    rng = np.random.default_rng(6)
    for name, law in LAWS.items():
        for viscosity in VISCOSITIES:
            initial = draw(others, rng, law)
            final = solved(initial, viscosity)
            facts = (
                f"deviation {initial.std():.2f} to {final.std():.3f}, steepest slope {np.median(steepest(final)):.2g}"
            )
            error = f", error {errors(network, initial, final).mean():.2e}" if viscosity == VISCOSITY else ""
            yield f"{name}; viscosity {viscosity}", facts + error
