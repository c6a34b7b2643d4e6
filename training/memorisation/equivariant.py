r"""A permutation equivariant function of sets, and how well a network fits it.

.. math::
    f(X)_k = \min_{j\ne k} |x_k - x_j|, \qquad X \in [0, 1]^n,

each number's distance to its nearest neighbour: continuous, equivariant, and not a function of the number alone.
One layer of rank-1 attention between two feed-forward nets approximates every such function (Kajitsuka & Sato, ICLR
2024, arXiv 2307.14023, Theorem on universal approximation); how fast is not said. The numbers are lifted linearly to
the channels; training sets are fresh at every step, so errors are those on unseen sets.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from training.memorisation.stack import side_by_side, stack
from training.memorisation.trial import Row, Sets, Trial
from training.sequences.networks.memoriser import MemoriserConfig, OneLayer

SETS = 4096  # sets of the test
BATCH = 256

Numbers = Float[Tensor, "*batch number"]


class SetFunction(nn.Module):
    """Map every number of a set to a number."""

    def __init__(self, config: MemoriserConfig) -> None:
        super().__init__()
        self.lift = nn.Linear(1, config.channels)
        self.layer = OneLayer(config, 1)

    def forward(self, numbers: Numbers) -> Numbers:
        return self.layer(self.lift(numbers[..., None]))[..., 0]


def nearest(numbers: Numbers) -> Numbers:
    """Return each number's distance to its nearest neighbour."""
    distances = (numbers[..., None] - numbers[..., None, :]).abs()
    return (distances + torch.eye(numbers.shape[-1]) * 2).amin(dim=-1)


def fit(trials: Sequence[Trial]) -> list[Row]:
    """Fit one group of trials, which differ in their seeds alone."""
    trial, length = trials[0], sizes(trials[0])
    networks = [fresh(each) for each in trials]
    state, run = stack(networks), side_by_side(networks[0])
    optimiser = torch.optim.Adam([weight.requires_grad_() for weight in state.values()], lr=trial.rate, fused=True)
    draws = torch.Generator().manual_seed(trial.seed)
    for step in range(trial.steps):
        optimiser.param_groups[0]["lr"] = trial.rate * min(1.0, 2 * (1 - step / trial.steps))
        sets = torch.rand(len(trials), trial.batch or BATCH, length, generator=draws)
        optimiser.zero_grad(set_to_none=True)
        (run(state, sets) - nearest(sets)).square().mean(dim=(1, 2)).sum().backward()
        optimiser.step()
    sets = torch.rand(SETS, length, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        errors = (run(state, sets.expand(len(trials), -1, -1)) - nearest(sets)).square().mean(dim=(1, 2)).sqrt()
    relative = (errors / nearest(sets).std()).tolist()
    parameters = sum(weight.numel() for weight in networks[0].parameters())
    return [
        Row(trial=each, parameters=parameters, error=round(error, 4))
        for each, error in zip(trials, relative, strict=True)
    ]


def sizes(trial: Trial) -> int:
    """Return how many numbers a set has.

    Raises:
        TypeError: The trial has other data.
    """
    if not isinstance(trial.data, Sets):
        raise TypeError(f"expected a function of sets but got {trial.data.kind}")
    return trial.data.length


def fresh(trial: Trial) -> SetFunction:
    """Build a network with weights drawn from the seed."""
    torch.manual_seed(trial.seed)
    return SetFunction(trial.network)
