"""What is known about the errors of a response, and what a caller accepts.

`Quality` holds one number per sample or, of a trajectory, one per sample and frame; `Policy` says what happens where an
output may not be accurate enough: more iterations, the classical solver, or a refusal.

A model that contains a solver is never worse than that solver alone. Its card has limits: a `solve_bound` above one,
and a `novelty` below the other, of an input that is unlike every calibration input, so that nothing is known about the
network's corrections there. What is beyond them is continued whether the caller demands it or not: by the refined
graph, which is the method without the network, and then by the classical solver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schema.card import Card
from serving.errors import Problem

SolvedBy = Literal["network", "refined", "solver", "mixed"]
Outside = Literal["answer", "solve", "refuse"]

#: An input is *outside* of what the model was trained on where fewer calibration inputs than this are as unusual.
OUTSIDE = 0.01
#: What may have computed a sample, in the order of the numbers of `Quality.by`.
NETWORK, REFINED, SOLVER = range(3)
BY: tuple[SolvedBy, ...] = ("network", "refined", "solver")
ERROR_BOUND, SOLVE_BOUND, MISFIT = "error_bound", "solve_bound", "misfit"
ERROR_ESTIMATE, NOVELTY = "error_estimate", "novelty"


@dataclass(frozen=True)
class Quality:
    """What is known about the errors of a batch of outputs.

    `numbers` are `[B]` by the names of the model's quality outputs, of trajectories `[B, frame]`, of the interval of an
    output with components `[B, component]`, and NaN where one is not known. `by` is `[B]`, what computed a sample;
    `failed` `[B]`, whether a sample has no output, of a request that takes such samples; `left` `[B]`, whether a
    trajectory was outside before.
    """

    numbers: Mapping[str, NDArray[np.float32]]
    by: NDArray[np.int8]
    failed: NDArray[np.bool_] | None = None
    left: NDArray[np.bool_] | None = None

    @property
    def known(self) -> bool:
        """Whether there is anything to report beyond the outputs of a network."""
        return bool(self.numbers) or bool(self.by.any()) or self.failed is not None

    @property
    def outside(self) -> NDArray[np.bool_] | None:
        """Whether each input is outside of what the model was trained on; None where the model has no novelty.

        A trajectory is outside from the first frame that follows from a state outside.
        """
        if NOVELTY not in self.numbers:
            return None
        found = self.numbers[NOVELTY] < OUTSIDE
        found = np.logical_or.accumulate(found, axis=-1) if found.ndim > 1 else found
        return found if self.left is None else found | self.left.reshape(-1, *[1] * (found.ndim - 1))

    @property
    def solved_by(self) -> SolvedBy:
        """What computed the outputs: one of `BY`, or several of them."""
        found = set(self.by.tolist())
        return BY[found.pop()] if len(found) == 1 else "mixed"

    @property
    def worst(self) -> Quality:
        """The quality with one number per sample: that of the worst frame, NaN where that of a frame is not known."""
        if all(array.ndim == 1 for array in self.numbers.values()):
            return self
        joined = {
            name: (np.fmin if name == NOVELTY else np.maximum).reduce(array, axis=1) if array.ndim > 1 else array
            for name, array in self.numbers.items()
        }
        return replace(self, numbers=joined)

    def frame(self, index: int) -> Quality:
        return replace(
            self, numbers={name: np.ascontiguousarray(array[:, index]) for name, array in self.numbers.items()}
        )

    @property
    def lists(self) -> dict[str, NDArray[Any]]:
        """All numbers `[B]` by name, and whether each sample is outside and has failed."""
        marks = {"outside": self.outside, "failed": self.failed}
        return dict(self.numbers) | {name: mask for name, mask in marks.items() if mask is not None}

    def continued(self, mask: NDArray[np.bool_], by: int, known: Mapping[str, NDArray[np.float32]]) -> Quality:
        """Return the quality after the refinement or the solver has computed the samples of a mask `[B]`.

        Of those, `known` has one number each. The novelty stays that of the input.
        """
        numbers = {name: array.copy() for name, array in self.numbers.items()}
        for name in numbers.keys() - {NOVELTY}:
            numbers[name][mask] = known.get(name, np.nan)
        return replace(self, numbers=numbers, by=np.where(mask, np.int8(by), self.by))

    def fail(self, mask: NDArray[np.bool_]) -> Quality:
        """Return the quality where some samples have no output, so that nothing is known about them."""
        numbers = {
            name: np.where(mask.reshape(-1, *[1] * (array.ndim - 1)), np.float32(np.nan), array)
            for name, array in self.numbers.items()
        }
        return replace(self, numbers=numbers, failed=mask)

    @classmethod
    def classical(cls, bounds: NDArray[np.float32]) -> Quality:
        """Return the quality of classical solutions with error bounds `[B]`, where any is known."""
        known = {} if np.isnan(bounds).all() else {ERROR_BOUND: bounds}
        return cls(known, np.full(len(bounds), SOLVER, np.int8))

    def estimated(self, estimates: Sequence[float], count: int, after: int = 0) -> Quality:
        """Return the quality with the error estimates of so many frames after some, for all samples.

        They are NaN beyond those that are known; without any, the quality is as it was.
        """
        if not estimates:
            return self
        every = np.full((len(self.by), count), np.nan, np.float32)
        known = estimates[after : after + count]
        every[:, : len(known)] = known
        return replace(self, numbers={**self.numbers, ERROR_ESTIMATE: every})

    def headers(self) -> dict[str, str]:
        """Return the response headers: the worst of the batch; `Petrov-Error-Bound` for `error_bound`.

        There is none where a number is not known of a sample that has an output: it may be the worst.
        """
        if not self.known:
            return {}
        there = np.ones(len(self.by), np.bool_) if self.failed is None else ~self.failed
        known = {name: array[there] for name, array in self.worst.numbers.items() if there.any()}
        found = {name: float(array.min() if name == NOVELTY else array.max()) for name, array in known.items()}
        named = {name: f"{value:.6g}" for name, value in found.items() if np.isfinite(value)}
        if (outside := self.outside) is not None:
            named["outside"] = str(bool(outside.any())).lower()
        if self.failed is not None:
            named["failed"] = str(int(self.failed.sum()))
        named["solved_by"] = self.solved_by
        return {f"Petrov-{name.replace('_', '-').replace('.', '-').title()}": text for name, text in named.items()}


def split(
    results: Mapping[str, NDArray[np.float32]], names: tuple[str, ...], *, trajectories: bool = False
) -> tuple[dict[str, NDArray[np.float32]], Quality]:
    """Return the outputs in the results of a model, batches `[B, …]` by name, and their quality.

    The quality outputs have these names and the shape `[B, 1]`, of trajectories `[B, frame]`, and those of an output
    with components `[B, component]`.
    """
    outputs = {name: array for name, array in results.items() if name not in names}
    count = len(next(iter(outputs.values())))
    kept = {name: trajectories or results[name].size != count or is_vector(outputs, name) for name in names}
    numbers = {name: results[name] if kept[name] else results[name].reshape(count) for name in names}
    return outputs, Quality(numbers, np.full(count, NETWORK, np.int8))


def is_vector(outputs: Mapping[str, NDArray[np.float32]], quality: str) -> bool:
    """Return whether a quality output is the interval of an output of one component, which has an axis of it."""
    base, _, name = quality.partition(".")
    lone = next(iter(outputs)) if len(outputs) == 1 else ""
    return base == ERROR_ESTIMATE and (name or lone) in outputs and outputs[name or lone].shape[1:] == (1,)


class Verdict(NamedTuple):
    """Which samples `[B]` are not good enough.

    `loose` have a bound above the tolerance or the card's limit. `out_of_distribution` are outputs of the network for
    inputs below the card's limit of novelty. `outside` are inputs outside, where the policy does not accept them.
    """

    loose: NDArray[np.bool_]
    out_of_distribution: NDArray[np.bool_]
    outside: NDArray[np.bool_]


@dataclass(frozen=True)
class Policy:
    """The caller's choices."""

    tolerance: float | None = None  # the largest error bound of a sample; one above it is refined, or solved
    outside: Outside = "answer"  # what happens to inputs outside of the training distribution
    partial: bool = False  # whether samples that the model fails on are marked, instead of failing all of it
    frames: int | None = None  # that follow of a trajectory; None for as many as a training trajectory has
    after: int = 0  # frames of the trajectory that the caller has, up to the state that is sent
    grid: tuple[int, ...] | None = None  # of the outputs of a model without an input on it; None for the trained one

    def points(self, card: Card, grid: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
        """Return the grid that is asked for, by the body where the policy says none; only some models take one."""
        found = self.grid or grid
        if found is not None and not card.takes_grid:
            detail = f'grid: the inputs of "{card.model}" are on the grid of its outputs, which need not be said'
            raise Problem("invalid-parameter", detail)
        return found

    def count(self, card: Card, frames: int | None = None) -> int | None:
        """Return the frames that a model of trajectories computes, at most its limit; None for any other model.

        The body may say how many `frames`, where the policy does not.
        """
        frames = self.frames or frames
        if card.frames is None:
            if frames is not None or self.after:
                asked = "after" if frames is None else "frames"
                raise Problem("invalid-parameter", f'{asked}: "{card.model}" computes no trajectories')
            return None
        found = frames or card.frames.trained
        if found > card.frames.maximum:
            raise Problem("invalid-parameter", f"frames: expected at most {card.frames.maximum} but got {found}")
        return found

    def check(self, card: Card, *, solver: bool, reference: bool = False) -> None:
        """Refuse what a model, or the solver as a `reference`, cannot do, before it runs.

        That is a tolerance without error bounds and without an exact solver, a treatment of inputs outside without a
        novelty, frames that are not its own, or earlier frames where nothing counts them.
        """
        self.count(card)
        if reference and (self.outside != "answer" or self.after):
            name = "after" if self.outside == "answer" else "outside"
            detail = "a classical solution depends on no training data, and has no error estimate"
            raise Problem("invalid-parameter", f"{name}: {detail}")
        if card.product is not None and (self.tolerance is not None or self.outside != "answer"):
            name, kind = (
                ("outside", "invalid-parameter") if self.tolerance is None else ("tolerance", "tolerance-unmet")
            )
            raise Problem(kind, f"{name}: derivatives are those of the network, and no error of theirs is known")
        if card.product is not None and self.after:
            raise Problem("invalid-parameter", "after: derivatives have no error estimates, whose frames it counts")
        if self.bypasses(card) and not solver:
            raise Problem(
                "tolerance-unmet",
                f'"{card.model}" reports no {ERROR_BOUND}, and no classical solver solves its problem '
                f'"{card.problem}", so no tolerance can be met',
            )
        if self.outside != "answer" and NOVELTY not in card.quality:
            raise Problem(
                "invalid-parameter", f'outside={self.outside} needs a {NOVELTY}, which "{card.model}" does not report'
            )

    def bypasses(self, card: Card) -> bool:
        """Return whether all samples are solved classically: there is a tolerance and no error bound."""
        return self.tolerance is not None and ERROR_BOUND not in card.quality

    def judge(self, card: Card, quality: Quality, finer: Card | None = None) -> Verdict:
        """Return which samples are not good enough; the refinement with the card `finer` computed some of them."""
        quality, limits, none = quality.worst, card.limits, np.zeros(len(quality.by), np.bool_)
        loose = unusual = outside = none
        if self.tolerance is not None:
            loose = self._loose(quality, self.tolerance)
        if limits.solve_bound is not None and SOLVE_BOUND in quality.numbers:
            finest = (finer and finer.limits.solve_bound) or limits.solve_bound
            most = np.where(quality.by == REFINED, finest, limits.solve_bound)
            # NaN is above every limit; the solver has none, since its solution may have no bound.
            loose = loose | (~(quality.numbers[SOLVE_BOUND] <= most) & (quality.by != SOLVER))
        if limits.novelty is not None and NOVELTY in quality.numbers:
            unusual = (quality.numbers[NOVELTY] < limits.novelty) & (quality.by == NETWORK)
        if self.outside != "answer" and quality.outside is not None:
            outside = quality.outside
        return Verdict(loose, unusual, outside)

    def refuse_outside(self, card: Card, quality: Quality, verdict: Verdict, *, solver: bool, single: bool) -> None:
        """Refuse inputs outside (`outside-training`), by the caller's wish or where no solver can replace them.

        `single` says whether the request is one sample, without a batch axis.
        """
        if verdict.outside.any() and (self.outside == "refuse" or not solver):
            sample = int(verdict.outside.argmax())
            novelty = quality.worst.numbers[NOVELTY][sample]
            reason = "" if solver else f', and no classical solver solves its problem "{card.problem}"'
            raise Problem(
                "outside-training",
                f"sample {sample} has a {NOVELTY} of {novelty:.2g}: it is unlike the training data of "
                f'"{card.model}"{reason}',
                array=card.names[0],
                index=None if single else [sample],
            )

    def require(self, card: Card, quality: Quality, *, single: bool, first: int = 0) -> None:
        """Refuse outputs whose error bounds are too large (`tolerance-unmet`); `first` is the index of the first."""
        if self.tolerance is None:
            return
        quality = quality.worst
        loose = self._loose(quality, self.tolerance)
        if loose.any():
            sample = int(loose.argmax())
            bound, index = quality.numbers[ERROR_BOUND][sample], first + sample
            raise Problem(
                "tolerance-unmet",
                f"sample {index} has an {ERROR_BOUND} of {bound:.3g}; expected at most {self.tolerance:g}",
                array=card.names[0],
                index=None if single else [index],
            )

    @staticmethod
    def _loose(quality: Quality, tolerance: float) -> NDArray[np.bool_]:
        """Return which samples have an error bound above the tolerance; a solution without a bound has none."""
        if ERROR_BOUND not in quality.numbers:
            return np.zeros(len(quality.by), np.bool_)
        bounds = quality.numbers[ERROR_BOUND]
        return np.asarray(~(bounds <= tolerance) & ~((quality.by == SOLVER) & np.isnan(bounds)))


#: Accepts every output of a model.
ANY = Policy()
