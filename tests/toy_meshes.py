"""Folders of VTU files: Poisson's equation on star-shaped domains of unequal size, one file each."""

from __future__ import annotations

from pathlib import Path

import meshio
import numpy as np

from physics.stars import Star, sample


def write_stars(folder: Path, count: int, rings: tuple[int, int] = (3, 6)) -> list[Star]:
    """Write samples with 37 to 127 points as `0000.vtu` and so on."""
    folder.mkdir(parents=True)
    stars = [sample(np.random.default_rng(seed), rings) for seed in range(count)]
    for number, star in enumerate(stars):
        write_mesh(folder / f"{number:04}.vtu", star, {"source": star.source, "solution": star.solution})
    return stars


def write_mesh(path: Path, star: Star, fields: dict[str, np.ndarray]) -> None:
    """Write one mesh with fields at its nodes."""
    points = np.column_stack([star.points, np.zeros(len(star.points))])
    meshio.Mesh(points, {"triangle": star.triangles}, fields).write(path)
