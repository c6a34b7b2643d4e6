"""How long rollouts of a model stay finite, and how large they become, far beyond the trajectories of its training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from training.operators.trajectory import TrajectoryOperator

LASTING = 500
"""Frames for which rollouts have to stay bounded."""


@torch.inference_mode()
def measured(network: TrajectoryOperator, truth: NDArray[Any], *numbers: NDArray[Any]) -> dict[str, Any]:
    """Roll out from trajectories, for `LASTING` frames.

    Args:
        network: The model.
        truth: The trajectories `[trajectory, frame, *grid]`.
        numbers: Its parameters `[trajectory]`.

    Returns:
        How many trajectories stayed finite over how many frames, the frames of the one that was lost first, and the
        largest finite value beside that of the truth.
    """
    [found] = network.rollout([torch.from_numpy(each.astype(np.float32)) for each in (truth[:, 0], *numbers)], LASTING)
    finite = torch.isfinite(found).flatten(2).all(dim=2)  # [trajectory, frame]
    whole = finite.all(dim=1)
    return {
        "trajectories": len(truth),
        "frames": found.shape[1],
        "finite": int(whole.sum()),
        "shortest": int(finite.sum(dim=1).min()),
        "largest": float(f"{found[finite].abs().max():.3g}"),
        "largest_of_truth": float(f"{np.abs(truth).max():.3g}"),
    }
