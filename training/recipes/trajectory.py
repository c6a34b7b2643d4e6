"""Recipes of trajectories from a user's file: single steps first, then longer and longer rollouts."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, PositiveInt

from training.recipes.own import OwnFit, OwnRecipe


class RolloutFit(OwnFit):
    """How to train a step operator.

    Attributes:
        unroll: Steps of a training rollout, each for an equal share of the epochs.
        through: Whether gradients flow through all steps of a rollout, or only through its last one.
        noise: Standard deviation of the noise on the states that a rollout starts from, in deviations of the state.
    """

    unroll: tuple[PositiveInt, ...] = Field(min_length=1)
    through: bool = True
    noise: NonNegativeFloat = 0.0

    def steps_of(self, epoch: int) -> int:
        """Return the steps of a training rollout in an epoch."""
        return self.unroll[min(len(self.unroll) - 1, len(self.unroll) * epoch // self.epochs)]


class TrajectoryRecipe(OwnRecipe):
    """Everything that decides a training run on a user's trajectories; see `OwnRecipe`."""

    fit: RolloutFit
