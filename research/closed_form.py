"""The checkpoint of `burgers_exact`, the closed form of Burgers' equation: nothing is trained, and all is measured.

`python -m research closed-form checkpoints/burgers_exact` writes it in two minutes. Errors are those of new fields, at
the default viscosity and time beside the spectral solver (ETDRK4), which is no closed form, and then with viscosities
and times of the whole range beside the closed form of `physics`, summed in double precision at 2048 points.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from physics import burgers, cole_hopf
from research import closed_form_picture
from research.memorisation.panels import expect_picture
from schema.card import CheckpointCard
from training import checkpoint, recipes
from training.data.generate import MeasuredSamples
from training.evaluation import measures
from training.evaluation.drawn import DrawnSamples, ranges
from training.evaluation.measures import milliseconds, processor, timed
from training.metrics import METRICS, Grid
from training.metrics import measured as all_measured
from training.operators import Operator, build
from training.operators.cole_hopf import ColeHopfConfig
from training.problems.burgers import FLOW, PARAMETERS, PROBLEM
from training.recipe import ClosedFormRecipe

RECIPE = ClosedFormRecipe(
    model="burgers_exact",
    problem="burgers",
    data=MeasuredSamples(mesh=burgers.POINTS, test=100, grids=FLOW.grid.declared, seed=2**31 + 1000),
    operator=ColeHopfConfig(),
)
SOLVER = "closed form"  # what the rows of the card are of
RESOLUTION = 2048  # of the reference in the whole range
FEWEST_QUERIES = 240  # with few keys
CORRECTED = Path("checkpoints/burgers")  # a network that corrects a sum over few keys

Fields = NDArray[np.float64]
Numbers = NDArray[np.float32]


def closed_form(
    folder: Annotated[Path | None, typer.Argument(help="Where the checkpoint is written.")] = None,
    picture: Annotated[
        Path | None, typer.Option(callback=expect_picture, help="Where the picture of the attention is written.")
    ] = None,
    keys: Annotated[list[int] | None, typer.Option(min=1, help="Measure a sum over so few points. Repeatable.")] = None,
    data: Annotated[Path, typer.Option(help="The folder of the samples, for --keys.")] = Path("data"),
) -> None:
    """Write the checkpoint of Burgers' closed form, which has no weights, and measure it.

    --keys measures sums over few points on the test set of `burgers`, and
    `burgers`, which corrects the sum over 20.

    python -m research closed-form checkpoints/burgers_exact
    python -m research closed-form --picture docs/closed-form.png
    python -m research closed-form --keys 16 --keys 20 --keys 24
    """
    if not (keys or picture or folder):
        raise typer.BadParameter("expected a folder for the checkpoint, --picture or --keys")
    if keys:
        few_keys(keys, data)
    if picture:
        closed_form_picture.draw(picture)
    if folder:
        write(folder)


def few_keys(keys: list[int], data: Path) -> None:
    """Print the errors on 1024 points of sums over few points, and of the released network that corrects one."""
    samples = DrawnSamples(recipes.read_fields(recipes.find("burgers-laptop")), data)
    subjects = {"burgers": checkpoint.load_operator(CORRECTED).operator}
    for count in keys:
        subjects[f"{count} keys"] = build(ColeHopfConfig(keys=count, refinement=-(-FEWEST_QUERIES // count)))
    for case in samples.tests(samples.problem, grid=1024, noise=0.0):
        for name, operator in subjects.items():
            numbers = case.parameters.values()
            with torch.inference_mode():
                found = np.concatenate([operator(*batch.inputs).numpy() for batch in case])
            errors = METRICS.items["relative_l2"](found, case.targets)
            where = case.conditions or "defaults"
            typer.echo(f"{name}, {where}: {errors.mean():.2e}, 95 % below {np.percentile(errors, 95):.2e}")
            if case.conditions:
                typer.echo("\n".join(by_thirds(errors, *numbers)))


def by_thirds(errors: Fields, viscosity: Numbers, t: Numbers) -> list[str]:
    """Return mean errors as lines of text, a line per third of the viscosities, a number per third of the times."""
    bounds = [np.quantile(each, [0, 1 / 3, 2 / 3, 1]) for each in (viscosity, t)]
    groups = [
        np.clip(np.searchsorted(bound[1:3], each), 0, 2) for bound, each in zip(bounds, (viscosity, t), strict=True)
    ]
    lines = [f"  times {', '.join(f'{low:.2g} to {high:.2g}' for low, high in pairwise(bounds[1]))}"]
    for third, (low, high) in enumerate(pairwise(bounds[0])):
        means = [errors[(groups[0] == third) & (groups[1] == other)].mean() for other in range(3)]
        lines.append(f"  viscosity {low:.2g} to {high:.2g}: {', '.join(f'{mean:.2e}' for mean in means)}")
    return lines


def write(folder: Path) -> None:
    """Write the checkpoint, with its card and its examples."""
    operator = build(RECIPE.operator).eval()
    problem = replace(PROBLEM, description=FLOW)
    card = CheckpointCard.model_validate(measured(operator, RECIPE.data) | {"checkpoint": {"parameters": 0}})
    checkpoint.save(folder, operator, RECIPE, problem, card)
    checkpoint.write_examples(folder, stored(RECIPE.data))


def measured(operator: Operator, data: MeasuredSamples) -> dict[str, Any]:
    """Return the card: how it was made, its errors, and the spectral solver's."""
    initial = np.stack([burgers.example(data.mesh, data.seed + n) for n in range(data.test)])
    viscosity, t = drawn(data)
    default = np.stack([burgers.solve(field) for field in initial])
    varied = np.stack(
        [
            cole_hopf.solve(field, time=float(a), viscosity=float(nu), resolution=RESOLUTION)
            for field, nu, a in zip(initial, viscosity, t, strict=True)
        ]
    )
    coarse = [(initial[:, :: data.mesh // n], default[:, :: data.mesh // n]) for n in data.grids]
    wide = {"conditions": ranges(FLOW)}
    return {
        "training": {
            "distribution": FLOW.distribution,
            "fields": 0,
            "grids": [],
            "epochs": 0,
            "seconds": 0.0,
            "preset": RECIPE.preset,
            "validity": {
                "trained": "nothing: the closed form",
                "measured": f"{FLOW.distribution}; {ranges(FLOW)}",
                "not tried": FLOW.untested,
            },
        },
        "errors": [
            *(row(operator, u, truth) for u, truth in coarse),
            row(operator, initial, varied, viscosity, t) | wide,
        ],
        "classical": [spectral(u, truth) for u, truth in coarse if u.shape[1] < data.mesh],  # that is the reference
        "clock": {"time": "of the processor, one thread", "processor": processor()},
    }


def drawn(data: MeasuredSamples) -> tuple[Numbers, Numbers]:
    """Draw a viscosity, uniformly on a logarithmic scale, and a time for each sample."""
    rng = np.random.default_rng(data.seed)
    (least, most), (first, last) = ((each.minimum or 0.0, each.maximum or 0.0) for each in PARAMETERS)
    viscosity = np.exp(rng.uniform(np.log(least), np.log(most), data.test))
    return viscosity.astype(np.float32), rng.uniform(first, last, data.test).astype(np.float32)


def row(operator: Operator, initial: Fields, truth: Fields, *numbers: Numbers) -> dict[str, Any]:
    """Return errors and times of the closed form on one grid.

    Args:
        operator: The closed form.
        initial: Velocities `[sample, point]`.
        truth: Reference solutions `[sample, point]`.
        numbers: Viscosities and times `[sample]`; the defaults without them.
    """
    fields = initial.astype(np.float32)
    arguments = [torch.from_numpy(array) for array in (fields, *numbers)]
    with torch.inference_mode():
        found = torch.cat([operator(*part) for part in zip(*(each.split(10) for each in arguments), strict=True)])
    return {"solver": SOLVER} | summary(truth, found.double().numpy()) | milliseconds(operator, fields)


def spectral(initial: Fields, truth: Fields) -> dict[str, Any]:
    """Return errors and time of the spectral solver on the same grid."""
    baseline = PROBLEM.require_baseline()
    outputs, seconds = zip(*(timed(partial(burgers.solve, field)) for field in initial), strict=True)
    figures = summary(truth, np.stack(outputs))
    return figures | {"milliseconds": round(1000 * float(np.median(seconds)), 1), "method": baseline.method}


def summary(truth: Fields, found: Fields) -> dict[str, Any]:
    """Return the figures of predictions `[sample, point]`."""
    p, u = ([torch.from_numpy(each)] for each in (found, truth))
    errors = all_measured(METRICS.items, p, u, Grid.of(FLOW.axes, truth.shape[1:]))
    return {"grid": [truth.shape[1]], "fields": len(truth)} | measures.summary(
        {name: each.numpy() for name, each in errors.items()}
    )


def stored(data: MeasuredSamples) -> dict[str, NDArray[np.float32]]:
    """Return the first samples on the coarsest grid, half of them with other viscosities and times, and their truth."""
    points = min(data.grids)
    nu, t = (numbers[: checkpoint.MOST_EXAMPLES] for numbers in drawn(data))
    for numbers, parameter in zip((nu, t), PARAMETERS, strict=True):
        numbers[::2] = parameter.default
    initial = np.stack([burgers.example(data.mesh, data.seed + n) for n in range(checkpoint.MOST_EXAMPLES)])
    final = [
        cole_hopf.solve(field, time=float(a), viscosity=float(v), resolution=RESOLUTION)
        for field, v, a in zip(initial, nu, t, strict=True)
    ]
    step = data.mesh // points
    velocities = {"initial": initial[:, ::step], "final": np.stack(final)[:, ::step]}
    return {name: array.astype(np.float32) for name, array in velocities.items()} | {"viscosity": nu, "time": t}
