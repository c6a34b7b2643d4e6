"""The forced Navier-Stokes equations on the periodic square, for the vorticity; see `physics.navier_stokes`."""

from __future__ import annotations

from physics import navier_stokes as equation
from schema.parts import Axis, Parameter, Quantity
from training.operators.navier_stokes import NavierStokesConfig
from training.operators.trajectory import TrajectoryConfig
from training.problems.problem import Problem, Starts, Trajectories
from training.problems.problem_file import ProblemFile
from training.problems.sections import DataSection, TimeSection

TRAJECTORIES = 256
FRAMES = 20
INTERVAL = 1.0
RESOLVED, SUBSTEPS = 12, 12
"""Wave numbers and steps of the solver in the network: it is stable for the speeds of all training trajectories."""


def draw(seed: int, count: int | None = None) -> Starts:
    """Draw random vorticity [sample, x, y] and `viscosity` [sample]."""
    vorticity, viscosity = equation.draw(seed, count or TRAJECTORIES)
    return {"vorticity": vorticity, "viscosity": viscosity}


def follow(starts: Starts) -> Starts:
    """Return trajectories: `vorticity` [sample, frame, x, y] and `viscosity` [sample]."""
    vorticity = equation.follow(starts["vorticity"], starts["viscosity"], FRAMES, INTERVAL)
    return {"vorticity": vorticity, "viscosity": starts["viscosity"]}


def adapt(config: TrajectoryConfig) -> NavierStokesConfig:
    """Return the operator with a coarse solver, whose correction has the sizes of a general operator.

    The correction is that of the unresolved wave numbers, which is the same everywhere, so it needs no coordinates.
    """
    fields = {"input_components": (0, 0, 0), "input_scales": ("linear",) * 3, "translation": (True, True)}
    return NavierStokesConfig(
        step=config.step.model_copy(update=fields),
        components=config.components,
        states=config.states,
        conserved=config.conserved,
        resolved=RESOLVED,
        substeps=SUBSTEPS,
        interval=INTERVAL,
        force=equation.FORCE,
    )


FILE = ProblemFile(
    name="navier_stokes",
    title="Navier-Stokes: vorticity on the periodic square, to its later states",
    equation="w_t + u.grad w = nu lap w + f, f = 0.1 (sin 2 pi (x + y) + cos 2 pi (x + y))",
    data=DataSection(files=("navier_stokes.npz",), format="npz", validation=16, test=24),
    inputs=(Quantity(name="initial", key="vorticity", meaning="vorticity at (i, j) / points"),),
    parameters=(
        Parameter(
            name="viscosity",
            meaning="nu",
            default=equation.VISCOSITY,
            minimum=equation.VISCOSITIES[0],
            maximum=equation.VISCOSITIES[1],
        ),
    ),
    outputs=(Quantity(name="vorticity", meaning="vorticity at times 1, 2, 3, ..."),),
    axes=tuple(Axis(name=name, boundary="periodic", points="left") for name in "xy"),
    time=TimeSection(step=INTERVAL, horizon=20, conserved=("vorticity",)),
)
PROBLEM = Problem(
    description=FILE.describe((equation.POINTS, equation.POINTS), FILE.data.counts(TRAJECTORIES)[0], 1 + FRAMES),
    trajectories=Trajectories(FILE, draw, follow, adapt),
)
