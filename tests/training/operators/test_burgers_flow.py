"""The operator for Burgers' equation with viscosity and time: exact symmetries, and what it starts from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from training.operators.burgers import BurgersFlowConfig, BurgersFlowOperator, mirror
from training.operators.cole_hopf import ColeHopfConfig, ColeHopfOperator

CONFIG = BurgersFlowConfig(keys=10, tokens=80, channels=8, layers=1, modes=8)
VISCOSITY, TIME = torch.tensor([0.003, 0.01, 0.03]), torch.tensor([0.1, 1.0, 2.0])


@pytest.fixture(scope="module")
def operator() -> BurgersFlowOperator:
    """Return an operator with large random corrections."""
    torch.manual_seed(1)
    found = BurgersFlowOperator(CONFIG).eval()
    last = found.head[-1]
    assert isinstance(last, nn.Linear)
    nn.init.normal_(last.weight)
    return found


@pytest.fixture(scope="module")
def initial() -> Tensor:
    """Return smooth velocities without mean `[3, 64]`."""
    x = torch.arange(64) / 64 * 2 * torch.pi
    rows = [torch.sin(x + 1), torch.sin(2 * x) + torch.cos(x), torch.cos(3 * x) - torch.sin(x)]
    return torch.stack(rows)


@torch.inference_mode()
def test_its_corrections_are_not_small(operator: BurgersFlowOperator, initial: Tensor) -> None:
    fresh = BurgersFlowOperator(CONFIG).eval()
    change = (operator(initial, VISCOSITY, TIME) - fresh(initial, VISCOSITY, TIME)).norm(dim=1)
    assert (change > 1e-2 * fresh(initial, VISCOSITY, TIME).norm(dim=1)).any()


@torch.inference_mode()
def test_a_scaled_velocity_is_faster_by_the_factor(operator: BurgersFlowOperator, initial: Tensor) -> None:
    expected = 2 * operator(initial, VISCOSITY, TIME)
    torch.testing.assert_close(operator(2 * initial, 2 * VISCOSITY, TIME / 2), expected, rtol=0, atol=1e-5)


@torch.inference_mode()
def test_a_mean_velocity_translates(operator: BurgersFlowOperator, initial: Tensor) -> None:
    expected = operator(initial, VISCOSITY).roll(16, 1) + 0.25
    torch.testing.assert_close(operator(initial + 0.25, VISCOSITY), expected, rtol=0, atol=1e-5)


@torch.inference_mode()
def test_the_mirror_image_is_odd(operator: BurgersFlowOperator, initial: Tensor) -> None:
    expected = -mirror(operator(initial, VISCOSITY, TIME))
    torch.testing.assert_close(operator(-mirror(initial), VISCOSITY, TIME), expected, rtol=0, atol=1e-5)


@torch.inference_mode()
def test_parameters_have_defaults(operator: BurgersFlowOperator, initial: Tensor) -> None:
    expected = operator(initial, torch.full((3,), 0.01), torch.ones(3))
    torch.testing.assert_close(operator(initial), expected, rtol=0, atol=0)


@torch.inference_mode()
def test_a_fresh_network_returns_the_sum_over_its_keys(initial: Tensor) -> None:
    fresh, head = BurgersFlowOperator(CONFIG).eval(), ColeHopfOperator(ColeHopfConfig(keys=10, refinement=8))
    expected = head(initial, 2 * VISCOSITY, 1 + TIME)  # broad fronts, which both grids resolve
    torch.testing.assert_close(fresh(initial, 2 * VISCOSITY, 1 + TIME), expected, rtol=0, atol=1e-4)


@torch.inference_mode()
def test_a_constant_velocity_stays(operator: BurgersFlowOperator) -> None:
    still = torch.full((1, 64), 0.5)
    torch.testing.assert_close(operator(still), still, rtol=0, atol=1e-5)


def test_tokens_are_a_multiple_of_the_keys() -> None:
    with pytest.raises(ValueError, match="expected a multiple of 7 tokens but got 240"):
        BurgersFlowConfig(keys=7)


def test_the_gradients_at_rest_are_those_of_a_translation(operator: BurgersFlowOperator) -> None:
    """The mean of the initial velocity is that of the final one, so a sum of outputs changes as the sum of inputs."""
    initial, nu, t = torch.zeros(3, 64, requires_grad=True), VISCOSITY.clone(), TIME.clone()
    for each in (nu, t):
        each.requires_grad_()
    found = torch.autograd.grad(operator(initial, nu, t).sum(), (initial, nu, t))
    torch.testing.assert_close(found[0], torch.ones(3, 64), rtol=1e-5, atol=1e-5)
    assert all(torch.isfinite(each).all() for each in found)


@pytest.mark.parametrize("constant", [0.0, 1.0, -1.0, 100.0])
@pytest.mark.parametrize("points", [64, 100, 512])
@torch.inference_mode()
def test_a_constant_stays_what_it_is(operator: BurgersFlowOperator, constant: float, points: int) -> None:
    found = operator(torch.full((3, points), constant), VISCOSITY, TIME)
    torch.testing.assert_close(found, torch.full((3, points), constant), rtol=1e-6, atol=1e-6)


@torch.inference_mode()
def test_a_velocity_that_moves_hardly_anything_diffuses(operator: BurgersFlowOperator) -> None:
    x = 2 * torch.pi * torch.arange(64) / 64
    initial = 1e-5 * torch.stack([torch.sin(x), torch.cos(2 * x), torch.sin(3 * x)])
    decay = torch.exp(-VISCOSITY * TIME * (2 * torch.pi * torch.arange(1, 4)) ** 2)
    torch.testing.assert_close(operator(initial, VISCOSITY, TIME), decay[:, None] * initial, rtol=0, atol=3e-9)
