"""The closed form: it is one head of softmax attention, and it solves the equation on every grid."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from physics import burgers, cole_hopf
from physics.numerics.grid import relative_l2
from training.nn.attention import SoftmaxAttention
from training.operators.cole_hopf import ColeHopfConfig, ColeHopfOperator

OPERATOR = ColeHopfOperator(ColeHopfConfig())
VISCOSITIES, TIMES = (0.003, 0.03), (0.1, 2.0)


def solve(initial: NDArray[np.float64], viscosity: float, time: float) -> NDArray[np.float64]:
    """Return what the operator returns for one field in float32."""
    numbers = (torch.tensor([number], dtype=torch.float32) for number in (viscosity, time))
    return OPERATOR(torch.from_numpy(initial).float()[None], *numbers)[0].double().numpy()


def error(found: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    return float(relative_l2(found[None], truth[None])[0])


@given(
    viscosity=st.floats(np.log(VISCOSITIES[0]), np.log(VISCOSITIES[1])).map(np.exp),
    time=st.floats(*TIMES),
    points=st.sampled_from([64, 65, 127, 512, 1000, 1025, 8192]),
    mean=st.floats(-1, 1),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=12, deadline=None)
def test_it_is_the_closed_form_in_double_precision(
    viscosity: float, time: float, points: int, mean: float, seed: int
) -> None:
    initial = (burgers.example(points, seed) + mean).astype(np.float32).astype(np.float64)
    viscosity, time = float(np.float32(viscosity)), float(np.float32(time))
    truth = cole_hopf.solve(initial, time, viscosity, resolution=1024)
    assert error(solve(initial, viscosity, time), truth) < 1e-6


@pytest.mark.parametrize("viscosity", VISCOSITIES)
@pytest.mark.parametrize("time", TIMES)
def test_it_agrees_with_the_spectral_solution(viscosity: float, time: float) -> None:
    initial = burgers.example(1024, seed=3)
    truth = burgers.solve(initial, time, viscosity, step=time / 1000)
    assert error(solve(initial, viscosity, time), truth) < 1e-6


@pytest.mark.parametrize(("viscosity", "time"), [(0.003, 0.1), (0.01, 1.0), (0.03, 2.0)])
def test_it_is_one_head_of_softmax_attention(viscosity: float, time: float) -> None:
    """Queries, keys and values are positions, and the keys of seven periods have the potential as a bias."""
    queries = torch.arange(512, dtype=torch.float64) / 512
    keys = torch.arange(-3 * 512, 4 * 512, dtype=torch.float64) / 512
    potential = (torch.sin(6 * torch.pi * keys) + torch.cos(2 * torch.pi * keys)) / 20
    head = SoftmaxAttention(2, heads=1, coordinates=0, norm="none").double()
    for projection in (head.query, head.key, head.value):
        assert isinstance(projection, nn.Linear)
        nn.init.eye_(projection.weight)
        nn.init.zeros_(projection.bias)
    root = 2**0.5  # the head divides scores by the root of its width
    mixed = head(
        root * torch.stack([queries / (2 * viscosity * time), torch.ones_like(queries)], dim=-1)[None],
        torch.stack([keys, -(potential + keys**2 / (2 * time)) / (2 * viscosity)], dim=-1)[None],
        torch.stack([keys, torch.zeros_like(keys)], dim=-1)[None],
    )[0, :, 0]
    velocity = 0.3 * torch.pi * torch.cos(6 * torch.pi * queries) - 0.1 * torch.pi * torch.sin(2 * torch.pi * queries)
    found = OPERATOR(velocity[None], *(torch.tensor([each], dtype=torch.float64) for each in (viscosity, time)))[0]
    torch.testing.assert_close(found, (queries - mixed) / time, rtol=0, atol=1e-9)


def random(batch: int, points: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return velocities, viscosities and times in double precision."""
    fields = torch.from_numpy(np.stack([burgers.example(points, seed) for seed in range(batch)]))
    return fields, torch.linspace(0.005, 0.03, batch).double(), torch.linspace(2.0, 0.2, batch).double()


def test_samples_of_a_batch_do_not_depend_on_each_other() -> None:
    fields, viscosity, time = random(3, 130)
    for index, found in enumerate(OPERATOR(fields, viscosity, time)):
        part = slice(index, index + 1)
        torch.testing.assert_close(OPERATOR(fields[part], viscosity[part], time[part])[0], found)


def test_viscosity_and_time_have_defaults() -> None:
    fields, *_ = random(2, 130)
    defaults = (torch.full((2,), number, dtype=torch.float64) for number in (0.01, 1.0))
    assert torch.equal(OPERATOR(fields), OPERATOR(fields, *defaults))


def test_the_symmetries_of_the_equation_are_exact() -> None:
    fields, viscosity, _ = random(2, 256)
    time = torch.tensor([0.5, 1.0], dtype=torch.float64)
    found = OPERATOR(fields, viscosity, time)
    torch.testing.assert_close(OPERATOR(fields.roll(64, 1), viscosity, time), found.roll(64, 1))
    mirrored = OPERATOR(-fields.flip(1).roll(1, 1), viscosity, time)
    torch.testing.assert_close(mirrored, -found.flip(1).roll(1, 1))
    moving = OPERATOR(fields + 2, viscosity, time)  # a frame that passes whole periods
    torch.testing.assert_close(moving, found + 2)


def test_a_time_of_two_steps_is_one_after_the_other() -> None:
    fields, viscosity, _ = random(2, 1024)
    halves, whole = (torch.full((2,), time, dtype=torch.float64) for time in (0.4, 0.8))
    twice = OPERATOR(OPERATOR(fields, viscosity, halves), viscosity, halves)
    torch.testing.assert_close(twice, OPERATOR(fields, viscosity, whole), rtol=0, atol=1e-6)


def test_gradients_by_viscosity_and_time_are_those_of_differences() -> None:
    fields, viscosity, time = random(2, 65)
    step = 1e-6
    for index in (1, 2):
        numbers = [viscosity.clone(), time.clone()]
        ahead, behind = (
            OPERATOR(fields, *(each * (1 + sign * step * (index == at)) for at, each in enumerate(numbers, 1)))
            for sign in (1, -1)
        )
        numbers[index - 1].requires_grad_()
        cotangent = torch.linspace(-1, 1, 65, dtype=torch.float64)
        (OPERATOR(fields, *numbers) * cotangent).sum().backward()
        slopes = ((ahead - behind) * cotangent).sum(1) / (2 * step * numbers[index - 1].detach())
        torch.testing.assert_close(numbers[index - 1].grad, slopes, rtol=1e-5, atol=1e-8)
