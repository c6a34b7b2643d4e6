"""The Kuramoto-Sivashinsky equation on intervals of many lengths; see `physics.kuramoto_sivashinsky`."""

from __future__ import annotations

from physics import kuramoto_sivashinsky as equation
from schema.parts import Axis, Parameter, Quantity
from training.operators.kuramoto_sivashinsky import KuramotoSivashinskyConfig
from training.operators.trajectory import TrajectoryConfig
from training.problems.problem import Problem, Starts, Trajectories
from training.problems.problem_file import ProblemFile
from training.problems.sections import DataSection, TimeSection

TRAJECTORIES = 512
FRAMES = 40
INTERVAL = 2.0


def draw(seed: int, count: int | None = None) -> Starts:
    """Draw small waves `u` [sample, point] and `length` [sample]."""
    u, length = equation.draw(seed, count or TRAJECTORIES)
    return {"u": u, "length": length}


def follow(starts: Starts) -> Starts:
    """Return trajectories on the attractor: `u` [sample, frame, point] and `length` [sample]."""
    u = equation.follow(starts["u"], starts["length"], FRAMES, INTERVAL)
    return {"u": u, "length": starts["length"]}


def adapt(config: TrajectoryConfig) -> KuramotoSivashinskyConfig:
    """Return the general operator with its finest waves damped."""
    return KuramotoSivashinskyConfig(
        step=config.step,
        components=config.components,
        states=config.states,
        conserved=config.conserved,
        interval=INTERVAL,
    )


FILE = ProblemFile(
    name="kuramoto_sivashinsky",
    title="Kuramoto-Sivashinsky: a chaotic wave on a periodic line, to its later states",
    equation="u_t + (u^2/2)_x + u_xx + u_xxxx = 0, periodic with period L",
    data=DataSection(files=("kuramoto_sivashinsky.npz",), format="npz", validation=32, test=32),
    inputs=(Quantity(name="initial", key="u", meaning="u at x_i = i L / points, on the attractor"),),
    parameters=(
        Parameter(
            name="length",
            meaning="period L",
            default=22.0,
            minimum=equation.LENGTHS[0],
            maximum=equation.LENGTHS[1],
        ),
    ),
    outputs=(Quantity(name="u", meaning="u at times 2, 4, 6, ..."),),
    axes=(Axis(name="x", boundary="periodic", points="left"),),
    symmetries=("shift_x", "reflect_x"),
    time=TimeSection(step=INTERVAL, horizon=20, conserved=("u",)),
)
PROBLEM = Problem(
    description=FILE.describe((equation.POINTS,), FILE.data.counts(TRAJECTORIES)[0], 1 + FRAMES),
    trajectories=Trajectories(FILE, draw, follow, adapt),
)
