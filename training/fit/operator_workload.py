"""Training of operators on samples: a user's fields and trajectories, and those that samplers of ours make.

What the batches hold is in `training.fit.batches`; here are the network, its loss, its errors and the card.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.calibration import FEWEST_FITTED, CalibrationSamples, affordable, calibration_samples
from training.checkpoint import MOST_EXAMPLES, Tensors
from training.data import generate
from training.data.dataset import SampleFile, spread
from training.data.prepare import prepare
from training.evaluation import measures, rows
from training.evaluation.drawn import CALIBRATION_SEED
from training.evaluation.measures import LOST, Measures, estimates, parities, processor
from training.fit.batches import STATISTICS_SAMPLES, Batches, check_settings
from training.fit.initial import expect_unchanged
from training.fit.seen import check_all_new, check_new
from training.fit.workload import Metric, Scope, ScopeError, Task
from training.losses import LOSSES, Batch
from training.losses.relative import scalar_errors, scalar_squares
from training.metrics import METRICS, Grid, measured
from training.metrics.fields import relative_l2, weighed
from training.operators import Operator, build
from training.problems.problem import Conditions, Problem, trajectories_of
from training.problems.sections import INSIDE, DataSection
from training.recipe import Recipe, RecipeError

EXAMPLE_BYTES = 2**23  # of all test samples in a checkpoint: longer trajectories are cut
TINY = 1e-30  # the least mean square of errors in deviations, which keeps the root's slope finite
RENEWED = {"validation": 0.4, "test": 0.3}  # shares of new samples that calibrate and check, the rest is fitted
ROLLOUTS = ("rollout", "correlation_time", "spectrum")


class OperatorWorkload(Batches):
    """A recipe of an operator: on samples of a problem file, which were checked before, or of a built-in problem."""

    def __init__(self, recipe: Recipe, data: Path, *, progress: bool = True) -> None:
        super().__init__(recipe, data, progress=progress)
        if self.is_trajectory:
            self.metric = Metric("rollout_l2", "min", "the epoch of the least rollout error on the validation set")
            has_waves = not self.file.scattered and self.file.mask is None
            rollouts = ROLLOUTS if has_waves else ROLLOUTS[:-1]
            self.figures = (*type(self).figures, *rollouts)
        elif self.file.scalars:
            self.figures = (*type(self).figures, "scalars")

    def check(self) -> None:
        """Refuse settings that the problem cannot have, and samples that are not there, or none to validate with."""
        check_settings(self.recipe, self.file)
        if self.drawn is None:
            self.prepare()
        else:
            self.drawn.check()

    def task(self, init: Path | None = None, workers: int = 0) -> Task:
        """Build what is trained; without `init` its weights are those of the earlier model that the recipe names.

        Raises:
            CheckpointError: They are those of another network, or of another earlier model than the recipe names.
        """
        start = self.recipe.start
        if start is None:
            return super().task(init, workers)
        folder = Path(start.folder) if init is None else init  # a copy of it, where a turn is trained elsewhere
        expect_unchanged(folder, start.digest)
        return super().task(folder, workers)

    def network(self) -> Operator:
        torch.manual_seed(self.recipe.seed)
        return build(self.recipe.operator)

    def fit_normalisers(self, network: Operator, batch: Batch | None = None) -> None:
        """Take the statistics of a batch: its arguments, then the next frame.

        By default it is `statistics_batch`, or coarse samples, which are more and have the same statistics.
        """
        if batch is None and self.coarse is not None:
            rows = spread(self.coarse.split("train"), affordable(STATISTICS_SAMPLES, self.coarse.sample_bytes))
            batch = self.as_batch(self.coarse.read(rows))
        network.fit_normalisers(*self.with_next(self.statistics_batch() if batch is None else batch))

    def fit_trained(self, network: Operator) -> None:
        """Damp the waves that a trained step makes too energetic, where its operator does that."""
        if network.fits_damping:
            network.fit_damping(*self.with_next(self.statistics_batch()))

    def with_next(self, batch: Batch) -> list[Tensor]:
        """Return the arguments of a batch and its outputs, of trajectories the next frame."""
        return [*batch.inputs, *(each[:, 0] if self.is_trajectory else each for each in batch.outputs)]

    # Predictions and their errors

    def predictions(self, network: Any, batch: Batch) -> list[Tensor]:
        """Return what a network predicts, in the form of the outputs."""
        if self.is_trajectory:
            return [*network.rollout(batch.inputs, batch.outputs[0].shape[1])]
        found = network(*batch.inputs)
        return [found] if isinstance(found, Tensor) else list(found)

    def frames_apart(self, found: Sequence[Tensor], batch: Batch) -> tuple[list[Tensor], Batch]:
        """Return predictions and truth with every frame of trajectories as a sample of its own."""
        if not self.is_trajectory:
            return [*found], batch
        measure = batch.measure
        if measure is not None:
            measure = measure.repeat_interleave(batch.outputs[0].shape[1], dim=0)
        apart, truth = ([each.flatten(0, 1) for each in some] for some in (found, batch.outputs))
        return apart, batch._replace(outputs=truth, measure=measure)

    def loss(self, network: Any, batch: Batch) -> Tensor:
        """Return the operator's own loss, or the mean over the outputs: of fields the recipe's, of scalars the error.

        That of trajectories is over all steps or of the last one. The error of a scalar is in deviations, the root of
        the mean square over the batch: it is smooth, and of the size of the fields' relative errors.
        """
        fit, count = self.recipe.fit, len(self.file.output_fields)
        if batch.stored is not None:
            noise = () if batch.noise is None else (batch.noise,)
            own: Tensor | None = network.own_loss(batch.inputs[0], batch.stored, *noise)
            if own is not None:
                return own
        if self.is_trajectory and not fit.through:
            batch = self.last_step(network, batch)
        found, batch = self.frames_apart(self.predictions(network, batch), batch)
        parts = [scalar_squares(*each).mean().clamp_min(TINY).sqrt() for each in self.scalar_pairs(found, batch)]
        if count:
            fields, truth = ([weighed(each, batch.measure) for each in some[:count]] for some in (found, batch.outputs))
            of_fields = LOSSES[fit.loss].compute(fields, batch._replace(outputs=truth), fit)
            if not parts:
                return of_fields
            parts.append(count * of_fields)
        return torch.stack(parts).sum() / len(found)

    def scalar_pairs(self, found: Sequence[Tensor], batch: Batch) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return prediction, truth and deviation of every scalar.

        Where a step sees some points of a sample, an integral over these is compared with that of the true field over
        the same ones, and both are divided by their share: no error of the draw is in the difference.
        """
        if not self.file.scalars:
            return []
        count, outputs = len(self.file.output_fields), batch.outputs
        known = [each.to(outputs[-1].device) for each in self.deviations.values()]
        numbers, truth = [*found[count:]], [*outputs[count:]]
        if batch.share is not None:
            integrals = getattr(self.recipe.operator, "integrals", ())
            for at, one in enumerate(integrals, start=len(numbers) - len(integrals)):
                of_truth = one.of(outputs, batch.inputs)
                share = batch.share.reshape(-1, *(1,) * (of_truth.ndim - 1))
                numbers[at], truth[at] = numbers[at] / share, of_truth / share
        return [*zip(numbers, truth, known, strict=True)]

    @cached_property
    def deviations(self) -> dict[str, Tensor]:
        """The deviation of every scalar over the training samples, `[(component)]`; 1 where it does not vary."""
        train, found = self.samples.split("train"), {}
        for one in self.file.scalars:
            values = torch.from_numpy(self.samples.pick(one.name, train)).double()
            deviation = values.std(dim=0, correction=0)
            found[one.name] = torch.where(deviation > 0, deviation, 1).float()
        return found

    @torch.no_grad()
    def last_step(self, network: Any, batch: Batch) -> Batch:
        """Return the last step of rollouts, which starts from what the network predicts."""
        inputs = network.after(batch.inputs, batch.outputs[0].shape[1] - 1)
        return batch._replace(inputs=inputs, outputs=[each[:, -1:] for each in batch.outputs])

    def field_errors(self, found: Sequence[Tensor], batch: Batch) -> list[Tensor]:
        """Return the relative L2 errors `[batch]` of every output that is a field."""
        pairs, grid = zip(found, batch.outputs, strict=True), Grid(weights=batch.measure)
        return [relative_l2(*pair, grid) for pair in islice(pairs, len(self.file.output_fields))]

    def errors(self, found: Sequence[Tensor], truth: Sequence[Tensor], measure: Tensor | None = None) -> Tensor:
        """Return relative L2 errors, the mean over the outputs: `[batch]`, of trajectories `[batch, frame]`.

        That of a scalar is its error in deviations; `measure` is that of `Batch`.
        """
        apart, batch = self.frames_apart(found, Batch((), truth, measure=measure))
        numbers = [scalar_errors(p, u, one.to(u)) for p, u, one in self.scalar_pairs(apart, batch)]
        errors = torch.stack([*self.field_errors(apart, batch), *numbers]).mean(dim=0)
        return errors.unflatten(0, truth[0].shape[:2]) if self.is_trajectory else errors

    def score(self, found: Sequence[Tensor], batch: Batch) -> Tensor:
        """Return the metric, the mean relative L2 error, where a rollout that overflows counts as `LOST`."""
        errors = self.errors(found, batch.outputs, batch.measure)
        if self.is_trajectory:
            errors = errors.nan_to_num(nan=LOST, posinf=LOST).clamp(max=LOST)
        return errors.mean()

    def scores(self, network: Any, batch: Batch) -> tuple[dict[str, Tensor], int]:
        """Return the mean relative L2 error of a batch, and those by other measures."""
        found = self.predictions(network, batch)
        error = self.score(found, batch)
        others = {name: each.nanmean() for name, each in self.measures(found, batch, whole=False).items()}
        return others | {self.metric.name: error}, len(batch.outputs[0])

    def grid(self, batch: Batch, *, whole: bool = True) -> Grid:
        file, inputs = self.file, dict(zip(self.file.argument_names, batch.inputs, strict=False))
        if file.scattered:
            points = inputs["coordinates"].shape[1]
            valid = torch.arange(points, device=inputs["counts"].device) < inputs["counts"][:, None]
            coordinates = inputs["coordinates"] if whole else None
            return Grid(scattered=True, coordinates=coordinates, weights=batch.measure, inside=valid, inputs=inputs)
        sides = (batch.outputs[0] if file.output_fields else batch.inputs[0]).shape[-len(file.axes) :]
        inside = inputs[INSIDE] if file.mask is not None else None
        grid = replace(Grid.of(file.axes, sides), inside=inside, inputs=inputs)
        weight = self.problem.energy_weight
        if weight is None or not whole:
            return grid
        known = inputs if batch.weight is None else {weight: batch.weight}
        return replace(grid, inputs=known, energy_weight=weight, wall=Conditions(self.recipe.drawn.mesh).wall)

    def measures(self, found: Sequence[Tensor], batch: Batch, *, whole: bool = True) -> dict[str, Tensor]:
        """Compute every error measure that is defined on the grid of a batch, by name, in double precision: `[batch]`.

        Each is the mean over the outputs; of trajectories they are `[batch, frame]`, and where a rollout overflows all
        count as lost. The error of a scalar in deviations is its relative L2 error, and that of its deviation from the
        mean.
        """
        count, grid = len(self.file.output_fields), self.grid(batch, whole=whole)
        if self.is_trajectory:
            frames = batch.outputs[0].shape[:2]
            grid = grid.repeated(frames[1])
        apart, batch = self.frames_apart(found, batch)
        p, u = ([each.cpu().double() for each in some[:count]] for some in (apart, batch.outputs))
        errors = measured(METRICS.items, p, u, grid.on_cpu()) if count else {}
        if self.is_trajectory:
            lost = ~(errors["relative_l2"] <= LOST)
            held = {name: torch.where(lost, METRICS.items[name].lost, each) for name, each in errors.items()}
            return {name: each.unflatten(0, frames) for name, each in held.items()}
        if not self.file.scalars:
            return errors
        numbers = [scalar_errors(*each).cpu().double() for each in self.scalar_pairs(apart, batch)]
        of_scalars = torch.stack(numbers).sum(dim=0)
        share = {name: errors[name] * count if count else torch.zeros(()) for name in ("relative_l2", "vrmse")}
        return errors | {name: (each + of_scalars) / len(found) for name, each in share.items()}

    @torch.inference_mode()
    def measured(self, network: Any, batches: Iterable[Batch], *, whole: bool = True) -> dict[str, NDArray[np.float64]]:
        """Return the errors of every sample of some batches by measure, the mean over its frames: `[sample]`.

        Without `whole` those are left out that take long on scattered points; see `grid`.
        """
        found = [self.measures(self.predictions(network, batch), batch, whole=whole) for batch in batches]
        return {
            name: torch.cat([each[name].nanmean(dim=1) if self.is_trajectory else each[name] for each in found]).numpy()
            for name in found[0]
        }

    @cached_property
    def means(self) -> list[Tensor]:
        """The mean outputs of training samples; see `measures.mean_outputs`."""
        return measures.mean_outputs(self)

    # The card

    def compare(self, problem: Problem) -> None:
        """Compare the samples with those that a checkpoint was trained on, of which the last ones are for the test.

        Raises:
            RecipeError: They are others.
        """
        expected, found = (each.description.distribution for each in (problem, self.problem))
        if expected != found:
            raise RecipeError(f"{self.recipe.name}: expected {expected} but found {found} in {self.prepare()}")

    def account(self) -> dict[str, Any]:
        description = self.problem.description
        known = {"distribution": description.distribution, "fields": len(self.rows), "processor": processor()}
        if self.drawn is not None:
            return known | self.drawn.account(self.network().remark)
        coarse = self.coarse and {"fields": self.coarse.counts[0], "grid": [*self.coarse.sides]}
        weights = self.file.weights and f"{self.file.weights}: what every point counts in errors"
        start = self.recipe.start and self.recipe.start.model_dump(include={"folder", "digest"})
        frames = {"frames": self.samples.frames, "horizon": self.horizon} if self.is_trajectory else {}
        others = {"start": start, "coarse": coarse, "weights": weights} | frames
        return {
            **known,
            "validation_fields": self.samples.counts[1],
            "grids": [list(self.samples.sides)],
            "validity": {"untested": description.untested},
            "remarks": [line for line in str(self.samples.file.attrs["remarks"]).splitlines() if line],
            **{name: value for name, value in others.items() if value},
        }

    def measure(self, network: Any, problem: Problem, scope: Scope) -> dict[str, Any]:
        """Measure a network on the test samples; those of a problem file are one row, without a classical solver.

        Of trajectories the row is the mean up to the horizon, and every frame has figures of its own. The error
        estimates of the frames are those of the validation trajectories, which have also chosen the epoch.
        """
        if self.drawn is not None:
            cases = self.drawn.tests(problem, scope.grid, scope.noise)
            return rows.report(self, network, cases, patient=scope.patient)
        if scope.grid is not None or scope.noise is not None:
            raise ScopeError(f"{problem.name}: its data are on one grid and without noise of ours")
        self.compare(problem)
        if self.is_trajectory:
            found, held = (Measures.of(self, network, split) for split in ("test", "validation"))
            errors = found.until(self.horizon)
            frames = {"frames": self.horizon}
            step = self.file.time.step if self.file.time is not None else 1.0
            rollouts = found.summary(step, held.errors["relative_l2"])
        else:
            errors, rollouts, frames = self.measured(network, self.batches("test")), {}, {}
        numbers = {"scalars": [one.row for one in parities(network, self)]} if self.file.scalars else {}
        row = measures.row({"grid": list(self.samples.sides), **frames}, errors)
        return measures.account([row]) | numbers | rollouts

    def draw_pictures(self, network: Operator, problem: Problem, scope: Scope, folder: Path) -> None:
        """Draw best, median and worst sample at each level of noise, on the finest trained grid."""
        if self.drawn is None:
            return super().draw_pictures(network, problem, scope, folder)
        from training.evaluation import pictures  # noqa: PLC0415 -- it imports matplotlib, which takes a second

        finest = [(max(self.drawn.data.grids),) * len(self.file.axes)]
        for case in self.drawn.tests(problem, scope.grid, scope.noise, finest):
            suffix = ("-range" if case.conditions else "") + (f"-noise-{case.noise:g}" if case.noise else "")
            found = self.predicted(network, case)
            pictures.draw(case, found, folder / f"{self.recipe.model}{suffix}.png", self.recipe.model)
        return None

    @torch.inference_mode()
    def predicted(self, network: Any, batches: Iterable[Batch]) -> NDArray[np.float32]:
        """Return the first output of some batches."""
        return np.concatenate([self.predictions(network, batch)[0].numpy() for batch in batches])

    def renewed(self, samples: int, files: tuple[str, ...] = ()) -> OperatorWorkload:
        """Return the workload of new samples alone, which are divided as those of a training are.

        Samples that our samplers make are drawn. A half as many as calibrate are fitted; of trajectories as many check.

        Raises:
            ScopeError: They cannot be had, or are those of the training in part.
        """
        name = self.recipe.name
        if self.drawn is not None:
            if files:
                raise ScopeError(f"{name}: its samples are drawn, so --samples makes new ones, and not --files")
            found = copy(self)
            found.drawn = copy(self.drawn)
            found.drawn.new = samples
            return found
        generated = None if files else trajectories_of(self.file.name)
        if generated is not None:
            drawn = DataSection(files=generated.file.data.files, validation=samples, test=samples)
            problem = generated.file.model_copy(update={"data": drawn, "seed": CALIBRATION_SEED})
            draw = partial(generated.draw, count=max(FEWEST_FITTED, samples // 2) + 2 * samples)
            path = generate.trajectories(replace(generated, file=problem, draw=draw), self.data)
        elif files:
            check_all_new(self.recipe)
            named = {"files": files, "coarse": None, **RENEWED}
            file = self.recipe.file
            problem = file.model_copy(update={"data": file.data.model_copy(update=named)})
            path = prepare(problem, Path(), self.data)
        else:
            raise ScopeError(
                f"{name}: a user's samples cannot be drawn: --files names files of new ones, and without any the "
                "validation samples calibrate"
            )
        recipe = self.recipe.model_copy(update={"problem": problem, "samples": path.name, "coarse": None})
        if files:
            check_new(self.recipe, self.data, SampleFile(path, problem))
        return type(self)(recipe, self.data, progress=self.progress)

    def estimated(self, network: Any, rollout: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return a card's rows of frames with error estimates by the validation trajectories, checked with the test."""
        if self.longest < (count := len(rollout)):
            raise ScopeError(f"{self.recipe.name}: expected {count} frames behind the history but found {self.longest}")
        parts = (Measures.of(self, network, each).errors["relative_l2"][:, :count] for each in ("validation", "test"))
        return estimates(rollout, *parts)

    def calibration_samples(self, network: Any) -> CalibrationSamples:
        return calibration_samples(self, network)

    def examples(self) -> Tensors:
        if self.drawn is not None:
            return self.drawn.examples()
        rows, frames = self.samples.split("test")[:MOST_EXAMPLES], None
        if self.is_trajectory:
            fitting = EXAMPLE_BYTES * (self.samples.frames or 1) // (len(rows) * self.samples.sample_bytes)
            frames = min(self.longest, max(1, fitting))
        batch, names = self.batch(rows, frames), [one.name for one in self.file.tensors]
        inputs = batch.inputs[: len(self.file.argument_names)]
        return {name: one.numpy() for name, one in zip(names, [*inputs, *batch.outputs], strict=True)}
