"""From the name that a command gets to the recipe of a run and its folder: problem, earlier model, and candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schema.parts import Parameter, Quantity
from schema.problem import Description
from training import checkpoint
from training.data import generate
from training.data.dataset import SampleFile
from training.data.prepare import prepare, prepare_coarse
from training.files import digest, parse
from training.fit.presets import AFTER_UNET, FEWER, PRESETS, fitting, preset_of, recipe
from training.fit.run_folder import RunFolder
from training.fit.seen import check_kept_apart
from training.operators.field import FieldConfig
from training.operators.points import PointsConfig
from training.operators.trajectory import TrajectoryConfig
from training.problems.problem import Trajectories, trajectories_of
from training.problems.problem_file import ProblemFile, find_problem_file
from training.recipe import BaseRecipe, Candidate, Coarse, Recipe, RecipeError, Start, changed
from training.recipes import find, read

FOLDERS = (Path("runs"), Path("checkpoints"))  # where an earlier model is looked for, beside the problem file


def begin(
    name: str,
    preset: str,
    overrides: Sequence[str],
    out: Path | None,
    data: Path,
    *,
    resume: bool = False,
    operator: str | None = None,
) -> tuple[BaseRecipe, Path]:
    """Return the recipe of a run and its folder; see `training.commands.fit` for the arguments."""
    own = problem_run(name, preset, overrides, data, operator)
    if own is None:
        if operator is not None:
            raise RecipeError(f"{name}: a recipe names its operator; --operator is for the data of a problem file")
        made: BaseRecipe = read(find(name), [*overrides])
        return made, out or Path("runs") / made.name
    to = out or Path("runs") / own.name
    earlier = own.problem.data.finetune
    if earlier is not None and located(earlier, own.folder).resolve() == to.resolve():
        raise RecipeError(f"data.finetune: expected another folder than that of the run, {to}: --out changes that one")
    return own.resumed(RunFolder(to)) if resume else own.recipe(), to


def problem_run(
    name: str, preset: str, overrides: Sequence[str], data: Path, operator: str | None = None
) -> ProblemRun | None:
    """Return the run that a name means: on a problem file's data, or on generated trajectories; else None."""
    if (problem := find_problem_file(name)) is not None:
        return ProblemRun(problem, preset, overrides, data, operator, folder=Path(name).parent)
    model, _, size = name.rpartition("-")
    generated = trajectories_of(model)
    return (
        None if generated is None else ProblemRun(generated.file, size, overrides, data, operator, generated=generated)
    )


@dataclass(frozen=True)
class ProblemRun:
    """A run on the data of a problem file."""

    problem: ProblemFile
    preset: str  # a name of `PRESETS`
    overrides: Sequence[str]  # changes `a.b=c` of the recipe
    data: Path  # folder of the prepared samples
    operator: str | None = None  # the kind of the network, where it is another than the general one
    folder: Path = Path()  # the folder of the problem file
    generated: Trajectories | None = None  # what makes the data, where they are no files

    def __post_init__(self) -> None:
        preset_of(self.preset)  # an unknown name is an error before the data are read

    @property
    def name(self) -> str:
        """The run's name, also of its folder under `runs/`."""
        return f"{self.problem.name}-{self.preset}"

    def samples(self) -> SampleFile:
        """Check and prepare the data, or generate them."""
        if self.generated is not None:
            return SampleFile(generate.trajectories(self.generated, self.data), self.problem)
        return SampleFile(prepare(self.problem, self.folder, self.data), self.problem)

    def recipe(self) -> Recipe:
        """Check and prepare the data, and write the recipe of the preset for them.

        Raises:
            ProblemFileError: The problem file cannot be used.
            ReadError: A data file cannot be read.
            DataError: The data do not fit the problem file.
            RecipeError: A change or the operator does not fit.
        """
        adapt, operator = None if self.generated is None else self.generated.adapt, None
        if self.operator is not None:  # with the overrides of its own keys, of which some may have no default
            pairs = dict(parse(each) for each in self.overrides)
            own = {key.removeprefix("operator."): value for key, value in pairs.items() if key.startswith("operator.")}
            operator = {"kind": self.operator, **{key: value for key, value in own.items() if "." not in key}}
        samples = self.samples()
        made = recipe(samples, self.preset, adapt, operator)
        if (coarse := prepare_coarse(self.problem, self.folder, self.data, samples)) is not None:
            if not isinstance(made.operator, FieldConfig):
                raise RecipeError("data.coarse: expected the network `field`, which learns several grids")
            batch = fitting(coarse, preset_of(self.preset)).batch
            made = made.model_copy(update={"coarse": Coarse(samples=coarse.path.name, batch=batch)})
        chosen = operator is not None or any(each.startswith("operator.") for each in self.overrides)
        if self.generated is None:
            start = warm_start(self.problem, self.folder, samples)
            if chosen and start is not None:
                raise RecipeError("data.finetune: the network is that of the earlier model: expected no other one")
            made = made if chosen else with_candidates(made, samples, start)
        return changed(made, self.overrides)

    def resumed(self, run: RunFolder) -> Recipe:
        """Return the recipe of the run in a folder on the same samples, whose epochs were chosen once, or a new one."""
        prepared, found = self.samples(), None
        coarse = prepare_coarse(self.problem, self.folder, self.data, prepared)
        if run.recipe.is_file():
            found = run.began()
        elif (run.path / checkpoint.CONFIG).is_file():
            found = checkpoint.read_config(run.path).recipe
        wanted = (prepared.problem, prepared.path.name, self.preset)
        if not isinstance(found, Recipe) or (found.problem, found.samples, found.preset) != wanted:
            return self.recipe()
        if coarse is not None and found.coarse is not None and found.coarse.samples != coarse.path.name:
            return self.recipe()
        if self.operator not in {None, found.operator.model_dump().get("kind")}:
            return self.recipe()
        return changed(found, self.overrides)


# The earlier model of the user's that a training starts from, `data.finetune` in the problem file


def located(name: str, folder: Path) -> Path:
    """Return the checkpoint folder that a problem file in `folder` means.

    Raises:
        RecipeError: There is none.
    """
    tried = [each / name for each in (folder, *FOLDERS)]
    for path in tried:
        if (path / checkpoint.CONFIG).is_file():
            return path
    raise RecipeError(
        f"data.finetune: expected the folder of a trained model, or its name in runs or checkpoints, but got {name!r}: "
        f"there is no {checkpoint.CONFIG} in {', '.join(map(str, tried))}"
    )


def warm_start(problem: ProblemFile, folder: Path, samples: SampleFile) -> Start | None:
    """Return the earlier model that a problem file in `folder` names for new samples, None where it names none.

    Raises:
        CheckpointError: The earlier model cannot be read.
        RecipeError: There is none, it has other fields, parameters or boundaries, or has seen samples that are kept
            apart.
    """
    if problem.data.finetune is None:
        return None
    path = located(problem.data.finetune, folder)
    config = checkpoint.read_config(path)
    if config.recipe.problem_file is None or not isinstance(config.problem, Description):
        raise RecipeError(f"data.finetune: expected a model of a problem file in {path} but found {config.recipe.name}")
    expected, found = facts(config.problem), facts(samples.described)
    for what in expected | found:
        if expected.get(what) != found.get(what):
            raise RecipeError(
                f"data.finetune: {what}: expected {expected.get(what, 'none')}, as the model in {path} has, "
                f"but found {found.get(what, 'none')}"
            )
    check_kept_apart(path, samples, "data.finetune")
    return Start(folder=str(path), digest=digest(path), operator=config.recipe.operator)


def facts(problem: Description) -> dict[str, str]:
    """Return what two problems have to share for one network to learn both, by the names of problem files."""
    parts = {"inputs": problem.inputs, "parameters": problem.parameters, "outputs": problem.outputs}
    found = {part: ", ".join(each.name for each in tensors) or "none" for part, tensors in parts.items()}
    for part, fields in (("inputs", problem.inputs), ("outputs", problem.outputs)):
        for one in fields:
            kind = ("positive" if one.positive else "of any sign") + (", a scalar" if one.scalar else "")
            kind += f", {integral}" if (integral := one.integral) else ""
            found[f"{part}.{one.name}"] = f"{shared(one)}, {kind}"
    for number in problem.parameters:
        sign = "a positive minimum" if (number.minimum or 0) > 0 else "no positive minimum"  # else it has no logarithm
        found[f"parameters.{number.name}"] = f"{shared(number)}, {sign}"
    for axis in problem.axes:
        found[f"axes.{axis.name}"] = f"boundary {axis.boundary!r}, points {axis.points!r}"
    found["axes"] = ", ".join(axis.name for axis in problem.axes)
    if problem.frames is not None:
        found["time"] = f"step {problem.frames.step:g}, history {problem.frames.history}"
    return found


def shared(one: Quantity | Parameter) -> str:
    """Return what two fields, or two numbers, have to share: units, components, and the frame that a step sees."""
    frame = f", per_frame {one.per_frame!r}" if one.per_frame else ""
    return f"units {one.units!r}, components {', '.join(one.components) or 'none'}{frame}"


# The race: which networks are compared at the start of a training


LEAST_SAMPLES = 8  # for validation: fewer do not tell one network from another


HANDICAP = 1.6
"""Of spectral layers alone: they learn faster than together with attention or a U-Net, and end with larger errors."""


LINEAR = 1.2
"""By which the error of linear layers may be larger than that of others at first: they end far below."""


RATE = 1e-3  # the highest learning rate after a warm start; 2e-3 and 5e-4 are as good in `benchmarks.transfer`


WARM_START = "the earlier model"  # its candidate


def with_candidates(recipe: Recipe, samples: SampleFile, start: Start | None = None) -> Recipe:
    """Return a preset's recipe with the candidates of its race, if there is to be one.

    An earlier model `start` is one of them, or what the training starts from where there is no race. Where trainings
    begin with coarse samples, another one has the fine ones alone.
    """
    if not PRESETS[recipe.preset].race or samples.counts[1] < LEAST_SAMPLES:
        return recipe if start is None else warm_started(recipe, start)
    found = candidates(recipe.operator, recipe.file.inputs)
    if recipe.coarse is not None:
        first = found[0]
        found = (*found, first.model_copy(update={"name": f"{first.name}, fine samples alone", "fine": True}))
    if start is not None:
        found = (*found, Candidate(name=WARM_START, start=start))
    return recipe.model_copy(update={"race": found})


def warm_started(recipe: Recipe, start: Start) -> Recipe:
    """Return a recipe with the network of an earlier model, a lower learning rate, and no coarse samples.

    The earlier model has learned other samples of the same fields: another range of a parameter, other materials,
    another grid. Its network is taken as it is, with its means and deviations, so that at first it predicts what it
    did.
    """
    fit = recipe.fit.model_copy(update={"learning_rate": RATE})
    return recipe.model_copy(update={"operator": start.operator, "start": start, "coarse": None, "fit": fit})


def candidates(config: Any, inputs: Sequence[Quantity]) -> tuple[Candidate, ...]:
    """Return the networks that are compared where the preset has chosen one for some input fields.

    On points, as on lines and planes, half of the channels learn faster at first, and were never better in the end:
    docs/geometry.md.
    """
    if isinstance(config, TrajectoryConfig):
        return tuple(
            one.model_copy(update={"operator": {f"step.{key}": value for key, value in one.operator.items()}})
            for one in candidates(config.step, inputs)
        )
    if isinstance(config, PointsConfig):
        double = {"blocks": 2 * config.blocks}
        return tuple(sized({"U-Net": {}, "U-Net of twice the layers": double}, "channels", (config.channels,)))
    if not isinstance(config, FieldConfig):
        return ()
    if config.gated and not config.band_limited:
        return on_lines_and_planes(config, inputs)
    layers = "gated spectral layers" if config.gated else "spectral layers"
    kinds: dict[str, dict[str, Any]] = {f"U-Net and {layers}": {"layers": 0, "unet": 1}}
    kinds |= {f"attention and {layers}": {}} if config.layers else {}
    found = sized(kinds | {layers: {"layers": 0}}, "detail", (config.detail, config.detail // 2))
    alone = {"handicap": HANDICAP if config.layers else 1.0}
    return tuple(each.model_copy(update=alone) if each.name.startswith(layers) else each for each in found)


def on_lines_and_planes(config: FieldConfig, inputs: Sequence[Quantity]) -> tuple[Candidate, ...]:
    """Return gated spectral layers, fewer of them after a U-Net, and layers that are linear in inputs.

    Half of their channels learn faster at first, and were never better in the end.
    """
    after = {} if config.unet else AFTER_UNET | {"spectral": max(1, config.spectral // FEWER)}
    alone = {"unet": 0, "gate": "silu", "spectral": FEWER * config.spectral} if config.unet else {}
    kinds: list[tuple[str, dict[str, Any], float]]
    if any(config.linear):
        kinds = [("linear layers", {}, 1.0), ("U-Net and linear layers", AFTER_UNET, 1.0)]
    else:
        handicap = HANDICAP if len(config.working) > 1 else 1.0
        kinds = [("U-Net and gated spectral layers", after, 1.0), ("gated spectral layers", alone, handicap)]
        may_be_linear = {*config.output_scales} == {"linear"} and not config.scalar_components
        for sources in possible_sources(inputs) if may_be_linear else ():
            linear = {"linear": tuple(one.name in sources for one in inputs)}
            kinds.append((f"layers linear in {' and '.join(sources)}", alone | linear, 1 / LINEAR))
    return tuple(
        Candidate(name=f"{name}, {config.detail} channels", operator=changes, handicap=handicap)
        for name, changes, handicap in kinds
    )


def possible_sources(inputs: Sequence[Quantity]) -> list[tuple[str, ...]]:
    """Return which inputs an equation may be linear in: each that need not be positive, and all of them."""
    signed = tuple(one.name for one in inputs if not one.positive)
    return [(name,) for name in signed] + ([signed] if len(signed) > 1 else [])


def sized(kinds: Mapping[str, dict[str, Any]], key: str, widths: Sequence[int]) -> list[Candidate]:
    """Return every kind of network with each number of channels."""
    return [
        Candidate(name=f"{name}, {wide} channels", operator={**changes, key: wide})
        for wide in widths
        for name, changes in kinds.items()
    ]
