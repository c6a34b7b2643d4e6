"""What is known about the errors of a response, one number per sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    SolvedBy = Literal["network", "solver", "mixed"]

#: An input is *outside* of what the model was trained on where fewer calibration inputs than this are as unusual.
OUTSIDE = 0.01
ERROR_BOUND, CORRECTION, MISFIT, ERROR_ESTIMATE, NOVELTY = (
    "error_bound",
    "correction",
    "misfit",
    "error_estimate",
    "novelty",
)


@dataclass(frozen=True)
class Quality:
    """What is known about the errors of a batch of outputs.

    Attributes:
        numbers: `[B]` by the names of the model's quality outputs; NaN where a number is not known.
        solved: `[B]`, whether a sample was solved by the classical solver instead of the network.
        failed: `[B]`, whether a sample has no output, of a request that takes such samples; None of any other.
    """

    numbers: Mapping[str, NDArray[np.float32]]
    solved: NDArray[np.bool_]
    failed: NDArray[np.bool_] | None = None

    @property
    def known(self) -> bool:
        """Whether there is anything to report beyond the outputs of a network."""
        return bool(self.numbers) or bool(self.solved.any()) or self.failed is not None

    @property
    def outside(self) -> NDArray[np.bool_] | None:
        """Whether each input is outside of what the model was trained on; None where the model has no novelty."""
        return self.numbers[NOVELTY] < OUTSIDE if NOVELTY in self.numbers else None

    @property
    def solved_by(self) -> SolvedBy:
        """What computed the outputs: the network, the solver, or each of them some."""
        if self.solved.all():
            return "solver"
        return "mixed" if self.solved.any() else "network"

    @property
    def lists(self) -> dict[str, NDArray[Any]]:
        """All numbers `[B]` by name, and whether each sample is outside and has failed."""
        marks = {"outside": self.outside, "failed": self.failed}
        return dict(self.numbers) | {name: mask for name, mask in marks.items() if mask is not None}

    def solve(self, mask: NDArray[np.bool_], bounds: NDArray[np.float32]) -> Quality:
        """Return the quality after the classical solver has solved some samples.

        Args:
            mask: `[B]`, which samples it has solved.
            bounds: The error bounds of its solutions, one per solved sample; NaN where it has none.
        """
        numbers = {name: array.copy() for name, array in self.numbers.items()}
        # Both bounds are distances to the solution that the solver computes; the others are of the network's output.
        unknown = np.full_like(bounds, np.nan)
        known = {ERROR_BOUND: bounds, CORRECTION: bounds, MISFIT: unknown, ERROR_ESTIMATE: unknown}
        for name in numbers.keys() & known.keys():
            numbers[name][mask] = known[name]
        return replace(self, numbers=numbers, solved=self.solved | mask)

    def fail(self, mask: NDArray[np.bool_]) -> Quality:
        """Return the quality where some samples have no output, so that nothing is known about them."""
        numbers = {name: np.where(mask, np.float32(np.nan), array) for name, array in self.numbers.items()}
        return replace(self, numbers=numbers, failed=mask)

    def bounded(self, bounds: NDArray[np.float32]) -> Quality:
        """Return the quality with error bounds `[B]`, where any is known."""
        return self if np.isnan(bounds).all() else replace(self, numbers={**self.numbers, ERROR_BOUND: bounds})

    def estimated(self, estimate: float | None) -> Quality:
        """Return the quality with one error estimate for all samples, where it is known."""
        if estimate is None:
            return self
        return replace(self, numbers={**self.numbers, ERROR_ESTIMATE: np.full(len(self.solved), estimate, np.float32)})

    def document(self) -> dict[str, Any]:
        """Return the member `quality` of a response in JSON; a number that is not known is null."""
        return {**self.lists, "solved_by": self.solved_by}

    def headers(self) -> dict[str, str]:
        """Return the response headers: the worst of the batch."""
        worst = {name: np.fmin if name == NOVELTY else np.fmax for name in self.numbers}
        found = {name: float(worst[name].reduce(array)) for name, array in self.numbers.items()}
        named = {_header(name): f"{value:.6g}" for name, value in found.items() if np.isfinite(value)}
        if self.outside is not None:
            named[_header("outside")] = str(bool(self.outside.any())).lower()
        if self.failed is not None:
            named[_header("failed")] = str(int(self.failed.sum()))
        return named | {_header("solved_by"): self.solved_by}


def split(
    results: Mapping[str, NDArray[np.float32]], names: tuple[str, ...]
) -> tuple[dict[str, NDArray[np.float32]], Quality]:
    """Take the quality outputs out of the results of a model.

    Args:
        results: Batches `[B, …]` by name.
        names: The model's quality outputs, `[B, 1]` each.

    Returns:
        The outputs by name, and their quality.
    """
    outputs = {name: array for name, array in results.items() if name not in names}
    count = len(next(iter(outputs.values())))
    return outputs, Quality({name: results[name].reshape(count) for name in names}, np.zeros(count, np.bool_))


def _header(name: str) -> str:
    """Return the header of a number: `Petrov-Error-Bound` for `error_bound`."""
    return "-".join(["Petrov", *(part.capitalize() for part in name.split("_"))])
