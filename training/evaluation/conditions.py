"""The conditions that a problem with parameters is measured at: their defaults, and the range of the stored samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from training.data import Samples, strides
from training.data.pair import only_pair
from training.problems.description import Description
from training.problems.problem import Conditions


def ranges(description: Description) -> str:
    """Return the ranges of the parameters in words, such as `time 0.1 to 2`; nothing where there are none."""
    return ", ".join(f"{each.name} {each.minimum:g} to {each.maximum:g}" for each in description.parameters)


def has_defaults(description: Description) -> bool:
    """Return whether there are parameters, and all have a default."""
    return bool(description.parameters) and all(each.default is not None for each in description.parameters)


def at_defaults(samples: Samples) -> Samples:
    """Solve for the inputs of samples on the stored mesh at the parameters' defaults."""
    description, problem = samples.problem.description, samples.problem
    pair, mesh = only_pair(description), samples.inputs.shape[1]
    named = {one.name: np.float64(one.default or 0) for one in description.parameters}
    outputs = [
        problem.solve({pair.input.name: field} | named, Conditions(mesh))[pair.output.name].astype(np.float32)
        for field in samples.inputs
    ]
    parameters = tuple(np.full(len(outputs), value, np.float32) for value in named.values())
    return replace(samples, outputs=np.stack(outputs), parameters=parameters)


def strided(samples: Samples, points: int | tuple[int, ...]) -> Samples:
    """Return samples of the stored mesh on a coarser grid."""
    steps = strides(samples.problem.description, samples.inputs.shape[1], points)
    every = (slice(None), *(slice(None, None, step) for step in steps))
    inputs, outputs = (np.ascontiguousarray(each[every]) for each in (samples.inputs, samples.outputs))
    return replace(samples, inputs=inputs, outputs=outputs)
