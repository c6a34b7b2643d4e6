r"""Two continuous functions of numbers in [0, 1], and how well a network fits them.

.. math::
    \text{nearest:}\quad f(X)_k = \min_{j\ne k} |x_k - x_j|, \qquad
    \text{running:}\quad f(X)_k = \max_{j\le k} x_j

The first is each number's distance to its nearest neighbour: equivariant under permutations, and not a function of the
number alone. The second is the greatest number so far: it depends on the order, which attention does not see unless the
tokens hold their locations. One layer of rank-1 attention between two feed-forward nets approximates every continuous
function of the first kind, and with positional encodings every one of the second (Kajitsuka & Sato, ICLR 2024, arXiv
2307.14023); how fast is not said. The numbers are lifted linearly to the channels; training sets are fresh at every
step, so errors are those on unseen sets.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from research.memorisation.training import side_by_side, stack
from research.memorisation.trials import Row, Sets, Trial
from research.sequences.networks import MemoriserConfig, OneLayer

SETS = 4096  # sets of the test
BATCH = 256

Numbers = Float[Tensor, "*batch number"]


class NumberFunction(nn.Module):
    """Map every number of a set, or of a sequence, to a number.

    Args:
        config: The sizes.
        length: How many numbers a sequence has, which get a trained vector per location; None for sets.
    """

    def __init__(self, config: MemoriserConfig, length: int | None = None) -> None:
        super().__init__()
        self.lift = nn.Linear(1, config.channels)
        self.positions = None if length is None else nn.Parameter(torch.randn(length, config.channels))
        self.layer = OneLayer(config, 1)

    def forward(self, numbers: Numbers) -> Numbers:
        tokens = self.lift(numbers[..., None])
        return self.layer(tokens if self.positions is None else tokens + self.positions)[..., 0]


def nearest(numbers: Numbers) -> Numbers:
    """Return each number's distance to its nearest neighbour."""
    distances = (numbers[..., None] - numbers[..., None, :]).abs()
    return (distances + torch.eye(numbers.shape[-1]) * 2).amin(dim=-1)


def running(numbers: Numbers) -> Numbers:
    """Return the greatest number up to each one."""
    return numbers.cummax(dim=-1).values


FUNCTIONS = {"nearest": nearest, "running": running}


def fit(trials: Sequence[Trial]) -> list[Row]:
    """Fit one group of trials, which differ in their seeds alone."""
    trial, data = trials[0], numbers_of(trials[0])
    length, function = data.length, FUNCTIONS[data.function]
    networks = [fresh(each) for each in trials]
    state, run = stack(networks), side_by_side(networks[0])
    optimiser = torch.optim.Adam([weight.requires_grad_() for weight in state.values()], lr=trial.rate, fused=True)
    draws = torch.Generator().manual_seed(2 * trial.seed)  # even: the test has the seed 1
    for step in range(trial.steps):
        optimiser.param_groups[0]["lr"] = trial.rate * min(1.0, 2 * (1 - step / trial.steps))
        sets = torch.rand(len(trials), trial.batch or BATCH, length, generator=draws)
        optimiser.zero_grad(set_to_none=True)
        (run(state, sets) - function(sets)).square().mean(dim=(1, 2)).sum().backward()
        optimiser.step()
    sets = torch.rand(SETS, length, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        errors = (run(state, sets.expand(len(trials), -1, -1)) - function(sets)).square().mean(dim=(1, 2)).sqrt()
    relative = (errors / function(sets).std()).tolist()
    parameters = sum(weight.numel() for weight in networks[0].parameters())
    return [
        Row(trial=each, parameters=parameters, error=round(error, 4))
        for each, error in zip(trials, relative, strict=True)
    ]


def numbers_of(trial: Trial) -> Sets:
    """Return which function of how many numbers is fitted.

    Raises:
        TypeError: The trial has other data.
    """
    if not isinstance(trial.data, Sets):
        raise TypeError(f"expected a function of sets but got {trial.data.kind}")
    return trial.data


def fresh(trial: Trial) -> NumberFunction:
    """Build a network with weights drawn from the seed."""
    torch.manual_seed(trial.seed)
    return NumberFunction(trial.network, numbers_of(trial).length if trial.positions else None)
