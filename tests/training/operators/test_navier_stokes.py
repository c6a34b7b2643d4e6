"""The step operator of two-dimensional flow: its solver is that of `physics`, and its rollouts stay bounded."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from physics import navier_stokes as equation
from training.operators.field import FieldConfig
from training.operators.navier_stokes import NavierStokesConfig, NavierStokesOperator, VorticityStep

MODES = 5
STEP = FieldConfig(
    input_components=(0, 0, 0),
    input_scales=("linear",) * 3,
    parameter_scales=("log",),
    output_components=(0,),
    output_scales=("linear",),
    periodic=(True, True),
    points=("left", "left"),
    working=(16, 16),
    translation=(True, True),
    band_limited=True,
    gated=True,
    layers=0,
    modes=4,
    detail=8,
)
CONFIG = NavierStokesConfig(
    step=STEP, components=(0,), states=(0,), conserved=(True,), resolved=MODES, substeps=12, bound=3.0
)


def resolved(count: int, points: int, scale: float = 1.0) -> Tensor:
    """Draw vorticity `[count, points, points]` of the waves |k| <= MODES."""
    spectrum = np.fft.fft2(equation.initial_vorticity(np.random.default_rng(0), count, points))
    k = np.fft.fftfreq(points, 1 / points)
    kept = np.hypot(k[:, None], k) <= MODES
    return torch.from_numpy(scale * np.fft.ifft2(spectrum * kept).real).float()


def operator(*, trained: bool) -> NavierStokesOperator:
    """Return an operator, with weights as if a training had gone wrong."""
    torch.manual_seed(0)
    made = NavierStokesOperator(CONFIG)
    if trained:
        made.fit_normalisers(resolved(4, 20), torch.full((4,), 1e-3), resolved(4, 20).flip(1))
        for parameter in made.parameters():
            torch.nn.init.normal_(parameter)
    return made.eval()


def test_the_layer_is_the_solver_on_resolved_waves() -> None:
    layer, viscosity = VorticityStep(MODES, 20, 1.0, equation.FORCE), np.array([1e-4, 1e-3, 3e-3])
    start = resolved(3, layer.side)
    # A viscosity so large that no wave beyond MODES matters; the source of the equation is that of the layer.
    expected = equation.solve(start.numpy(), 1, 0.05, viscosity, 0.01)[:, 0]
    short = VorticityStep(MODES, 4, 0.05, equation.FORCE)
    found = short(start, torch.from_numpy(viscosity).float()).numpy()
    assert np.abs(found - expected).max() < 3e-3 * np.abs(expected).max()
    wave = torch.from_numpy(equation.forcing(layer.side)).float()[None]  # it moves itself nowhere
    decay, rate = np.exp(-1e-2 * 8 * np.pi**2), 1e-2 * 8 * np.pi**2
    after = layer(wave, torch.tensor([1e-2]))
    torch.testing.assert_close(after, wave * (decay + (1 - decay) / rate), atol=1e-5, rtol=1e-5)


def test_it_converges_with_order_four() -> None:
    start, viscosity = resolved(2, 16, 3.0).double(), torch.full((2,), 1e-3, dtype=torch.float64)
    found = [VorticityStep(MODES, steps, 1.0, equation.FORCE).double()(start, viscosity) for steps in (8, 16, 128)]
    coarse, fine = (float((each - found[-1]).norm()) for each in found[:2])
    assert np.log2(coarse / fine) == pytest.approx(4, abs=0.5)


def test_a_fast_flow_slows_itself_alone() -> None:
    layer = VorticityStep(MODES, 12, 1.0, equation.FORCE)
    slow, fast = resolved(2, layer.side), resolved(2, layer.side, 1e3)
    viscosity = torch.full((2,), 1e-4)
    both = layer(torch.cat([slow, fast]), viscosity.repeat(2))
    torch.testing.assert_close(both[:2], layer(slow, viscosity))
    norms = [fast.norm()]
    for _ in range(50):
        fast = layer(fast, viscosity)
        norms.append(fast.norm())
    assert max(norms) < 1.01 * norms[0]


def test_before_training_it_is_the_solver() -> None:
    start, viscosity = resolved(2, 20), torch.tensor([1e-4, 1e-3])
    made = operator(trained=False)
    [found], solved = made.rollout([start, viscosity], 2), start
    for frame in range(2):
        solved = made.prepared(solved, viscosity)[0]
        torch.testing.assert_close(found[:, frame], solved)


@pytest.mark.deep
@torch.inference_mode()
def test_rollouts_stay_bounded_and_keep_the_mean_whatever_the_weights_are() -> None:
    start, viscosity = resolved(2, 20) + 0.1, torch.tensor([1e-4, 1e-3])
    made = operator(trained=True)
    [found] = made.rollout([start, viscosity], 120)
    assert torch.isfinite(found).all()
    largest = made.config.bound * float(made.step.output_normaliser.deviation)
    steps = torch.stack(
        [made.advance([frame, viscosity])[0] - made.prepared(frame, viscosity)[0] for frame in found.unbind(1)]
    )
    assert steps.abs().max() <= 2 * largest  # a correction has no mean, which can double it
    torch.testing.assert_close(found.mean(dim=(2, 3)), torch.full((2, 120), 0.1), atol=1e-4, rtol=0)
