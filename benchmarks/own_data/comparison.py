"""The comparison: the candidates of each network, the choice among them on validation samples, and the final trainings.

FNO and U-Net are tuned per problem: each candidate is trained for a share of the time, and the one of the least
validation error is trained in full. Petrov has the sizes and settings that its preset takes from the data, and is not
tuned. Test samples are used once per final training.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.own_data import data
from benchmarks.own_data.networks import petrov
from benchmarks.own_data.trainings import Candidate, Results, Row, Training, complete

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from benchmarks.own_data.samples import Prepared

FNO, UNET, PETROV, WITHOUT = "FNO", "U-Net", "Petrov", "Petrov without attention"
TITLES = (FNO, UNET, PETROV, WITHOUT)
TUNED = (FNO, UNET)
SECONDS, SEEDS, TUNING_SHARE, TUNING_SEED = (120.0, 30.0), 2, 1 / 3, 100
#: Modes per axis (positive and negative together) and channels of FNO's candidates, by the points of the shortest axis.
SIZES = {
    16: ((12, 32), (16, 32)),
    24: ((16, 32), (24, 32)),
    32: ((16, 32), (24, 32)),
    128: ((16, 32), (32, 64)),
}
RATES = {FNO: (2e-3, 5e-3, 1e-2), UNET: (2e-3, 5e-3)}
BATCH = 16


@dataclass(frozen=True)
class Plan:
    """How long and how often.

    Attributes:
        problems: The names of the problems.
        seconds: The processor times of the final trainings; candidates are chosen for the longest.
        seeds: Final trainings of each network and time.
    """

    problems: tuple[str, ...] = data.NAMES
    seconds: tuple[float, ...] = SECONDS
    seeds: int = SEEDS


def compare(plan: Plan, results: Results, folder: Path, workers: int = 1) -> Iterator[Row]:
    """Tune, then train.

    Args:
        plan: How long and how often.
        results: The rows that exist; new ones are added.
        folder: The folder of the data.
        workers: Trainings at the same time, each of one thread.

    Yields:
        The row of every training: those of tuning have the split `validation`.

    Raises:
        BaselineError: A training failed.
    """
    prepared = {name: data.prepared(name, folder) for name in plan.problems}
    pairs = [(name, title) for name in plan.problems for title in TITLES]
    trainings = [each for name, title in pairs for each in tunings(plan, name, title, prepared[name])]
    tuned = []
    for row in complete(trainings, results, prepared, workers):
        tuned.append(row)
        yield row
    chosen = {(name, title): choice(tuned, name, title, prepared[name]) for name, title in pairs}
    yield from complete([*finals(plan, chosen)], results, prepared, workers)


def choice(tuned: Iterable[Row], name: str, title: str, prepared: Prepared) -> Candidate:
    """Return the best candidate of a network on a problem, or its only one."""
    rows = [row for row in tuned if (row.training.problem, row.training.title) == (name, title)]
    return best(rows) if rows else candidates(title, prepared)[0]


def tunings(plan: Plan, name: str, title: str, prepared: Prepared) -> list[Training]:
    """Return the trainings that choose a network's candidate; none where there is one candidate."""
    found = candidates(title, prepared)
    seconds = round(max(plan.seconds) * TUNING_SHARE, 1)
    trainings = [
        Training(problem=name, title=title, candidate=each, seconds=seconds, seed=TUNING_SEED, split="validation")
        for each in found
    ]
    return trainings if len(found) > 1 else []


def finals(plan: Plan, chosen: dict[tuple[str, str], Candidate]) -> Iterator[Training]:
    """Return the final trainings, all problems of one seed and time before the next."""
    for seed, seconds in itertools.product(range(plan.seeds), plan.seconds):
        for (name, title), candidate in chosen.items():
            yield Training(problem=name, title=title, candidate=candidate, seconds=seconds, seed=seed, split="test")


def best(rows: Iterable[Row]) -> Candidate:
    """Return the candidate of the least validation error."""
    return min(rows, key=lambda row: row.result.error).training.candidate


def candidates(title: str, prepared: Prepared) -> list[Candidate]:
    """Return the candidates of a network on a problem."""
    if title in {PETROV, WITHOUT}:
        sizes = {"attention": title == PETROV}
        return [Candidate(network="petrov", sizes=sizes, settings=petrov.settings(prepared))]
    settings = [{"learning_rate": rate, "batch": BATCH} for rate in RATES[title]]
    if title == UNET:
        return [Candidate(network="unet", settings=each) for each in settings]
    return [
        Candidate(network="fno", sizes={"modes": modes, "channels": channels}, settings=each)
        for modes, channels in SIZES[min(prepared.sides)]
        for each in settings
    ]
