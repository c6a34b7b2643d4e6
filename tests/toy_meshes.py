"""Meshes of unequal size: Poisson's equation on star-shaped domains, a VTU file each, and heat that leaves them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import meshio
import numpy as np
import xarray
from numpy.typing import NDArray

from physics.stars import Star, cool, sample


@dataclass(frozen=True)
class Cooling:
    """Nodes `[point, 2]`, triangles, the conductivity, and temperatures `[frame, point]`."""

    points: np.ndarray
    triangles: np.ndarray
    rate: float
    heat: np.ndarray


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


def cooling(count: int, frames: int = 9, step: float = 0.02, rings: tuple[int, int] = (3, 5)) -> list[Cooling]:
    """Draw heat that leaves star-shaped domains through their boundary, whose modes decay at known rates."""
    found = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        star = sample(rng, rings)
        rate = float(rng.uniform(0.5, 1.5))
        rounded = star.points / np.abs(star.points).max()
        start = np.where(star.solution == 0, 0, 1 + (np.sin(3 * rounded + rng.uniform(0, 6, 2))).prod(axis=1))
        times = rate * step * np.arange(frames)
        heat = cool(star.points, star.triangles, start, star.solution == 0, times)
        found.append(Cooling(star.points, star.triangles, rate, heat))
    return found


def padded(samples: list[Cooling]) -> dict[str, np.ndarray]:
    """Return samples as arrays, padded with NaN: `xy`, `n`, `rate` and `heat` `[sample, frame, point]`."""
    most, count = max(len(one.points) for one in samples), len(samples)
    frames = len(samples[0].heat)
    xy, heat = np.full((count, most, 2), np.nan), np.full((count, frames, most), np.nan)
    for number, one in enumerate(samples):
        xy[number, : len(one.points)], heat[number, :, : len(one.points)] = one.points, one.heat
    n = np.asarray([len(one.points) for one in samples])
    return {"xy": xy, "n": n, "rate": np.asarray([one.rate for one in samples]), "heat": heat}


def write_series(folder: Path, samples: list[Cooling], step: float = 0.02) -> None:
    """Write a folder for each sample: a mesh file per frame with the field `heat`, and a list of them with times."""
    for number, one in enumerate(samples):
        run = folder / f"run-{number:02}"
        run.mkdir(parents=True)
        points, entries = np.column_stack([one.points, np.zeros(len(one.points))]), []
        for frame, heat in enumerate(one.heat):
            data = {"heat": heat, "rate": np.full(len(heat), one.rate)}
            meshio.Mesh(points, {"triangle": one.triangles}, data).write(run / f"out_{frame}.vtu")
            entries.append(f'<DataSet timestep="{step * frame:g}" part="0" file="out_{frame}.vtu"/>')
        listed = "\n".join(entries)
        (run / "out.pvd").write_text(f'<VTKFile type="Collection"><Collection>{listed}</Collection></VTKFile>')


def _letters(*names: str) -> NDArray[np.bytes_]:
    return np.array([name.ljust(33, "\0").encode() for name in names]).astype("S33")


def write_exodus(
    path: Path, points: NDArray[np.float64], cells: dict[str, list[list[int]]], steps: int, engine: str
) -> None:
    """Write two squares or a cube with a field of nodes and one of cells, which are t x and t in every step."""
    found: dict[str, tuple[tuple[str, ...], object]] = {
        f"coord{axis}": (("num_nodes",), values) for axis, values in zip("xyz", points.T, strict=False)
    }
    times = np.arange(steps, dtype=float)
    found["time_whole"] = ("time_step",), times
    found["name_nod_var"] = ("num_nod_var",), _letters("temp")
    found["name_elem_var"] = ("num_elem_var",), _letters("heat")
    found["vals_nod_var1"] = ("time_step", "num_nodes"), times[:, None] * points[:, 0]
    found["eb_prop1"] = ("num_el_blk",), np.array([10, 20][: len(cells)], np.int32)
    made = xarray.Dataset(found)
    for number, (kind, nodes) in enumerate(cells.items(), start=1):
        connect = np.array(nodes, np.int32) + 1
        made[f"connect{number}"] = (f"num_el_in_blk{number}", f"num_nod_per_el{number}"), connect
        made[f"connect{number}"].attrs["elem_type"] = kind
        values = np.repeat(times[:, None], len(nodes), axis=1)
        made[f"vals_elem_var1eb{number}"] = ("time_step", f"num_el_in_blk{number}"), values
    made.to_netcdf(path, engine=engine)
