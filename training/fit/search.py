"""The race at the start of a training on own data: which network learns these samples best.

The first third of the budget belongs to the race. Candidates, networks of several kinds and sizes, train alternately.
After each round the half with the larger errors on the validation samples is dropped. In the last round two copies of
the best one go on: as it is, and with the symmetries that the validation samples do not contradict. The better copy
wins, and trains for the rest of the budget.

.. code-block:: text

    round     1              2        3      4                       rest
    trained   a b c d e f    b c e    c e    c with flip_row, c      c with flip_row

All turns are equally long, since a short one tells little. Nothing is decided before something is learned: as long as
no network is better than the mean of the samples, or of trajectories the last frame, all stay for up to two rounds
more; one that is not, beside others that are, stays for one, as it may learn late. The training then ends later, by a
third of its budget at most. The turns of a round do not depend on one another: where RAY_ADDRESS names a cluster, its
machines train them at the same time.

Every candidate follows the schedule that it would have as the winner: its shares are those of the budget without the
turns of the others (`Fit.race_budget`). So the winner goes on without a break, with its weights. A turn ends with the
share that it was to reach, in processor time or in steps, whichever the recipe counts. What turns have found and the
states of the candidates are in the state of the run, from where a killed race continues.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from schema.parts import candidate_symmetries
from training.data.pools import Pool, ThisProcess
from training.evaluation.measures import mean_prediction, naive
from training.files import read_json, write_json
from training.fit.operator_workload import OperatorWorkload
from training.fit.processes import from_first, is_first
from training.fit.run_folder import RunError, RunFolder, read_log, training_seconds
from training.fit.start import LEAST_SAMPLES, warm_started
from training.fit.turns import Turn, TurnResult, begin_copy
from training.fit.workload import Task
from training.recipe import Candidate, Recipe, changed

SHARE = 1 / 3  # of the budget
DOUBT = 3.0  # standard errors by which transformed samples have to have a larger error for a symmetry not to hold
LOST = 1e6  # the error of a network whose training diverges, above that of rollouts that all overflow
LEARNED = 0.9  # of the error of a prediction without a network, below which something is learned
PATIENCE = {False: 2, True: 1}  # rounds after which one stays that is not, by whether the best one of them is
WITH = " with "  # between the name of a candidate and its symmetries

Advance = Callable[[Turn], TurnResult]
"""Trains a candidate for a turn."""
FindSymmetries = Callable[[Recipe, Path], tuple[str, ...]]
"""Returns which symmetries the validation samples do not contradict, by a candidate and its state."""


@dataclass(frozen=True)
class Plan:
    """The rounds of a race, in which every turn has the same share of the budget.

    Example:
        >>> plan = Plan.of(6, symmetries=True)
        >>> plan.counts
        (6, 3, 2, 2)
        >>> [round(share, 3) for share in plan.shares], round(plan.race_budget, 3)
        ([0.026, 0.051, 0.077, 0.103], 0.231)
    """

    counts: tuple[int, ...]  # candidates of each round
    shares: tuple[float, ...]  # of the whole budget, that each of them has used at the end of the round

    @classmethod
    def of(cls, count: int, *, symmetries: bool) -> Plan:
        """Return rounds that leave half of the candidates until there is one, and a round for its symmetries."""
        counts = []
        while count > 1:
            counts.append(count)
            count = math.ceil(count / 2)
        counts += [2] if symmetries else []
        turn = SHARE / sum(counts)
        return cls(tuple(counts), tuple(turn * number for number in range(1, len(counts) + 1)))

    @property
    def race_budget(self) -> float:
        """The share of the budget that the turns of the others take."""
        return SHARE - self.shares[-1]

    def share(self, number: int) -> float:
        """Return the share of the whole budget that a candidate has used at the end of a round."""
        return self.shares[0] * (number + 1)

    def used(self, counts: Sequence[int]) -> float:
        """Return the share of a training that rounds with so many candidates take: `SHARE` where they are as planned.

        Example:
            >>> plan = Plan.of(3, symmetries=True)
            >>> round(plan.used(plan.counts), 3), round(plan.used((3, 3, 2, 2)), 3)
            (0.333, 0.435)
        """
        turns, own = sum(counts) * self.shares[0], self.share(len(counts) - 1)
        return turns / (turns - own + 1 - self.race_budget)

    def until(self, number: int) -> float:
        """Return the share of a winner's budget that it has used at the end of a round."""
        return self.share(number) / (1 - self.race_budget)


class Race:
    """A race in the state of a run.

    Args:
        recipe: A recipe with candidates.
        run: The folder of the run.
        sides: Points per axis of the data.
        advance: Trains a candidate for a turn.
        find_symmetries: Chooses the symmetries of the last round.
        pool: Where the turns of a round are trained.
        naive: The validation error of a prediction without a network.
        directed: Whether a parameter has both signs or components, so that flips are not tried.
    """

    def __init__(
        self,
        recipe: Recipe,
        run: RunFolder,
        sides: Sequence[int],
        advance: Advance,
        find_symmetries: FindSymmetries,
        pool: Pool | None = None,
        *,
        naive: float = math.inf,
        directed: bool = False,
    ) -> None:
        self.recipe, self.advance, self.find_symmetries, self.naive = recipe, advance, find_symmetries, naive
        self.pool = ThisProcess() if pool is None else pool
        self.folder, problem = run.state / "race", recipe.file
        exact = problem.symmetries
        fields = (*problem.inputs, *problem.outputs)
        tried = candidate_symmetries(problem.axes, sides, fields, exact, directed=directed)
        self.symmetries = tried if problem.inputs else ()
        self.plan = Plan.of(len(recipe.race), symmetries=bool(self.symmetries))
        self.file = self.folder / "race.json"
        #: What is known so far: errors by round and name, who went on, seconds of all turns, symmetries that may hold
        #: (None where nothing was learned that would tell), the winner.
        empty: dict[str, Any] = {"rounds": [], "seconds": 0.0}
        self.found = from_first(lambda: read_json(self.file) if self.file.is_file() else empty)

    def winner(self) -> Recipe:
        """Hold the race, or what is left of one that was killed, and return the winner's recipe."""
        left, number = [each.name for each in self.recipe.race], 0
        while len(left) > 1:
            left, number = self.best(number, left), number + 1
        if self.symmetries:
            if "symmetries" not in self.found:
                knows = number == 0 or self.learned(self.found["rounds"][number - 1][left[0]])
                ask = partial(self.find_symmetries, self.entry(left[0]), self.newest(left[0]))
                self.keep(symmetries=from_first(ask) if knows else None)
            held = self.found["symmetries"]
            # The copy starts from the state that the original leaves in its turn, so it is the first to begin.
            copies = [f"{left[0]}{WITH}{', '.join(held)}"] if held else []
            left = self.best(number, [*copies, left[0]], last=True)
        if "winner" not in self.found:
            own = from_first(lambda: training_seconds(self.run_of(left[0]).metrics))
            self.keep(winner=left[0], seconds=max(0.0, self.found["seconds"] - own))
        return self.entry(left[0])

    def best(self, number: int, names: Sequence[str], *, last: bool = False) -> list[str]:
        """Train candidates until the end of a round, and return those that go on.

        They are the better half and, in the first rounds, those others that have learned nothing; in the last one the
        best alone.
        """
        rounds = self.found["rounds"]
        rounds += [{} for _ in range(number + 1 - len(rounds))]
        errors = rounds[number]
        turns = [self.turn(name, self.plan.until(number)) for name in names if name not in errors]
        for turn, ended in self.pool.completed(self.advance, turns):
            errors[turn.name] = float(f"{ended.error:.4g}")
            self.keep(seconds=self.found["seconds"] + ended.seconds)
            self.say(f"race, round {number + 1}, {turn.name}: validation error {ended.error:.3e}")
        rounds[number] = errors = {name: errors[name] for name in names}  # whichever was over first
        decided = self.found.get("left", [])
        if number >= len(decided):
            decided = [*decided, self.ahead(number, errors, last=last)]
            self.keep(left=decided)
        left: list[str] = decided[number]
        if is_first():
            for name in names:
                if name not in left:
                    shutil.rmtree(self.run_of(name).path, ignore_errors=True)
        return left

    def ahead(self, number: int, errors: Mapping[str, float], *, last: bool) -> list[str]:
        """Decide who goes on after a round, from the best to the worst."""
        ranked = sorted(errors, key=lambda name: errors[name] * self.candidate(name).handicap)
        if len(self.found["rounds"]) > number + 1:  # an earlier release has removed the others, and did not note it
            return from_first(lambda: [name for name in ranked if self.run_of(name).path.exists()])
        half, waits = math.ceil(len(ranked) / 2), number < PATIENCE[self.learned(min(errors.values()))] and not last
        behind = [name for name in ranked[half:] if waits and not self.learned(errors[name]) and errors[name] < LOST]
        return ranked[:half] + behind

    def learned(self, error: float) -> bool:
        """Return whether a network is better than a prediction without one, by more than chance."""
        return error < LEARNED * self.naive

    def turn(self, name: str, until: float) -> Turn:
        """Return a turn of a candidate; a copy begins where the original is now."""
        turn, original = Turn(name, self.entry(name), self.run_of(name), until), name.partition(WITH)[0]
        if original != name:
            begin_copy(turn.run, turn.recipe, self.newest(original))
        return turn

    def candidate(self, name: str) -> Candidate:
        """Return a candidate by its name, which may have symmetries."""
        return next(each for each in self.recipe.race if each.name == name.partition(WITH)[0])

    def entry(self, name: str) -> Recipe:
        """Return the recipe of a candidate, with the symmetries in its name."""
        candidate, symmetries = self.candidate(name), name.partition(WITH)[2]
        start = candidate.start
        made = changed(self.recipe, candidate.overrides) if start is None else warm_started(self.recipe, start)
        if candidate.fine:
            made = made.model_copy(update={"coarse": None})
        chosen = tuple(symmetries.split(", ")) if symmetries else ()
        fit = made.fit.model_copy(update={"race_budget": self.plan.race_budget, "symmetries": chosen})
        return made.model_copy(update={"race": (), "fit": fit})

    def run_of(self, name: str) -> RunFolder:
        """Return the folder in which a candidate trains."""
        original, _, symmetries = name.partition(WITH)
        number = [each.name for each in self.recipe.race].index(original)
        return RunFolder(self.folder / (f"{number}-with" if symmetries else str(number)))

    def newest(self, name: str) -> Path:
        """Return the newest state of a candidate.

        Raises:
            RunError: It has none: its training diverged at once, as that of all others.
        """
        found = from_first(lambda: self.run_of(name).newest())
        if found is None:
            raise RunError(
                f"{self.run_of(name).path}: the trainings of all networks diverged: try a lower fit.learning_rate"
            )
        return found

    @staticmethod
    def say(line: str) -> None:
        """Write a line of progress to standard error."""
        if is_first():
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def keep(self, **facts: Any) -> None:
        """Write down what is known."""
        self.found |= facts
        if is_first():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.file, self.found)

    def account(self) -> dict[str, Any]:
        """Return what the card says about a race that is over; `seconds` are those of the turns of the others."""
        held = self.found.get("symmetries", ())
        return {
            "share": round(self.plan.used([len(errors) for errors in self.found["rounds"]]), 4),
            "winner": self.found["winner"],
            "seconds": round(self.found["seconds"], 1),
            **({"naive": float(f"{self.naive:.4g}")} if math.isfinite(self.naive) else {}),
            "handicaps": {each.name: each.handicap for each in self.recipe.race if each.handicap != 1},
            "symmetries": {"tried": [*self.symmetries], "not_contradicted": held if held is None else [*held]},
            "rounds": [
                {"share": round(self.plan.share(number), 4), "validation_error": errors}
                for number, errors in enumerate(self.found["rounds"])
            ],
        }


@torch.inference_mode()
def supported(work: OperatorWorkload, task: Task, symmetries: Sequence[str]) -> tuple[str, ...]:
    """Return the symmetries whose transformed validation samples have no significantly larger errors than the samples.

    A network that was trained without a symmetry knows transformed samples as well as others where the symmetry holds.
    """
    network, rows = task.network.eval(), np.asarray(work.samples.split("validation"))
    parts = np.array_split(rows, -(-len(rows) // LEAST_SAMPLES))

    def errors(names: Sequence[str]) -> Any:
        rng = np.random.default_rng(work.recipe.seed)
        batches = (work.as_batch(work.transformed(work.stored(part), rng, names)) for part in parts)
        return work.measured(network, batches, whole=False)["relative_l2"]

    plain, kept = errors(()), []
    for name in symmetries:
        more = errors((name,)) - plain
        if more.mean() <= DOUBT * more.std(ddof=1) / math.sqrt(len(more)):
            kept.append(name)
    return tuple(kept)


@torch.inference_mode()
def naive_error(work: OperatorWorkload) -> float:
    """Return the validation error of the best prediction without a network.

    It is the mean of the training samples. Of trajectories it is the last given frame or, where frames are far apart,
    the mean frame: a network of a smaller error than one of them may have learned nothing but the other.
    """
    errors, counts = [], []
    for batch in work.validation():
        found = [naive(work, batch)]
        if work.is_trajectory:
            found.append(mean_prediction(work, batch))
        errors.append([float(work.score(each, batch)) for each in found])
        counts.append(len(batch.outputs[0]))
    return float(np.average(errors, axis=0, weights=counts).min())


def last_error(work: OperatorWorkload, run: RunFolder) -> float:
    """Return the validation error at the end of a turn."""
    return from_first(lambda: float(read_log(run.metrics)[-1][work.metric.name]))
