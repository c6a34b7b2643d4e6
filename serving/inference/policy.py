"""What a caller wants where a network's output may not be accurate enough: solve classically, or refuse."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from serving.errors import Problem
from serving.inference.span import Span
from serving.quality import ERROR_BOUND, NOVELTY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from serving.catalogue.card import Card
    from serving.quality import Quality

Outside = Literal["answer", "solve", "refuse"]


@dataclass(frozen=True)
class Case:
    """What a policy is applied to.

    Attributes:
        card: The model's card.
        solver: Whether a classical solver solves its problem to rounding.
        single: Whether the request is one sample, without a batch axis.
    """

    card: Card
    solver: bool
    single: bool = False

    def where(self, sample: int) -> dict[str, Any]:
        """Return the location of a sample in the request, as problems take it."""
        return {"array": self.card.inputs[0].name, "index": None if self.single else [sample]}


@dataclass(frozen=True)
class Policy:
    """The caller's choices.

    Attributes:
        tolerance: The largest error bound; a sample with a larger one is refined, or solved classically. None for any.
        outside: What happens to inputs outside of the training distribution.
        partial: Whether samples that the model fails on are marked in the response, instead of failing all of it.
        span: Which frames of a trajectory follow.
    """

    tolerance: float | None = None
    outside: Outside = "answer"
    partial: bool = False
    span: Span = field(default_factory=Span)

    def check(self, case: Case) -> None:
        """Refuse what a model cannot do, before it runs.

        Raises:
            Problem: tolerance-unmet: A tolerance for a model without error bounds and without a solver.
            Problem: invalid-parameter: The treatment of inputs outside depends on a novelty that the model does not
                report, or
                the frames are not its own; see `Span.count`.
        """
        card = case.card
        self.span.count(card)
        if self.bypasses(card) and not case.solver:
            raise Problem(
                "tolerance-unmet",
                f'"{card.model}" reports no {ERROR_BOUND}, and no classical solver solves its problem '
                f'"{card.problem}", so no tolerance can be met',
            )
        if self.outside != "answer" and NOVELTY not in card.quality:
            raise Problem(
                "invalid-parameter", f'outside={self.outside} needs a {NOVELTY}, which "{card.model}" does not report'
            )

    @property
    def demands(self) -> bool:
        """Return whether any output may be unacceptable."""
        return self.tolerance is not None or self.outside != "answer"

    @property
    def solves(self) -> bool:
        """Return whether a sample that the network fails on may be solved classically instead."""
        return self.outside != "refuse" and self.demands

    def bypasses(self, card: Card) -> bool:
        """Return whether all samples are solved classically: there is a tolerance and no error bound."""
        return self.tolerance is not None and ERROR_BOUND not in card.quality

    def coarse(self, quality: Quality) -> NDArray[np.bool_]:
        """Return which samples `[B]` more iterations may make acceptable: those with too large a bound alone."""
        loose = self._loose(quality)
        if self.outside == "answer" or quality.outside is None:
            return loose
        return np.zeros_like(loose) if self.outside == "refuse" and quality.outside.any() else loose & ~quality.outside

    def unmet(self, case: Case, quality: Quality) -> NDArray[np.bool_]:
        """Return which samples `[B]` have to be solved classically.

        Raises:
            Problem: outside-training: An input is outside and is to be refused, or cannot be solved.
            Problem: tolerance-unmet: An error bound is too large, and there is no solver.
        """
        quality = quality.worst
        loose, outside = self._loose(quality), np.zeros_like(quality.solved)
        if self.outside != "answer" and quality.outside is not None:
            outside = quality.outside
        if outside.any() and (self.outside == "refuse" or not case.solver):
            raise _outside(case, quality, int(outside.argmax()))
        if loose.any() and not case.solver:
            raise self._unmet(case, quality, int(loose.argmax()))
        return loose | outside

    def check_solutions(self, case: Case, quality: Quality) -> None:
        """Refuse classical solutions whose bounds are too large.

        Raises:
            Problem: tolerance-unmet: One is.
        """
        quality = quality.worst
        loose = self._loose(quality)
        if loose.any():
            raise self._unmet(case, quality, int(loose.argmax()))

    def _loose(self, quality: Quality) -> NDArray[np.bool_]:
        """Return which samples have an error bound above the tolerance; a solution without a bound has none."""
        if self.tolerance is None or ERROR_BOUND not in quality.numbers:
            return np.zeros_like(quality.solved)
        bounds = quality.numbers[ERROR_BOUND]
        return ~(bounds <= self.tolerance) & ~(quality.solved & np.isnan(bounds))

    def _unmet(self, case: Case, quality: Quality, sample: int) -> Problem:
        bound = quality.numbers[ERROR_BOUND][sample]
        return Problem(
            "tolerance-unmet",
            f"sample {sample} has an {ERROR_BOUND} of {bound:.3g}; expected at most {self.tolerance:g}",
            **case.where(sample),
        )


#: Accepts every output of a model.
ANY = Policy()


def _outside(case: Case, quality: Quality, sample: int) -> Problem:
    reason = "" if case.solver else f', and no classical solver solves its problem "{case.card.problem}"'
    return Problem(
        "outside-training",
        f"sample {sample} has a {NOVELTY} of {quality.numbers[NOVELTY][sample]:.2g}: it is unlike the training data of "
        f'"{case.card.model}"{reason}',
        **case.where(sample),
    )
