"""The table of bounds and estimates: what is measured of a family on a grid."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from benchmarks.repository import one_thread
from benchmarks.tables.quality import bounds
from export.released import FOLDER, GRAPH
from physics import darcy
from physics.families import FAMILIES
from training import checkpoint
from training.operators.elliptic import EllipticOperator

DARCY = Path("checkpoints/darcy")
FAMILY = "smooth log-normal"


@pytest.fixture(scope="module")
def network() -> EllipticOperator:
    return cast("EllipticOperator", checkpoint.load_operator(DARCY).operator).double()


def test_the_distance_is_that_to_the_models_own_finite_volumes(network: EllipticOperator) -> None:
    field = darcy.restrict(bounds.drawn(FAMILY, [1])[0][0], 29).astype(np.float32)
    exact = darcy.solve(field.astype(float))  # such fields have no corrections
    assert bounds.distance(network, field, exact.astype(np.float32)) < 1e-6
    assert bounds.distance(network, field, (1.01 * exact).astype(np.float32)) == pytest.approx(0.01, rel=1e-3)


def test_a_family_has_a_row_per_grid_and_no_bound_below_its_distance(network: EllipticOperator) -> None:
    graph = one_thread(DARCY / FOLDER / "darcy" / GRAPH)
    samples = bounds.drawn("3 / 12, as trained", [1, 2])
    found = bounds.row("3 / 12, as trained", 29, samples, network, graph)
    assert found.fields == 2
    assert 1 <= found.closest <= found.loosest < 1.1
    assert found.covered in (0, 0.5, 1)
    rows = [bounds.Row(name, 29, 2, 1e-3, 1.0, 1.25, 2e-3, 1e-3, 1.0, 0.5) for name in FAMILIES]
    quotients, shares = bounds.tables(rows).values()
    assert quotients[0] == ("family", "29 x 29")
    assert quotients[1][0] == ("3 / 12, as trained", "1.00 to 1.25")
    assert shares[1][-1] == ("contrast 10000", "1.00", "0.50")
