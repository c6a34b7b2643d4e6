"""The experiments on the error of Burgers' network: fields have the deviation of their law, and errors are relative."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from research import burgers_hypotheses as program


def test_waves_have_the_deviation_of_their_law() -> None:
    law = alpha, tau, sigma = 2.0, 5.0, 25.0
    found = np.fft.rfft(program.draw(4000, np.random.default_rng(0), law)) / program.POINTS
    k = np.arange(1, 20)
    energy = (2 * np.abs(found[:, k]) ** 2).mean(axis=0)  # the variance of a wave's values along the line
    expected = 2 * sigma**2 * ((2 * np.pi * k) ** 2 + tau**2) ** -alpha
    np.testing.assert_allclose(energy, expected, rtol=0.1)
    np.testing.assert_allclose(found[:, 0], 0, atol=1e-12)


def test_errors_are_relative_to_the_solution() -> None:
    class Half(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / 2

    initial = program.draw(3, np.random.default_rng(0), (2.0, 5.0, 25.0))
    np.testing.assert_allclose(program.errors(Half(), initial, initial), 0.5, rtol=1e-6)
