"""Gaussian random fields: the distributions of coefficients and initial values.

They are sums of the eigenfunctions of the Laplacian with independent normal coefficients, whose standard deviations are
powers of the eigenvalues (Karhunen-Loève). The conventions are those of the published generators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import fft

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

PERIODIC_MODES = 4095
"""Modes of a periodic field: all that 8192 points resolve. All are drawn on every grid, so the field is the same."""


def neumann_field(cells: int, rng: np.random.Generator, alpha: float = 2.0, tau: float = 3.0) -> NDArray[np.float64]:
    r"""Draw a field with zero Neumann conditions and zero mean.

    .. math::
        z \sim N(0, \tau^{2 \alpha - 2} (-\Delta + \tau^2)^{-\alpha})

    Args:
        cells: Cells on each axis.
        rng: The generator.
        alpha: Power of the covariance.
        tau: Inverse length scale.

    Returns:
        The values at the centres of `cells` x `cells` cells of the unit square.
    """
    return np.asarray(fft.idctn(neumann_coefficients(cells, rng, alpha, tau), norm="ortho"))


def neumann_coefficients(
    cells: int, rng: np.random.Generator, alpha: float = 2.0, tau: float = 3.0
) -> NDArray[np.float64]:
    """Draw the orthonormal DCT-II coefficients [cells, cells] of a Neumann field; mode (0, 0), the mean, is zero."""
    coefficients = cells * neumann_deviations(cells, alpha, tau) * rng.standard_normal((cells, cells))
    coefficients[0, 0] = 0.0
    return coefficients


def neumann_deviations(cells: int, alpha: float, tau: float) -> NDArray[np.float64]:
    r"""Compute the standard deviation of the coefficient of each mode.

    .. math::
        \tau^{\alpha - 1} (\pi^2 (k_1^2 + k_2^2) + \tau^2)^{-\alpha/2}
    """
    k = np.arange(cells)
    eigenvalues = np.pi**2 * (k[:, None] ** 2 + k**2)
    return np.asarray(tau ** (alpha - 1) * (eigenvalues + tau**2) ** (-alpha / 2))


def cosine_series(
    coefficients: NDArray[np.float64], rows: NDArray[np.float64], columns: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Evaluate the field [height, width] of orthonormal DCT-II coefficients at positions of rows and columns."""
    height, width = coefficients.shape
    return np.asarray(_cosines(rows, height) @ coefficients @ _cosines(columns, width).T)


def _cosines(positions: NDArray[np.float64], modes: int) -> NDArray[np.float64]:
    basis = np.sqrt(2 / modes) * np.cos(np.pi * np.outer(positions, np.arange(modes)))
    basis[:, 0] = np.sqrt(1 / modes)
    return np.asarray(basis)


def cosines(positions: ArrayLike, count: int) -> NDArray[np.float64]:
    """Return the `count` lowest cosines of the unit interval [points, count], orthonormal there, at positions."""
    waves = np.arange(count)
    return np.asarray(np.cos(np.pi * np.outer(np.asarray(positions), waves)) * np.where(waves == 0, 1.0, np.sqrt(2)))


def periodic_field(
    points: int, rng: np.random.Generator, sigma: float = 25.0, tau: float = 5.0, gamma: float = 2.0
) -> NDArray[np.float64]:
    r"""Draw a field that is periodic on [0, 1), with zero mean.

    .. math::
        u \sim N(0, \sigma^2 (-\Delta + \tau^2)^{-\gamma})

    Args:
        points: Points of the grid.
        rng: The generator. One state of it is one field, whatever the number of points.
        sigma: Scale.
        tau: Inverse length scale.
        gamma: Power of the covariance.

    Returns:
        The values [points] at x_i = i/points.
    """
    k = np.arange(1, PERIODIC_MODES + 1)
    cosine, sine = periodic_deviations(k, sigma, tau, gamma) * rng.standard_normal((2, PERIODIC_MODES))
    # A mode above the grid's highest is added to its alias: the values are the field's, not a projection's.
    spectrum = np.zeros(points, dtype=np.complex128)
    np.add.at(spectrum, k % points, cosine - 1j * sine)
    return np.asarray(points * fft.ifft(spectrum).real)


def periodic_deviations(k: ArrayLike, sigma: float, tau: float, gamma: float) -> NDArray[np.float64]:
    r"""Compute the standard deviation of the cosine and sine of each frequency.

    .. math::
        \sqrt{2} \sigma ((2 \pi k)^2 + \tau^2)^{-\gamma/2}
    """
    eigenvalues = (2 * np.pi * np.asarray(k, dtype=np.float64)) ** 2
    return np.asarray(np.sqrt(2) * sigma * (eigenvalues + tau**2) ** (-gamma / 2))
