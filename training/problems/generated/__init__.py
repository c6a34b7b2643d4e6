"""Problems of trajectories whose samples our solvers make: a problem file and a sampler, one file per problem."""

from training.problems.generated import kuramoto_sivashinsky, navier_stokes
from training.problems.generated.generated import Generated

GENERATED: dict[str, Generated] = {
    each.file.name: each for each in (kuramoto_sivashinsky.PROBLEM, navier_stokes.PROBLEM)
}
"""The problems by their names on the wire."""

__all__ = ["GENERATED", "Generated"]
