"""The Kuramoto-Sivashinsky equation on intervals of many lengths; see `physics.kuramoto_sivashinsky`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from physics import kuramoto_sivashinsky as equation
from training.operators.kuramoto_sivashinsky import KuramotoSivashinskyConfig
from training.operators.trajectory import TrajectoryConfig
from training.problems.generated.generated import Generated
from training.problems.own.problem_file import (
    AxisSection,
    DataSection,
    FieldSection,
    ParameterSection,
    ProblemFile,
    SymmetrySection,
    TimeSection,
)

TRAJECTORIES = 512
FRAMES = 40
INTERVAL = 2.0


def sample(seed: int) -> dict[str, NDArray[np.float64]]:
    """Draw trajectories on the attractor: `u` [sample, frame, point] and `length` [sample]."""
    u, length = equation.sample(seed, TRAJECTORIES, FRAMES, INTERVAL)
    return {"u": u, "length": length}


def adapt(config: TrajectoryConfig) -> KuramotoSivashinskyConfig:
    """Return the general operator with its finest waves damped."""
    return KuramotoSivashinskyConfig(
        step=config.step, components=config.components, states=config.states, conserved=config.conserved
    )


PROBLEM = Generated(
    ProblemFile(
        name="kuramoto_sivashinsky",
        title="Kuramoto-Sivashinsky: a chaotic wave on a periodic line, to its later states",
        equation="u_t + (u^2/2)_x + u_xx + u_xxxx = 0, periodic with period L",
        data=DataSection(files=("kuramoto_sivashinsky.npz",), format="npz", validation=32, test=32),
        inputs={"initial": FieldSection(key="u", meaning="u at x_i = i L / points, on the attractor")},
        parameters={
            "length": ParameterSection(
                meaning="period L", default=22.0, minimum=equation.LENGTHS[0], maximum=equation.LENGTHS[1]
            )
        },
        outputs={"u": FieldSection(meaning="u at times 2, 4, 6, ...")},
        axes={"x": AxisSection(boundary="periodic", points="left")},
        symmetries=SymmetrySection(exact=("shift_x", "reflect_x")),
        time=TimeSection(step=INTERVAL, horizon=20, conserved=("u",)),
    ),
    sample,
    adapt,
)
