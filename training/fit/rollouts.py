"""Measures of a trained step operator on rollouts, frame by frame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from training.calibration.error_estimate import fewest, quantile
from training.evaluation import norms
from training.evaluation.norms import significant
from training.losses import Batch

MEASURES = (norms.frames_l2, norms.vrmse, norms.correlation)


class Measures(NamedTuple):
    """Measures of rollouts, the mean over the outputs: `[trajectory, frame]`, but for `energy`."""

    errors: NDArray[np.float64]  # relative L2 errors, at most 1000
    vrmse: NDArray[np.float64]  # root mean square errors over the deviation in space, at most 1000
    correlation: NDArray[np.float64]  # correlations in space with the truth; 0 where a prediction overflows
    persistence: NDArray[np.float64]  # relative L2 errors of keeping the last given frame
    # `[trajectory, 2, wave number]`: energy of the last frame of truth and prediction, of the first output.
    energy: NDArray[np.float64]

    @classmethod
    @torch.inference_mode()
    def of(cls, work: Any, network: Any, split: str) -> Measures:
        """Measure the whole rollouts from the first frames of a split's trajectories."""
        found = [cls.of_batch(work, network, batch) for batch in work.batches(split, work.longest)]
        return cls._make(np.concatenate(each) for each in zip(*found, strict=True))

    @classmethod
    def of_batch(cls, work: Any, network: Any, batch: Batch) -> Measures:
        """Measure one batch of rollouts."""
        truth = [each.numpy() for each in batch.outputs]
        predicted, still = (
            [each.numpy() for each in some] for some in (work.predictions(network, batch), work.naive(batch))
        )
        with np.errstate(over="ignore", invalid="ignore"):  # a rollout may overflow
            errors, vrmse, correlation = (
                np.mean([measure(*pair) for pair in zip(predicted, truth, strict=True)], axis=0) for measure in MEASURES
            )
            axes = len(work.file.axes)
            energy = np.stack([norms.spectrum(each[:, -1], axes) for each in (truth[0], predicted[0])], axis=1)
        persistence = np.mean([norms.frames_l2(*pair) for pair in zip(still, truth, strict=True)], axis=0)
        errors, vrmse = (norms.bounded(each) for each in (errors, vrmse))
        return cls(errors, vrmse, np.nan_to_num(correlation), persistence, np.nan_to_num(energy, posinf=0.0))

    def summary(self, step: float, held: NDArray[np.float64] | None = None) -> dict[str, Any]:
        """Return the card's figures; errors `held` `[trajectory, frame]` give the error estimates of the frames."""
        truth, predicted = self.energy.mean(axis=0)
        rows = [*self.rows(step)]
        if held is not None and len(held) >= fewest():
            for row, calibration, errors in zip(rows, held.T, self.errors.T, strict=True):
                row["error_estimate"] = significant(quantile(calibration))
                row["coverage"] = significant(float((errors <= row["error_estimate"]).mean()))
        return {
            "rollout": rows,
            "correlation_time": float(step * norms.correlated_frames(self.correlation).mean()),
            "spectrum": {
                "truth": [significant(float(value)) for value in truth],
                "model": [significant(float(value)) for value in predicted],
            },
        }

    def rows(self, step: float) -> Iterator[dict[str, float]]:
        """Return a row per frame: means over the trajectories, with the standard error of the relative error."""
        count = len(self.errors)
        spread = (
            self.errors.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(self.errors.shape[1], np.nan)
        )
        for index in range(self.errors.shape[1]):
            figures = {
                "frame": index + 1,
                "time": (index + 1) * step,
                "relative_l2": self.errors[:, index].mean(),
                "standard_error": spread[index],
                "vrmse": self.vrmse[:, index].mean(),
                "correlation": self.correlation[:, index].mean(),
                "persistence": self.persistence[:, index].mean(),
            }
            yield {name: significant(float(value)) for name, value in figures.items() if np.isfinite(value)}
