"""Dropout: its rate, its mean, one mask for both passes, and a new mask every step."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.nn.pointwise import Dropout


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5, 0.9])
def test_entries_are_dropped_at_the_rate_and_the_mean_stays(rate: float) -> None:
    torch.manual_seed(0)
    dropped = Dropout(rate)(torch.ones(1000, 401))
    assert (dropped == 0).double().mean().item() == pytest.approx(rate, abs=0.005)
    assert dropped.double().mean().item() == pytest.approx(1, abs=0.02)
    kept = dropped[dropped != 0]
    assert torch.allclose(kept, torch.tensor(1 / (1 - rate)), rtol=1e-3)


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    rate=st.floats(0.0, 1.0),
    transposed=st.booleans(),
    double=st.booleans(),
)
@settings(deadline=None)
def test_the_gradient_has_the_mask_of_the_output(
    shape: list[int], rate: float, *, transposed: bool, double: bool
) -> None:
    x = torch.randn(shape, dtype=torch.float64 if double else torch.float32) + 10
    x = (x.transpose(0, -1) if transposed else x).requires_grad_()
    dropped = Dropout(rate)(x)
    [slope] = torch.autograd.grad(dropped.sum(), x)
    torch.testing.assert_close(dropped, slope * x)


def test_every_step_draws_another_mask_and_a_seed_repeats_them() -> None:
    layer, x = Dropout(0.5), torch.ones(64)
    torch.manual_seed(3)
    first, second = layer(x), layer(x)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)


def test_it_is_differentiated_twice() -> None:
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    layer = Dropout(0.3)

    def cube(value: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        dropped: torch.Tensor = layer(value**3)
        return dropped

    assert torch.autograd.gradcheck(cube, x)
    assert torch.autograd.gradgradcheck(cube, x)


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_evaluation_is_the_identity(rate: float) -> None:
    x = torch.randn(9)
    assert Dropout(rate).eval()(x) is x
