"""One training run: a recipe and samples in, a checkpoint out."""

from __future__ import annotations

import ctypes
import logging
import resource
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor, nn

from schema.card import CheckpointCard
from training import calibration, checkpoint
from training.calibration import Calibration
from training.data.pools import RayPool, ThisProcess, chosen
from training.files import expect_files, expect_room
from training.fit import search
from training.fit.interrupts import Interrupts
from training.fit.operator_workload import OperatorWorkload
from training.fit.processes import from_first, is_first, local_process_count, process_count
from training.fit.run_folder import (
    STATES,
    DivergenceError,
    RunError,
    RunFolder,
    RunLog,
    StateIO,
    States,
    least_state_bytes,
    progress,
    read_log,
    state_bytes,
    training_seconds,
)
from training.fit.seen import check_kept_apart
from training.fit.turns import RemoteTurns, Trainer, Turn
from training.fit.workload import Scope, Task, Workload
from training.messages import typed
from training.operators import Operator
from training.optimisation import exact
from training.problems.problem import Problem
from training.recipe import AddedRecipe, BaseRecipe, Recipe, RecipeError, added_kind

EXPECTED_WARNINGS = (
    "Checkpoint directory .* exists and is not empty",  # a resumed run writes where it wrote before
    "The dirpath has changed from",  # the winner of a race goes on in the folder of the run
    ".*does not have many workers",  # the samples are in memory: workers would only copy them
    ".*is smaller than the logging interval",  # a tiny run has few batches, and metrics are logged by epoch
    ".*isinstance.treespec, LeafSpec.. is deprecated",  # Lightning's own use of torch
)
#: Keys of a frame's estimate; `calibrated` trajectories give it.
OF_FRAME = ("error_estimate", "trajectories", "coverage", "coverage_standard_error", "calibrated")
#: By key of the calibration's row what it has of the worst frame.
WORST_FRAME = {key: key for key in ("frame", *OF_FRAME[1:4])} | {
    "mean_estimate": "error_estimate",
    "mean_error": "relative_l2",
}


def workload(recipe: BaseRecipe, data: Path, *, progress: bool = True) -> Workload[Any]:
    """Return the workload of a recipe; `data` is the folder of the samples.

    Raises:
        RecipeError: Nothing is trained by it, as by that of a closed form.
    """
    exact()  # losses and errors are of float32 on a GPU, too
    match recipe:
        case Recipe():
            return OperatorWorkload(recipe, data, progress=progress)
        case AddedRecipe():
            made: Workload[Any] = added_kind(recipe.kind).workload(recipe, data, progress=progress)
            return made
    raise RecipeError(f"{recipe.name}: expected a recipe that trains but found that of a {recipe.kind}")


def train(
    recipe: BaseRecipe, folder: Path, data: Path, *, resume: bool = False, init: Path | None = None, workers: int = 0
) -> Path:
    """Train as the recipe says and write the checkpoint, then measure it and complete its card.

    Args:
        recipe: What is trained, on what and how.
        folder: Where the run lives.
        data: Folder of the samples; what is missing is generated or fetched.
        resume: Go on from the last finished epoch of an interrupted run in `folder`, if there is one.
        init: A checkpoint folder to take the initial weights from.
        workers: Processes that read batches beside the training process.

    Returns:
        The checkpoint folder, which is `folder`.

    Raises:
        CheckpointError: `init` does not fit the recipe.
        CorpusError: There are no samples.
        RecipeError: The recipe cannot be trained, `resume` would go on with another recipe than it began, or the model
            in `init` has seen samples that are kept apart.
        RunError: Another training runs in `folder`, it holds what is no run, or the finished checkpoint could not be
            measured.
        UserError: A folder is not writable, a disk is full, or a quota or a limit has no room for states.
    """
    keep_freed_memory()
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # without its tips and its hardware report
    if init is not None and isinstance(recipe, Recipe):
        recipe = recipe.model_copy(update={"race": (), "start": None})  # the weights are those of one network
    work, run = workload(recipe, data), RunFolder(folder)
    if is_first():
        run.expect_own()
        if resume:
            run.expect_recipe(recipe)
    work.check()  # what can be checked before samples are generated
    if init is not None and isinstance(work, OperatorWorkload) and work.drawn is None:
        check_kept_apart(init, work.samples, "--init")
    parameters = work.parameters
    expect_room(run.path, state_bytes(parameters * (1 + (len(recipe.race) if isinstance(recipe, Recipe) else 0))))
    expect_room(work.data, work.sample_bytes)
    with run.alone():
        task = work.task(init, workers)  # built and checked before an earlier run in the folder is removed
        check_shares(task.batch_sampler.batch, recipe)
        if is_first() and not (resume and run.recipe.exists()):
            # Two whole states and the one that is being written, or an epoch is in vain.
            expect_files(run.path, STATES - 1, least_state_bytes(parameters, work.recipe.fit))
        state = from_first(lambda: run.open(recipe, resume=resume))
        race: dict[str, Any] = {}
        if isinstance(recipe, Recipe) and recipe.race:
            recipe, start, race = run_race(recipe, run, data, workers)
            state, work = state or start, workload(recipe, data)
            task = work.task(init, workers)
        fit(task, work, run, state)
        if is_first():
            finish(work, task.network.eval(), run, race)
    return folder


def run_race(recipe: Recipe, run: RunFolder, data: Path, workers: int) -> tuple[Recipe, Path, dict[str, Any]]:
    """Run the race of a recipe, or what is left of it: the winner's recipe and state, and what the card says of it.

    The run's log begins with that of the winner.
    """

    def find_symmetries(entry: Recipe, state: Path) -> tuple[str, ...]:
        work = OperatorWorkload(entry, data)
        task = work.task()
        task.load_state_dict(torch.load(state, map_location="cpu", weights_only=True)["state_dict"])
        return search.supported(work, task, event.symmetries)

    every = OperatorWorkload(recipe, data)
    samples, naive = every.samples, from_first(lambda: search.naive_error(every))
    directed = any(
        one.components or samples.statistic(one.name, "minimum") < 0 < samples.statistic(one.name, "maximum")
        for one in recipe.file.parameters
    )
    cluster = process_count() == 1 and isinstance(found := chosen(ThisProcess()), RayPool)
    pool = RemoteTurns(found) if cluster else ThisProcess()
    turns = Trainer(partial(advance, workers), data)
    event = search.Race(recipe, run, samples.sides, turns, find_symmetries, pool, naive=naive, directed=directed)
    winner = event.winner()
    if is_first() and not run.metrics.exists():
        shutil.copyfile(event.run_of(event.found["winner"]).metrics, run.metrics)
    return winner, event.newest(event.found["winner"]), event.account()


def advance(workers: int, turn: Turn, data: Path, init: Path | None) -> float:
    """Train a candidate of a race for a turn, and return its error on validation samples."""
    work, run = OperatorWorkload(turn.recipe, data, progress=False), turn.run
    run.path.mkdir(parents=True, exist_ok=True)
    state = from_first(lambda: run.open(turn.recipe, resume=True))
    task = work.task(init, workers)
    task.budget.until = turn.until
    try:
        fit(task, work, run, state, keep=False)
    except DivergenceError:
        if process_count() > 1:  # the others go on
            raise
        return search.LOST
    return search.last_error(work, run)


def check_shares(batch: int, recipe: BaseRecipe) -> None:
    """Check that the processes of the run share every batch equally.

    Raises:
        RecipeError: They cannot.
    """
    if batch % process_count():
        raise RecipeError(
            f"{recipe.name}: expected a batch that {process_count()} processes share equally but found {batch}: "
            "--set fit.batch changes it"
        )


def finish(work: Workload[Any], network: nn.Module, run: RunFolder, race: dict[str, Any]) -> None:
    """Write the checkpoint of a trained network, then measure it and complete its card.

    `race` is what the card says of the race that the network has won; empty for none.

    Raises:
        RunError: The checkpoint is saved and could not be measured.
    """
    recipe, parameters = work.recipe, sum(parameter.numel() for parameter in network.parameters())
    training = work.account() | {
        "epochs": len(read_log(run.metrics)),
        "kept": work.metric.best if recipe.fit.keep == "best" else "the last epoch",
        "seconds": round(training_seconds(run.metrics) + race.get("seconds", 0.0), 1),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "threads": torch.get_num_threads(),
        **({"accelerator": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
        "preset": recipe.preset,
        "seed": recipe.seed,
    }
    card = CheckpointCard(training=training, checkpoint={"parameters": parameters}, missing=work.figures)
    card = card.measured({"race": race}) if race else card
    run.report.unlink(missing_ok=True)  # of other weights
    checkpoint.save(run.path, network, recipe, work.problem, card)
    run.state.mkdir(exist_ok=True)
    run.saved.touch()
    try:
        figures = work.measure(network, work.problem, Scope())
        made, of_calibration = calibrate(work, network, figures.get("rollout", ()))
        complete(work, run, card, figures | of_calibration, made)
    except Exception as error:
        raise RunError(
            f"{run.path}: the checkpoint is saved but measuring it failed ({type(error).__name__}: {error}); "
            f"`{typed('evaluate', run.path, '--write')}` completes its card"
        ) from error


def calibrate(
    work: Workload[Any], network: nn.Module, rollout: Sequence[Mapping[str, Any]] = ()
) -> tuple[Calibration | None, dict[str, Any]]:
    """Return the calibration of a trained network, and what its card says; `rollout` are its rows of frames.

    Nothing is written, so that a checkpoint gets both or none.
    """
    samples = work.calibration_samples(network)
    if samples is None or not isinstance(network, Operator) or not isinstance(work.problem, Problem):
        return None, {}
    described = replace(work.problem, description=work.problem.description_for(network.optional)).of_samples.description
    found = calibration.calibrated(described, network, samples)
    if found is None:
        return None, {}
    figures = calibration.account(found, network, samples)
    if covered := [row for row in rollout if "coverage" in row]:  # the row of the states says how the worst frame does
        worst = min(covered, key=lambda row: row["coverage"])
        frame = {name: worst[key] for name, key in WORST_FRAME.items()}
        figures["test"] = [row | frame for row in figures["test"]]
        figures["errors_of_a_case"] = worst["calibrated"]
        figures["guarantee"] = calibration.guarantee(worst["calibrated"])
    return found, {"calibration": figures}


def with_known_estimates(measured: Mapping[str, Any], card: CheckpointCard) -> dict[str, Any]:
    """Return a card's rows of frames as they were measured anew, with the error estimates of its calibration."""
    if "rollout" not in measured:
        return {}
    pairs = zip(measured["rollout"], card.rollout or measured["rollout"], strict=True)
    return {"rollout": [new | {key: old[key] for key in OF_FRAME if key in old} for new, old in pairs]}


def fit(task: Task, work: Workload[Any], run: RunFolder, state: Path | None, *, keep: bool = True) -> None:
    """Train, from a saved state if there is one, and leave the trained network that the recipe keeps in the task.

    Without `keep` the training goes on later, and the task has the last weights.

    Raises:
        KeyboardInterrupt: The user has stopped the training, which Lightning makes a SystemExit.
    """
    with warnings.catch_warnings():
        for message in EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message)
        try:
            trainer(work, run).fit(task, ckpt_path=state, weights_only=True)
        except SystemExit as error:
            raise KeyboardInterrupt from error
    if not keep:
        return
    # Also the mean of the last weights is taken from its state: a complete training that is resumed has no step, and
    # Lightning leaves the weights of the last step in its network then.
    last = run.newest() if getattr(work.recipe.fit, "average", 0.0) else None
    if (kept := run.best if work.recipe.fit.keep == "best" else last) is not None:
        task.load_state_dict(torch.load(kept, map_location="cpu", weights_only=True)["state_dict"])
    work.fit_trained(task.network.eval())


def trainer(work: Workload[Any], run: RunFolder) -> pl.Trainer:
    """Return Lightning's trainer, with the log, the saved states and the display of progress."""
    config, fields = work.recipe.fit, isinstance(work.recipe, Recipe)
    average, race_budget = (config.average, config.race_budget) if fields else (0.0, 0.0)
    # Every epoch's state, of which the two newest stay; and the best epoch's where its weights are kept. It is whole,
    # since Lightning puts the mean of the weights into whole states alone.
    states = partial(States, run.state, enable_version_counter=False)  # one that could not be read is replaced
    newest = states("{epoch}", monitor="epoch", mode="max", save_top_k=2, save_on_train_epoch_end=True)
    best = states(run.best.stem, monitor=work.metric.name, mode=work.metric.mode)
    return pl.Trainer(
        max_epochs=-1 if race_budget else config.epochs,  # turns of a race end within epochs
        gradient_clip_val=config.clip,
        reload_dataloaders_every_n_epochs=1,
        num_sanity_val_steps=0,
        callbacks=[
            # The exponential mean of the weights is measured and saved instead of them: the noise of steps cancels.
            *([WeightAveraging(multi_avg_fn=partial(averaged, decay=average))] if average else []),
            # The best first: a state that is saved before it has chosen would forget its choice when it is resumed.
            *([best, newest] if config.keep == "best" else [newest]),
            *([RunLog(run.metrics, work.metric.name)] if is_first() else []),
            *([progress(run.metrics)] if is_first() and work.progress else []),
            Interrupts(),
        ],
        plugins=[StateIO()],
        logger=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        accelerator="auto",
        devices=local_process_count(),
        num_nodes=process_count() // local_process_count(),
        strategy="ddp" if process_count() > 1 else "auto",
        use_distributed_sampler=False,  # every process takes its part of each batch
    )


def averaged(means: list[Tensor], weights: list[Tensor], steps: Tensor, decay: float) -> None:
    """Bring exponential means of weights of one type up to a step more.

    Early on they forget faster, so that they are means over the last tenth of the steps: the first weights would stay
    in them for 1 / (1 - decay) steps otherwise, which is longer than a turn of a race.
    """
    done = float(steps)
    if means[0].is_floating_point() or means[0].is_complex():
        torch._foreach_lerp_(means, weights, 1 - min(decay, (1 + done) / (10 + done)))
    else:  # buffers of indices, say
        torch._foreach_copy_(means, weights)


def complete(
    work: Workload[Any], run: RunFolder, card: CheckpointCard, figures: Mapping[str, Any], made: Calibration | None
) -> None:
    """Write examples, a calibration that was made, and figures of a checkpoint; remove what a resumed run would need.

    A later training that was stopped in the folder keeps its states.
    """
    checkpoint.write_examples(run.path, work.examples())
    if made is not None:
        calibration.save(run.path, made)
    checkpoint.write_card(run.path, card.measured(figures))
    if not run.unfinished:
        run.close()


def keep_freed_memory() -> None:
    """Keep freed memory in the process, up to two gigabytes; without glibc nothing happens.

    Every step of a training, and every batch that is measured, allocates the same tensors again. By default the library
    returns large ones to the kernel when they are freed, and the kernel clears and maps each page anew.
    """
    trim_threshold, mmap_threshold, most = -1, -3, 2**31 - 1  # of glibc's malloc.h
    try:
        tune = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    tune(mmap_threshold, most)
    tune(trim_threshold, most)
