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
ERROR_BOUND, ERROR_ESTIMATE, NOVELTY = NAMES = ("error_bound", "error_estimate", "novelty")


@dataclass(frozen=True)
class Quality:
    """What is known about the errors of a batch of outputs.

    Attributes:
        numbers: `[B]` by the names of the model's quality outputs; NaN where a number is not known.
        solved: `[B]`, whether a sample was solved by the classical solver instead of the network.
    """

    numbers: Mapping[str, NDArray[np.float32]]
    solved: NDArray[np.bool_]

    @property
    def known(self) -> bool:
        """Whether there is anything to report beyond the outputs of a network."""
        return bool(self.numbers) or bool(self.solved.any())

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
        """All numbers `[B]` by name, and whether each sample is outside."""
        return dict(self.numbers) | ({} if self.outside is None else {"outside": self.outside})

    def solve(self, mask: NDArray[np.bool_], bounds: NDArray[np.float32]) -> Quality:
        """Return the quality after the classical solver has solved some samples.

        Args:
            mask: `[B]`, which samples it has solved.
            bounds: The error bounds of its solutions, one per solved sample; NaN where it has none.
        """
        numbers = {name: array.copy() for name, array in self.numbers.items()}
        for name, values in ((ERROR_BOUND, bounds), (ERROR_ESTIMATE, np.float32(np.nan))):
            if name in numbers:
                numbers[name][mask] = values
        return replace(self, numbers=numbers, solved=self.solved | mask)

    def bounded(self, bounds: NDArray[np.float32]) -> Quality:
        """Return the quality with error bounds `[B]`, where any is known."""
        return self if np.isnan(bounds).all() else replace(self, numbers={**self.numbers, ERROR_BOUND: bounds})

    def document(self) -> dict[str, Any]:
        """Return the member `quality` of a response in JSON; a number that is not known is null."""
        return {**self.lists, "solved_by": self.solved_by}

    def headers(self) -> dict[str, str]:
        """Return the response headers: the worst of the batch."""
        worst = {"error_bound": np.fmax, "error_estimate": np.fmax, "novelty": np.fmin}
        found = {name: float(worst[name].reduce(array)) for name, array in self.numbers.items()}
        named = {_header(name): f"{value:.6g}" for name, value in found.items() if np.isfinite(value)}
        if self.outside is not None:
            named[_header("outside")] = str(bool(self.outside.any())).lower()
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
