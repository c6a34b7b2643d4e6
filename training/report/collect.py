"""What a report says: errors, learning curve, data, times, samples to draw, trainings on parts of the data, advice."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schema.problem import Description
from training import checkpoint
from training.checkpoint import Checkpoint
from training.evaluation import measures, pictures
from training.evaluation.measures import Errors, Parity, parities, summary
from training.evaluation.pictures import PredictedSample
from training.files import write_json
from training.fit import run_folder
from training.fit.operator_workload import OperatorWorkload
from training.fit.run import fit
from training.fit.run_folder import RunFolder
from training.messages import UserError, typed
from training.operators import Operator
from training.problems.problem_file import ProblemFile
from training.problems.sections import INSIDE
from training.recipe import Recipe, from_document
from training.report.verdict import Verdict, baselines

SHARES = (0.25, 0.5)
TRAJECTORY_SHARES = (0.5,)  # their presets spend the time on the run itself
FOLDER = "amounts"
RESULT = "validation.json"
TIMED = 7
LOGGED = ("epoch", "loss", "relative_l2")  # the validation metric has one name in every report
GAP = 1.25  # a network whose validation error is this many times its training error has learned its samples too well
GAIN = 0.05  # a relative decrease of the error that is worth the effort


class ReportError(UserError):
    """A run has no report: the message says what was expected and what was found."""


@dataclass(frozen=True)
class Amount:
    """The result of a training on part of the data."""

    share: float  # of the run's training samples
    samples: int
    errors: NDArray[np.float64]  # relative L2 error of each validation sample


@dataclass(frozen=True)
class Times:
    """What the model costs."""

    network: float  # seconds per sample of the network before its export, on one thread
    training: float  # seconds of the training
    solver: float | None  # seconds per sample of the user's solver, where the problem file says it

    @property
    def speedup(self) -> float | None:
        """How many samples the network computes in the solver's time of one."""
        return None if self.solver is None else self.solver / self.network

    @property
    def repaid(self) -> float | None:
        """The number of samples after which the training time is saved; None where the solver is faster or unknown."""
        if self.solver is None or self.solver <= self.network:
            return None
        return self.training / (self.solver - self.network)


class NextStep(StrEnum):
    """What is changed next."""

    DATA = "more data"
    TRAINING = "a longer training"
    NETWORK = "a larger network"
    TRAINING_OR_NETWORK = "a longer training or a larger network (trainings on parts of the data tell which)"
    NONE = "none of more data, a longer training and a larger network"


def ratio(one: float, other: float) -> float:
    """Divide errors, of which both may be zero."""
    return one / other if other else 1.0 if one == other else math.inf


@dataclass(frozen=True)
class Evidence:
    """What the decision is made from; test samples take no part in it."""

    training: float  # mean error of the trained network on training samples
    validation: float  # its mean error on validation samples
    curve: Sequence[float]  # mean error on validation samples after every epoch
    # Mean error on validation samples after a training on half of the data; None where there was none.
    half: float | None = None

    @property
    def gap(self) -> float:
        """The validation error in units of the training error."""
        return ratio(self.validation, self.training)

    @property
    def doubling(self) -> float | None:
        """The relative decrease of the validation error from half of the data, and of the steps, to all of them."""
        return None if self.half is None else 1 - ratio(self.validation, self.half)

    @property
    def fall(self) -> float:
        """The relative decrease of the validation error over the last quarter of the epochs."""
        return 1 - ratio(self.curve[-1], self.curve[-1 - len(self.curve) // 4])


@dataclass(frozen=True)
class Report:
    """Everything that the report says."""

    run: str  # name of the run
    folder: Path  # of the run
    data: Path  # the folder of the samples
    source: Path | None  # the problem file; None where it is not known
    preset: str
    problem: ProblemFile
    description: Description  # what the checkpoint says of it
    sides: tuple[int, ...]  # points per axis
    counts: tuple[int, int, int]  # training, validation and test samples
    parameters: int  # number of the network's parameters
    tensors: tuple[tuple[str, ...], ...]  # the summary of the data, see the function of this name
    remarks: tuple[str, ...]  # what is odd about the data
    epochs: tuple[dict[str, float], ...]  # rows of the log
    # Errors of each sample by measure, by `training` (as many as in validation), `validation` and `test`.
    measures: Mapping[str, Mapping[str, Errors]]
    baselines: Mapping[str, float]  # the mean errors on test samples of what needs no network, by its name
    drawn: tuple[PredictedSample, ...]  # the best, the median and the worst test sample
    scalars: tuple[Parity, ...]  # the outputs that are numbers, of all test samples
    amounts: tuple[Amount, ...]  # trainings on parts of the data
    used: int  # training samples of the run itself
    times: Times  # what the model costs
    processor: str  # where the time of the network was measured
    # The card's figures of the error estimates of test samples; None where there are none.
    calibration: Mapping[str, Any] | None
    frames: int | None = None  # frames of the measured rollouts; None where the samples are no trajectories
    # Measures of every frame of the test trajectories; empty where the samples are no trajectories.
    rollout: tuple[Mapping[str, float], ...] = ()
    # What the card says of the race that the network has won; None where there was none.
    race: Mapping[str, Any] | None = None

    @property
    def errors(self) -> dict[str, Errors]:
        """The relative L2 error of each sample, by split."""
        return {split: errors["relative_l2"] for split, errors in self.measures.items()}

    @property
    def verdict(self) -> Verdict:
        """What the model is worth."""
        advice = advise(self.evidence)
        longer = advice in {NextStep.TRAINING, NextStep.TRAINING_OR_NETWORK, NextStep.NETWORK}
        error = self.figures["test"]["relative_l2"]  # in the digits of the tables below it
        return Verdict(error, self.baselines, self.preset, advice.value, longer)

    @property
    def figures(self) -> dict[str, dict[str, float]]:
        """Mean, standard error, median, 95th percentile and worst error, and the means of others, by split."""
        return {split: summary(errors) for split, errors in self.measures.items()}

    @property
    def by_amount(self) -> list[tuple[int, dict[str, float]]]:
        """Figures on validation samples by the number of training samples; nothing where that was not varied."""
        if not self.amounts:
            return []
        parts = [(one.samples, summary({"relative_l2": one.errors})) for one in self.amounts]
        return [*parts, (self.used, self.figures["validation"])]

    @property
    def evidence(self) -> Evidence:
        """What the next thing to do is decided from."""
        half = next((amount for amount in self.amounts if amount.share == 0.5), None)
        return Evidence(
            training=float(self.errors["training"].mean()),
            validation=float(self.errors["validation"].mean()),
            curve=[row["relative_l2"] for row in self.epochs],
            half=None if half is None else float(half.errors.mean()),
        )


def load(run: Path) -> Checkpoint:
    """Load the checkpoint of a run; see `collect` for the errors."""
    found = checkpoint.load(run)
    if found.recipe.problem_file is None:
        raise ReportError(
            f"{run}: expected a run on data of a problem file but found one of {found.recipe.name}: "
            f"`{typed('evaluate', run)}` measures it"
        )
    if not run_folder.read_log(run / "metrics.csv"):
        raise ReportError(
            f"{run / 'metrics.csv'}: expected the log of the training but there is none: name the folder of the run, "
            f"such as runs/{found.recipe.name}"
        )
    return found


def collect(run: Path, data: Path, amounts: Sequence[Amount] = (), source: Path | None = None) -> Report:
    """Measure a run for its report.

    Args:
        run: The folder of the run.
        data: The folder of the samples.
        amounts: Trainings on parts of the data.
        source: The problem file, for the commands that the report names.

    Raises:
        CheckpointError: The folder is no checkpoint.
        ReportError: It was not trained on a user's data, or has no log.
        RecipeError: The prepared samples are missing.
    """
    found = load(run)
    work, rows = OperatorWorkload(found.recipe, data), run_folder.read_log(run / "metrics.csv")
    work.prepare()  # an earlier release may have trained it with settings that `check` refuses
    problem, errors = found.recipe.file, errors_by_split(found.operator, work)
    batch = work.batch(work.samples.split("test")[:1])
    with torch.inference_mode():
        network = measures.median_seconds(lambda: work.predictions(found.operator, batch), TIMED)
    return Report(
        run=run.name,
        folder=run,
        data=data,
        source=source,
        preset=found.recipe.preset,
        problem=problem,
        description=found.problem.description,
        sides=work.samples.sides,
        counts=work.samples.counts,
        parameters=found.card.checkpoint["parameters"],
        tensors=tuple(tensors(work)),
        remarks=tuple(found.card.training["remarks"]),
        epochs=tuple(
            {key: float(row[work.metric.name if key == "relative_l2" else key]) for key in LOGGED} for row in rows
        ),
        measures=errors,
        baselines={name: float(each.mean()) for name, each in baselines(work).items()},
        drawn=tuple(drawn(found.operator, work, errors["test"]["relative_l2"])),
        scalars=tuple(parities(found.operator, work)),
        amounts=tuple(amounts),
        used=len(work.rows),
        times=Times(network, found.card.training["seconds"], problem.solver_seconds),
        processor=measures.processor(),
        calibration=next(iter((found.card.calibration or {}).get("test", ())), None),
        frames=found.card.training.get("horizon"),
        rollout=found.card.rollout,
        race=found.card.race,
    )


def errors_by_split(network: Operator, work: OperatorWorkload) -> dict[str, dict[str, Errors]]:
    """Measure the network on validation and test samples, and on as many training samples as validation has."""
    rows = work.rows
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), work.samples.counts[1])).astype(int))
    batches = (work.batch(part) for part in np.array_split(rows[chosen], -(-len(chosen) // min(16, work.at_once))))
    return {
        "training": work.measured(network, batches),
        "validation": work.measured(network, work.batches("validation")),
        "test": work.measured(network, work.batches("test")),
    }


@torch.inference_mode()
def drawn(network: Operator, work: OperatorWorkload, errors: Errors) -> list[PredictedSample]:
    """Return the best, the median and the worst of all test samples with their predictions."""
    first, problem = work.samples.split("test").start, work.file
    names = problem.argument_names
    found = []
    for rank, position in pictures.ranks(errors).items():
        number = first + position
        batch = work.batch(range(number, number + 1))
        values = {name: shown(work, name, one[0]).numpy() for name, one in zip(names, batch.inputs, strict=False)}
        truth, predicted = (
            {name: shown(work, name, one[0]).numpy() for name, one in zip(problem.output_names, some, strict=True)}
            for some in (batch.outputs, work.predictions(network, batch))
        )
        numbers = {one.name: values.pop(one.name) for one in problem.parameters}
        parameters: dict[str, float] = {}
        for one in (one for one in problem.parameters if one.name not in problem.timed):
            parts = [f"{one.name}.{part}" for part in one.components] or [one.name]
            parameters |= dict(zip(parts, map(float, numbers[one.name].reshape(-1)), strict=True))
        for scalar in problem.scalars:  # which are drawn for all samples together
            del truth[scalar.name], predicted[scalar.name]
        if problem.mask is not None:
            inside = values[INSIDE] == 1
            blank = ({name: np.where(inside, one, np.nan) for name, one in some.items()} for some in (truth, predicted))
            values = {name: one if name == INSIDE else np.where(inside, one, np.nan) for name, one in values.items()}
            truth, predicted = blank
        found.append(PredictedSample(rank, number, float(errors[position]), values, parameters, truth, predicted))
    return found


def shown(work: OperatorWorkload, name: str, values: Tensor) -> Tensor:
    """Return the part of a sample that is drawn: of what changes in time the last frame, or all on a line."""
    if name in work.file.timed:
        return values if len(work.file.axes) == 1 and not work.file.scattered else values[-1]
    if name in work.file.output_names:
        return values
    return values[-1] if name in work.file.states and work.history > 1 else values


def tensors(work: OperatorWorkload) -> list[tuple[str, ...]]:
    """Summarise the data in a row per tensor: name, role, shape, units, least, greatest, mean and deviation."""
    samples, problem = work.samples, work.file
    roles = {"input": problem.inputs, "parameter": problem.parameters, "output": problem.outputs}
    return [
        (
            one.name,
            role,
            " x ".join(map(str, samples.file[one.name].shape[1:])) or "number",
            one.units,
            *(f"{samples.statistic(one.name, key):.4g}" for key in ("minimum", "maximum", "mean", "deviation")),
        )
        for role, those in roles.items()
        for one in those
        if one.name in samples.file  # the first frames of trajectories are those of the outputs
    ]


def shares(recipe: Recipe) -> tuple[float, ...]:
    """Return the parts of the data that are trained on beside a run on all of them."""
    return SHARES if recipe.file.time is None else TRAJECTORY_SHARES


def expected_seconds(recipe: Recipe, metrics: Path) -> float:
    """Return how long the trainings on all shares take, from the log of the run."""
    return sum(shares(recipe)) * run_folder.training_seconds(metrics)


def train_on_share(recipe: Recipe, share: float, run: Path, data: Path, workers: int) -> Amount:
    """Train once more on a share of the data; a finished training is not repeated, an interrupted one continues."""
    folder = run / FOLDER / f"{share:g}"
    fit_, time = recipe.fit, recipe.fit.seconds
    less = {"seconds": time and share * time, "least": max(1, round(share * fit_.least))}  # as many epochs as the run
    settings = fit_.model_copy(update={"share": share * fit_.share, **less})
    part = recipe.model_copy(update={"fit": settings})
    work = OperatorWorkload(part, data)
    document = json.loads((folder / RESULT).read_text()) if (folder / RESULT).is_file() else {}
    if not document or from_document(document["recipe"]) != part:
        part_run = RunFolder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        state, task = part_run.open(part, resume=part_run.began() == part), work.task(workers=workers)
        fit(task, work, part_run, state)
        part_run.close()
        found = work.measured(task.network.eval(), work.batches("validation"), whole=False)
        errors = found["relative_l2"].tolist()
        document = {"recipe": part.model_dump(mode="json"), "errors": errors}
        write_json(folder / RESULT, document)
    return Amount(share, len(work.rows), np.asarray(document["errors"]))


# The next thing to do for a smaller error: more data, a longer training or a larger network


def advise(evidence: Evidence) -> NextStep:
    """Decide what would improve the model next.

    Where the validation error is at least `GAP` times the training error, the network knows its samples too well:

    1. More data, if the last doubling of the data decreased the validation error by at least `GAIN`, or was not tried.
    2. Otherwise none of the three: the samples may hold noise, or the outputs may depend on what is no input.

    Where it is not, the number of different samples does not limit the network:

    3. A longer training, if the error still decreases with the number of steps: by at least `GAIN` over the last
       quarter of the epochs, or from the training on half of the data, which has the same epochs and half of the steps.
    4. Otherwise a larger network. Where no training on half of the data was tried, it may be a longer training as well:
       a learning curve is flat at its end because the learning rate goes to zero.
    """
    if evidence.gap >= GAP:
        return NextStep.DATA if evidence.doubling is None or evidence.doubling >= GAIN else NextStep.NONE
    if max(evidence.fall, evidence.doubling or 0.0) >= GAIN:
        return NextStep.TRAINING
    return NextStep.TRAINING_OR_NETWORK if evidence.doubling is None else NextStep.NETWORK


def sentence(evidence: Evidence) -> str:
    """Say what to do next and why."""
    facts = [
        f"The validation error is {evidence.gap:.3g} times the training error",
        f"{changed(evidence.fall)} over the last quarter of the epochs",
    ]
    if evidence.doubling is not None:
        facts.append(f"{changed(evidence.doubling)} from half of the data to all of them")
    return f"Next: {advise(evidence)}. {'; it '.join(facts)}."


def changed(decrease: float) -> str:
    """Say by how much an error changed."""
    return f"{'fell' if decrease >= 0 else 'rose'} by {abs(100 * decrease):.2g} %"
