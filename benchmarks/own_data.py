"""The comparison of networks on data of other people's solvers, at equal processor time.

The other networks are tuned per problem: each candidate, a learning rate with AdamW or Muon, is trained for `TUNING`
seconds, and the one of the least validation error is trained in full. Petrov is what `fit --preset quick` makes of the
problem file: its race and its validation are part of the time. Test samples are used once per final training. A
training is a process of one thread.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.harness import OWN, ResultFile, Row, children_seconds, interpreter, result_of, run
from benchmarks.loop import OURS, PETROV, Samples, settings_of_rates
from training.checkpoint import load_operator
from training.data import augment
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.fit.presets import PRESETS, fitting
from training.fit.presets import network as preset_network
from training.nn import Dropout
from training.operators.field import FieldConfig, FieldOperator
from training.problems.problem_file import read_problem_file

PROBLEMS, FOLDER, ENVIRONMENT = Path(__file__).parent / "problems", Path("data/own-data"), "own_data"
NAMES = ("heat", "darcy", "reaction", "advection", "neuralop")
OTHERS = FNO, FACTORISED, UNET, CONVNEXT = ("FNO", "factorised FNO", "U-Net", "ConvNeXt U-Net")
TRANSOLVER, LRSA = "Transolver", "LRSA"
TITLES = (*OTHERS, *OURS)
ON_DARCY = (FNO, UNET, TRANSOLVER, LRSA, PETROV)  # on the field's benchmark, `darcy85`
SAMPLES, TUNING, TUNING_SEED, BATCH = 1000, 40.0, 100, 16
SETTINGS = {"batch", "learning_rate", "weight_decay"}  # of the preset that the loop of the comparison takes
STATISTICS_SAMPLES = 512  # as in a training by `make train`
#: The network that choices for few samples and earlier models were measured with; the preset's have gated layers.
PLAIN = {"unet": 0, "gated": False, "layers": 1, "spectral": 4, "detail": 32}
#: What differs from it and from the preset's settings in the trainings on few samples.
CHOICES: dict[str, dict[str, Any]] = {
    "attention and spectral layers": {},
    "without tokens": {"sizes": {"layers": 0}},
    "without tokens, half of the channels": {"sizes": {"layers": 0, "detail": 16}},
    "with a U-Net, without tokens": {"sizes": {"layers": 0, "unet": 1}},
    "with a U-Net, without tokens, half of the channels": {"sizes": {"layers": 0, "unet": 1, "detail": 16}},
    "weight decay 0.1": {"settings": {"weight_decay": 0.1}},
    "dropout 0.05 before the spectral layers": {"sizes": {"dropped": 0.05}},
    "averaged weights, half-life of 1 % of the training": {"settings": {"half_life": 0.01}},
    "with the symmetries of the equation": {"symmetries": True},
    "mean over the flips of the equation in evaluation": {"averaged": True},
}
#: Of the equation and its domain, by the name of the problem; no problem file of the comparison declares them.
SYMMETRIES = {"neuralop": ("flip_row", "flip_column", "transpose"), "wind": ("flip_row", "shift_column")}
COUNTS = {"darcy85": 1250}  # samples, where they are not `SAMPLES`
FEW = {"neuralop": 200, "wind": 384}  # training samples
#: Modes per axis (positive and negative together) of FNO's candidates, by the points of the shortest axis; at 128 with
#: 32 and 64 channels.
MODES = {16: (12, 16), 24: (16, 24), 32: (16, 24), 48: (16, 24), 85: (16, 24), 128: (16, 32)}
RATES = {
    FNO: (2e-3, 5e-3, 1e-2),
    FACTORISED: (2e-3, 5e-3, 1e-2),
    UNET: (2e-3, 5e-3),
    CONVNEXT: (1e-3, 3e-3, 1e-2),
    TRANSOLVER: (1e-3, 3e-3),
    LRSA: (1e-3, 3e-3),
}
BATCHES = {TRANSOLVER: 4, LRSA: 4}  # as published on Darcy flow; a step costs more than those of the others
#: With Muon, which Petrov has.
MUON_RATES = {
    FNO: (5e-3, 1e-2, 2e-2),
    FACTORISED: (5e-3, 1e-2, 2e-2),
    UNET: (2e-3, 5e-3, 1e-2),
    CONVNEXT: (3e-3, 1e-2, 2e-2),
    TRANSOLVER: (3e-3,),
    LRSA: (3e-3,),
}


def prepared(name: str, folder: Path, solver: str | None = None, samples: int = SAMPLES) -> dict[str, Any]:
    """Return where the checked samples of a problem are and what they mean; a solver makes them if there are none.

    `solver` is the name of one that makes other data for the same problem file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.toml"
    shutil.copyfile(PROBLEMS / file.name, file)
    problem = read_problem_file(file)
    if not all((folder / each).exists() for each in problem.data.files):
        with TemporaryDirectory(dir=folder) as aside:  # an interrupted run leaves no file that looks complete
            python = str(interpreter(ENVIRONMENT))
            run([python, "-W", "ignore", "-m", "benchmarks.solvers", solver or name, str(samples), aside])
            for made in Path(aside).iterdir():
                made.replace(folder / made.name)
    return described(file, SampleFile(prepare(problem, folder, folder), problem))


def described(file: Path, samples: SampleFile) -> dict[str, Any]:
    """Describe prepared samples of a problem file for another process."""
    problem = read_problem_file(file)
    [output] = problem.output_names
    return {
        "file": str(samples.path),
        "problem": str(file),
        "inputs": [*problem.argument_names],
        "output": output,
        "counts": list(samples.counts),
        "sides": list(samples.sides),
    }


def fitted(request: dict[str, Any], name: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return the network that `python -m training fit` trains from a problem file, and how long that took: `facts_of`.

    An interrupted training goes on: its run is called by `name` and what is asked for.
    """
    settings = request.get("settings", {})
    asked = (f"{request['seconds']:g}", request["seed"], request.get("samples"), settings.get("optimiser"))
    parts = (name, Path(request["prepared"]["problem"]).stem, *asked)
    run = Path("runs") / "-".join(str(part) for part in parts if part is not None)
    before = children_seconds()
    subprocess.run(fit_command(request, run), check=True, stdout=sys.stderr)  # noqa: S603 -- our own command
    used = children_seconds() - before
    found = load_operator(run)
    return found.operator.eval(), facts_of(found.card.training, used)


def facts_of(training: dict[str, Any], used: float) -> dict[str, Any]:
    """Return what is kept of a training by `fit`: a card has its time on the clock, which passes while others compute.

    `used` are the processor seconds of the whole command, with preparation, calibration and report; of an interrupted
    one those since it went on.
    """
    facts = {"epochs": training["epochs"], "wall_seconds": training["seconds"]}
    return facts | {"command_seconds": round(used, 1)}


def fit_command(request: dict[str, Any], run: Path) -> list[str]:
    """Return the command that trains from a problem file in the folder of a run, or goes on with it."""
    problem = Path(request["prepared"]["problem"])
    settings = [f"fit.seconds={request['seconds']}", f"seed={request['seed']}", 'formats=["onnx"]']
    settings += [f"fit.share={request['samples'] / request['prepared']['counts'][0]}"] if "samples" in request else []
    settings += [f"fit.{key}={json.dumps(value)}" for key, value in request.get("settings", {}).items()]
    arguments = [argument for each in settings for argument in ("--set", each)]
    command = [sys.executable, "-m", "training", "fit", str(problem), "--out", str(run), *arguments]
    return [*command, "--data", str(problem.parent), "--resume"]


def operator(prepared: dict[str, Any], samples: Samples, *, dropped: float = 0.0, **sizes: Any) -> FieldOperator:
    """Return the plain operator with the sizes that its preset takes from the data, but for those that are named.

    `dropped` is the dropout rate before each spectral transform.
    """
    config = cast("FieldConfig", preset_network(opened(prepared), PRESETS["quick"])).model_copy(update=PLAIN | sizes)
    network = FieldOperator(config)
    network.fit_normalisers(*(each[:STATISTICS_SAMPLES] for each in (*samples.inputs, samples.output)))
    for layer in network.spectral:
        layer.dropout = Dropout(dropped)
    return network


class MeanOverFlips(nn.Module):
    """Average a network over the flips that are symmetries of an equation: its value for one field is that for all."""

    def __init__(self, network: nn.Module, prepared: dict[str, Any]) -> None:
        super().__init__()
        problem = read_problem_file(Path(prepared["problem"]))
        axes = [
            index
            for index, name in enumerate(problem.axis_names, start=1)
            if f"flip_{name}" in SYMMETRIES[problem.name]
        ]
        self.network, self.fields = network, len(problem.inputs)
        self.flips = [flip for count in range(len(axes) + 1) for flip in itertools.combinations(axes, count)]

    def forward(self, *inputs: Tensor) -> Tensor:
        fields, numbers = inputs[: self.fields], inputs[self.fields :]
        found = [self.network(*(each.flip(flip) for each in fields), *numbers).flip(flip) for flip in self.flips]
        return torch.stack(found).mean(dim=0)


def moved(prepared: dict[str, Any], seed: int) -> Callable[[Samples], Samples]:
    """Return what moves every sample of a batch by a symmetry of its equation, `SYMMETRIES`."""
    samples = opened(prepared)
    exact = {"symmetries": SYMMETRIES[samples.problem.name]}
    problem, rng = samples.problem.model_copy(update=exact), np.random.default_rng(seed)
    description, fields = SampleFile(samples.path, problem).described, len(problem.inputs)

    def move(batch: Samples) -> Samples:
        *inputs, output = augment.transform(description, [*batch.inputs[:fields], batch.output], rng)
        return replace(batch, inputs=[*inputs, *batch.inputs[fields:]], output=output)

    return move


def opened(prepared: dict[str, Any]) -> SampleFile:
    """Return prepared samples as the preset reads them."""
    return SampleFile(Path(prepared["file"]), read_problem_file(Path(prepared["problem"])))


def candidates(title: str, prepared: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the candidates of a network: its name in `networks`, sizes, and settings of the loop."""
    if title in OURS:
        return [{"network": "petrov", "sizes": {}} | ({"settings": OURS[title]} if OURS[title] else {})]
    batch = BATCHES.get(title, BATCH)
    tried = settings_of_rates(batch, RATES[title], MUON_RATES.get(title, ()))
    shortest = min(prepared["sides"])
    channels = (32, 64) if shortest == 128 else (32, 32)
    networks: dict[str, tuple[str, list[dict[str, Any]]]] = {
        FNO: ("fno", [{"modes": modes, "channels": c} for modes, c in zip(MODES[shortest], channels, strict=True)]),
        FACTORISED: ("factorised", [{"modes": MODES[shortest][1]}]),
        UNET: ("unet", [{}]),
        CONVNEXT: ("convnext", [{}]),
        TRANSOLVER: ("attention", [{"kind": "transolver"}]),
        LRSA: ("attention", [{"kind": "lrsa"}]),
    }
    name, sizes = networks[title]
    return [{"network": name, "sizes": size, "settings": each} for size in sizes for each in tried]


def compare(
    names: Sequence[str],
    seconds: Sequence[float],
    seeds: int,
    kept: ResultFile,
    folder: Path,
    workers: int = 1,
    titles: Sequence[str] = TITLES,
) -> Iterator[Row]:
    """Tune the networks of the comparison on own data, then train them."""
    data = {name: prepared(name, folder, samples=COUNTS.get(name, SAMPLES)) for name in names}
    choices = {(name, title): candidates(title, data[name]) for name, title in itertools.product(names, titles)}
    yield from tuned_and_trained(choices, data, seconds, seeds, kept, workers)


def amounts(
    names: Sequence[str],
    counts: Sequence[int],
    seconds: float,
    seeds: int,
    kept: ResultFile,
    tuned: ResultFile,
    folder: Path,
    workers: int = 1,
) -> Iterator[Row]:
    """Train Petrov and the best other network of the tuning `tuned` on growing parts of the training samples."""
    data = {name: prepared(name, folder) for name in names}
    rows = [
        training(name, title, candidate, seconds, seed, "test") | {"samples": count}
        for seed, count, name in itertools.product(range(seeds), counts, names)
        for title, candidate in ((PETROV, candidates(PETROV, data[name])[0]), best_other(tuned.rows, name))
    ]
    yield from complete(rows, kept, data, workers)


def best_other(rows: Sequence[Row], name: str) -> tuple[str, dict[str, Any]]:
    """Return the network, besides Petrov, of the least validation error in its tuning, and its candidate."""
    tried = [row for row in rows if row["training"]["problem"] == name and row["training"]["split"] == "validation"]
    others = [row for row in tried if row["training"]["title"] in OTHERS]
    chosen = min(others, key=lambda row: float(row["result"]["error"]))["training"]
    return chosen["title"], chosen["candidate"]


def tuned_and_trained(
    choices: dict[tuple[str, str], list[dict[str, Any]]],
    data: dict[str, dict[str, Any]],
    seconds: Sequence[float],
    seeds: int,
    kept: ResultFile,
    workers: int,
    module: str = "benchmarks.networks",
    tried: float = TUNING,
) -> Iterator[Row]:
    """Train the candidates of each problem and title for `tried` seconds, then the best one, seed by seed."""
    tuning = [
        training(name, title, each, tried, TUNING_SEED, "validation")
        for (name, title), found in choices.items()
        for each in (found if len(found) > 1 else ())
    ]
    tuned = list(complete(tuning, kept, data, workers, module))
    yield from tuned
    finals = [
        training(name, title, best(tuned, name, title) or found[0], time, seed, "test")
        for seed, time in itertools.product(range(seeds), seconds)
        for (name, title), found in choices.items()
    ]
    yield from complete(finals, kept, data, workers, module)


def choose(seconds: float, seeds: int, kept: ResultFile, folder: Path, workers: int = 1) -> Iterator[Row]:
    """Train a network and what may be better for few samples, and measure all on validation samples."""
    data = {name: prepared(name, folder) for name in FEW}
    rows = []
    for seed, (name, count), title in itertools.product(range(seeds), FEW.items(), CHOICES):
        settings = fitting(opened(data[name]), PRESETS["quick"])
        preset = {"network": "operator", "sizes": {}, "settings": settings.model_dump(include=SETTINGS)}
        changed = {key: preset[key] | CHOICES[title].get(key, {}) for key in ("sizes", "settings")}
        row = training(name, title, preset | CHOICES[title] | changed, seconds, seed, "validation")
        rows.append(row | {"samples": count})
    yield from complete(rows, kept, data, workers)


def training(name: str, title: str, candidate: dict[str, Any], seconds: float, seed: int, split: str) -> Row:
    """Return what is trained on which problem, for how long, and where it is measured."""
    facts = {"seconds": seconds, "seed": seed, "split": split}
    return {"problem": name, "title": title, "candidate": candidate} | facts


def best(rows: Sequence[Row], name: str, title: str) -> dict[str, Any] | None:
    """Return the candidate of the least validation error; None where nothing was tuned."""
    found = [row for row in rows if (row["training"]["problem"], row["training"]["title"]) == (name, title)]
    least = min(found, key=lambda row: float(row["result"]["error"]), default=None)
    return None if least is None else least["training"]["candidate"]


def complete(
    trainings: Sequence[Row],
    kept: ResultFile,
    data: dict[str, dict[str, Any]],
    workers: int,
    module: str = "benchmarks.networks",
) -> Iterator[Row]:
    """Make the trainings that have no row yet, and yield the rows of all, in order."""

    def row(one: Row) -> Row:
        found = next((each for each in kept.rows if each["training"] == one), None)
        if found is not None:
            return found
        request = one["candidate"] | {key: one[key] for key in ("seconds", "seed", "split", "samples") if key in one}
        environment = OWN if request["network"] in {"petrov", "operator"} else ENVIRONMENT
        result = result_of(module, environment, request | {"prepared": data[one["problem"]]})
        return kept.add({"training": one, "result": result})

    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(row, trainings)
