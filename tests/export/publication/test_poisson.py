"""The exported graph of a model of `poisson` bounds its error for any source, on grids that were never traced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from export.graphs import to_onnx
from export.repository import Publication
from physics import poisson

pytestmark = pytest.mark.deep

SIDES = ((8, 9, 10), (17, 17, 17), (33, 12, 8), (9, 9, 9))


def test_no_bound_of_the_graph_is_below_its_distance(all_published: tuple[Path, dict[str, Publication]]) -> None:
    run, _ = to_onnx.read(all_published[0] / "poisson" / "1" / to_onnx.FILE)
    for seed, sides in enumerate(SIDES):
        rng = np.random.default_rng(seed)
        sources = np.stack([rng.standard_normal(sides), np.full(sides, 3.0), np.zeros(sides)]).astype(np.float32)
        potentials, bounds = run(sources)
        for source, potential, bound in zip(sources, potentials, bounds[:, 0], strict=True):
            distance = poisson.bound(source, potential)
            assert distance <= bound <= 1.001 * distance + 1e-9
