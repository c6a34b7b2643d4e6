"""Gated and linear spectral layers: shifts, sizes, and the products of which equations are made."""

from __future__ import annotations

import pytest
import torch

from training.nn.spectral import Gate, GatedSpectralLayer, LinearSpectralLayer


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_shift_along_periodic_axes_moves_the_output(axes: int) -> None:
    torch.manual_seed(0)
    layer = GatedSpectralLayer(4, 3, (True,) * axes, (8, 9, 10)[:axes])
    x = torch.randn(2, *(8, 9, 10)[:axes], 4)
    shifts, dimensions = (3, 2, 7)[:axes], tuple(range(1, axes + 1))
    torch.testing.assert_close(layer(x.roll(shifts, dimensions)), layer(x).roll(shifts, dimensions))


def test_a_far_end_is_no_neighbour_on_an_axis_with_ends() -> None:
    torch.manual_seed(0)
    layer, x = GatedSpectralLayer(4, 3, (False,), (8,)), torch.randn(1, 8, 4)
    assert not torch.allclose(layer(x.roll(2, 1)), layer(x).roll(2, 1), atol=1e-3)


def test_a_bounded_gate_lets_the_output_grow_as_its_input() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 8, 8, 6)
    gates: list[tuple[Gate, int]] = [("silu", 2), ("sigmoid", 1)]
    for gate, power in gates:
        layer = GatedSpectralLayer(6, 3, (True, False), (8, 8), gate)
        sizes = [float((layer(size * x) - size * x).norm().detach()) for size in (1e4, 2e4)]
        assert sizes[1] / sizes[0] == pytest.approx(2**power, rel=1e-2)


def test_a_layer_learns_a_product_with_a_derivative() -> None:
    """A linear layer cannot express u u_x."""
    torch.manual_seed(0)
    layer = GatedSpectralLayer(6, 5, (True,), (16,))
    angle = 2 * torch.pi * torch.arange(16) / 16
    size, phase = torch.rand(64, 2, 1), 6 * torch.rand(64, 2, 1)
    waves = torch.tensor([[1.0], [2.0]])
    u = (size * torch.sin(waves * angle + phase)).sum(1)
    slope = (size * waves * torch.cos(waves * angle + phase)).sum(1)
    features = torch.cat([u[..., None], torch.zeros(64, 16, 5)], dim=-1)
    optimiser = torch.optim.Adam(layer.parameters(), lr=2e-2)
    for _ in range(300):
        optimiser.zero_grad()
        loss = (layer(features)[..., 1] - u * slope).square().mean()
        loss.backward()
        optimiser.step()
    assert float(loss.detach()) < 0.01 * float((u * slope).square().mean())


@pytest.mark.deep
def test_a_linear_layer_learns_the_derivative_of_a_product_with_its_medium() -> None:
    """As the flux k u' of a medium k has: what it learns from waves of amplitude one holds for all amplitudes."""
    torch.manual_seed(0)
    layer = LinearSpectralLayer(6, 7, (True,), (16,))
    angle = 2 * torch.pi * torch.arange(16) / 16
    phase = 6 * torch.rand(128, 2, 1)
    k, u = (torch.sin(number * angle + phase[:, each]) for each, number in enumerate((2, 3)))
    slope = 2 * torch.cos(2 * angle + phase[:, 0]) * u + 3 * k * torch.cos(3 * angle + phase[:, 1])
    padding = torch.zeros(128, 16, 5)
    x, medium = (torch.cat([each[..., None], padding], dim=-1) for each in (u, k))
    optimiser = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for _ in range(600):
        optimiser.zero_grad()
        loss = (layer(x, medium)[..., 1] - slope).square().mean()
        loss.backward()
        optimiser.step()
    assert float(loss.detach()) < 0.01 * float(slope.square().mean())
    exact, x, medium = layer.double(), x.double(), medium.double()
    torch.testing.assert_close(exact(1e3 * x, medium), 1e3 * exact(x, medium))


@pytest.mark.parametrize("assign", [True, False])
def test_a_layer_of_the_meta_device_has_its_transforms_once_its_weights_are_there(assign: bool) -> None:
    """Their buffers are in no checkpoint; torch multiplies by those of `meta` without an error."""
    layer, x = GatedSpectralLayer(4, 3, (True, False), (8, 9)), torch.randn(2, 8, 9, 4)
    with torch.device("meta"):
        found = GatedSpectralLayer(4, 3, (True, False), (8, 9))
    if not assign:
        found.to_empty(device="cpu")
    found.load_state_dict(layer.state_dict(), assign=assign)
    assert torch.equal(found(x), layer(x))


def test_a_layer_made_in_single_precision_becomes_as_exact_as_one_of_double() -> None:
    layer, x = GatedSpectralLayer(4, 3, (True, False), (8, 9)).double(), torch.randn(2, 8, 9, 4, dtype=torch.float64)
    torch.set_default_dtype(torch.float64)
    try:
        exact = GatedSpectralLayer(4, 3, (True, False), (8, 9))
    finally:
        torch.set_default_dtype(torch.float32)
    exact.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), exact(x), rtol=1e-13, atol=1e-13)
