"""The table of inputs unlike the training set: `darcy` on families of permeabilities, beside the finite volumes.

The truth is the solution on 421 x 421 cells. The network and the finite volumes see the same samples of the field.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from physics import darcy
from physics.families import FAMILIES
from physics.numerics.grid import CELLS, axis
from physics.numerics.norms import relative_l2
from training import checkpoint
from training.calibration.novelty import OUTSIDE

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from benchmarks.report.page import Table
    from training.operators import Operator

    Field = NDArray[np.float64]

POINTS = 141
FIELDS, QUICK_FIELDS = 4, 1
FIRST_SEED = 1000
HEADER = ("family", "finite volumes", "darcy", "ratio", "largest error bound", "largest correction", "outside")
EARLIER = ("earlier darcy",)


@dataclass(frozen=True)
class Row:
    """Mean relative L2 errors on one family.

    Attributes:
        family: Its name.
        finite_volumes: Of the exact solution of the finite volumes on the same grid.
        network: Of the network.
        bound: The largest error bound that the network gave; None for a network without bounds.
        correction: The largest bound on the distance to the finite volumes; None as above.
        outside: The share of fields that the network finds unlike its training data; None as above.
        earlier: Of the other network, if there is one.
    """

    family: str
    finite_volumes: float
    network: float
    bound: float | None
    correction: float | None = None
    outside: float | None = None
    earlier: float | None = None


def measure(folder: Path, earlier: Path | None, *, quick: bool) -> list[Row]:
    """Measure all families.

    Args:
        folder: The checkpoint of the network.
        earlier: The checkpoint of another network, such as an earlier release.
        quick: Measure a single field per family.
    """
    paths = (folder, *([earlier] if earlier else []))
    networks = [cast("Operator", checkpoint.load_operator(path).deployed) for path in paths]
    count = QUICK_FIELDS if quick else FIELDS
    return [row(name, networks, range(FIRST_SEED, FIRST_SEED + count)) for name in FAMILIES]


def row(family: str, networks: list[Operator], seeds: range) -> Row:
    """Measure one family.

    Args:
        family: Its name.
        networks: The network, and the other one if there is one.
        seeds: A seed per field.
    """
    fine = [FAMILIES[family](np.random.default_rng(seed), axis(CELLS)) for seed in seeds]
    restrict = partial(darcy.restrict, points=POINTS)
    fields, truths = np.stack([*map(restrict, fine)]), np.stack([restrict(darcy.solve(one)) for one in fine])
    inputs = torch.from_numpy(fields).float()

    def error(found: Any) -> float:
        return float(relative_l2(np.asarray(found), truths).mean())

    with torch.inference_mode():
        (first, known), *others = (results(network, inputs) for network in networks)
    plain = np.stack([darcy.solve(one) for one in fields])
    largest = {name: values.max().item() for name, values in known.items()}
    outside = (known["novelty"] < OUTSIDE).double().mean().item() if "novelty" in known else None
    return Row(
        family=family,
        finite_volumes=error(plain),
        network=error(first),
        bound=largest.get("error_bound"),
        correction=largest.get("correction"),
        outside=outside,
        earlier=error(others[0][0]) if others else None,
    )


def results(network: Operator, inputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the output of a network, and what it says about its error by name."""
    output, *known = network.with_quality(inputs) if network.quality else (network(inputs),)
    return output, dict(zip(network.quality, known, strict=True))


def document(rows: list[Row]) -> dict[str, Any]:
    """Return everything that was measured."""
    return {"points": POINTS, "families": [asdict(each) for each in rows]}


def tables(rows: list[Row]) -> dict[str, Table]:
    """Return the table, with a column for the other network if there is one."""
    compared = all(each.earlier is not None for each in rows)
    return {"outside": ((*HEADER, *(EARLIER if compared else ())), [cells(each, compared=compared) for each in rows])}


def cells(each: Row, *, compared: bool) -> tuple[str, ...]:
    """Return a family's row of the table."""
    bounds = ("" if bound is None else f"{bound:.1e}" for bound in (each.bound, each.correction))
    outside = "" if each.outside is None else f"{each.outside:.2f}"
    ratio = f"{each.network / each.finite_volumes:.2f}"
    common = (each.family, f"{each.finite_volumes:.1e}", f"{each.network:.1e}", ratio, *bounds, outside)
    return (*common, f"{each.earlier:.1e}") if compared else common
