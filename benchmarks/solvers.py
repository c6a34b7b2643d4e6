"""The data sets of the comparison on own data, each made by a solver in an environment of its own.

`python -m benchmarks.solvers NAME SAMPLES FOLDER` writes one of them. Steady heat and Darcy flow are solved by
scikit-fem with bilinear elements on twice the cells of the data, `darcy85` by our finite volumes on 421 x 421 cells;
advection and reaction by py-pde; `wind` is steady heat once more, rougher, on a finer grid and with fewer samples, by
finite volumes and SciPy's sparse solver; `neuralop` is the Darcy set in neuraloperator's wheel; `ks`, `vorticity` and
`gray_scott` are trajectories of the Kuramoto-Sivashinsky equation, of decaying flow and of two species by exponax.
`heat-earlier` and `darcy-earlier` have other inputs, `heat-coarse` and `darcy-coarse` half of the cells.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

SEED = 7


def random_fields(
    count: int, sides: Sequence[int], periodic: Sequence[bool], alpha: float, tau: float, rng: Generator
) -> NDArray[np.float64]:
    r"""Draw smooth random fields of mean zero and standard deviation one.

    A field is white noise whose modes of wave number k are multiplied by :math:`(4\pi^2 k^2 + \tau^2)^{-\alpha/2}`:
    Fourier modes on periodic axes and cosines on the others.
    """
    from scipy import fft  # noqa: PLC0415 -- exponax's environment has none

    noise: NDArray[Any] = rng.standard_normal((count, *sides))
    squares: NDArray[np.float64] = np.zeros(tuple(sides))
    for axis, (side, closed) in enumerate(zip(sides, periodic, strict=True)):
        number = np.abs(fft.fftfreq(side, 1 / side)) if closed else np.arange(side) / 2
        squares = squares + np.square(number).reshape([-1 if other == axis else 1 for other in range(len(sides))])
    for axis, closed in enumerate(periodic, start=1):
        noise = fft.fft(noise, axis=axis) if closed else fft.dct(noise, axis=axis, norm="ortho")
    noise = noise * (4 * np.pi**2 * squares + tau**2) ** (-alpha / 2)
    for axis, closed in enumerate(periodic, start=1):
        noise = fft.ifft(noise, axis=axis) if closed else fft.idct(noise, axis=axis, norm="ortho")
    fields, axes = np.real(noise), tuple(range(1, noise.ndim))
    centred = fields - fields.mean(axis=axes, keepdims=True)
    return np.asarray(centred / centred.std(axis=axes, keepdims=True))


def heat(
    samples: int, folder: Path, rng: Generator, *, cells: tuple[int, int] = (24, 32), deviation: float = 0.8
) -> None:
    r"""Write `heat.h5` with `k`, `f`, `wind` and `T`: :math:`-\nabla\cdot(k\nabla T) + w\,\partial_x T = f`.

    The domain is [0, 1] x [0, 2]. T is 0 on both walls y = 0 and y = 1, and periodic in x. `deviation` is that of
    log k.
    """
    import h5py  # noqa: PLC0415 -- only this environment has it
    import skfem  # noqa: PLC0415
    from scipy.sparse import csr_matrix  # noqa: PLC0415
    from scipy.sparse.linalg import splu  # noqa: PLC0415
    from skfem.helpers import dot, grad  # noqa: PLC0415

    (rows, columns), height, width = cells, 1.0, 2.0
    across, up = np.linspace(0, width, 2 * columns + 1), np.linspace(0, height, 2 * rows + 1)
    basis = skfem.Basis(skfem.MeshQuad.init_tensor(across, up), skfem.ElementQuad1())
    x, y = np.asarray(basis.global_coordinates())
    within = (np.floor(y / height * rows).astype(int), np.floor(x / width * columns).astype(int))
    stiffness = skfem.BilinearForm(lambda u, v, w: w["k"] * dot(grad(u), grad(v)) + w["wind"] * grad(u)[0] * v)
    load = skfem.LinearForm(lambda v, w: w["f"] * v)
    x, y = basis.doflocs
    points = np.stack([np.where(np.isclose(x, width), 0, x), y]).round(9)  # both ends of x are one unknown
    unique, inverse = np.unique(points, axis=1, return_inverse=True)
    unknowns = (np.arange(basis.N), inverse.ravel())
    periodic = csr_matrix((np.ones(basis.N), unknowns), shape=(basis.N, unique.shape[1]))
    free = np.flatnonzero((unique[1] > 0) & (unique[1] < height))
    y, x = np.meshgrid((np.arange(rows) + 0.5) / rows, (np.arange(columns) + 0.5) / columns * width, indexing="ij")
    probes = basis.probes(np.array([x.ravel(), y.ravel()])) @ periodic

    def solve(k: NDArray[Any], f: NDArray[Any], wind: float) -> NDArray[np.float64]:
        matrix = periodic.T @ stiffness.assemble(basis, k=k[within], wind=wind) @ periodic
        vector = periodic.T @ load.assemble(basis, f=f[within])
        temperature = np.zeros(matrix.shape[0])
        temperature[free] = splu(matrix[free][:, free].tocsc()).solve(vector[free])
        return np.asarray(probes @ temperature).reshape(rows, columns)

    k = np.exp(deviation * random_fields(samples, cells, (False, True), 3, 4, rng))
    f = 3 + 5 * random_fields(samples, cells, (False, True), 3, 4, rng)
    wind = rng.uniform(-2, 2, samples)
    with h5py.File(folder / "heat.h5", "w") as target:
        target["k"], target["f"], target["wind"] = k, f, wind
        target["T"] = np.stack([solve(*each) for each in zip(k, f, wind, strict=True)])


def wind(_: int, folder: Path, rng: Generator) -> None:
    r"""Write `wind.npz` with 480 samples of `k`, `f`, `wind` and `T`: the equation of `heat` on 48 x 64 cells.

    Finite volumes on twice the cells, with harmonic means of k on the faces and central differences for the wind; T is
    the mean of four cells.
    """
    from scipy import sparse  # noqa: PLC0415 -- exponax's environment has none
    from scipy.sparse.linalg import splu  # noqa: PLC0415

    samples, (rows, columns), height, width = 480, (48, 64), 1.0, 2.0
    fine, dy, dx = (2 * rows, 2 * columns), height / (2 * rows), width / (2 * columns)
    number = np.arange(fine[0] * fine[1]).reshape(fine)
    east, north = np.roll(number, -1, axis=1).ravel(), number[1:].ravel()

    def solve(k: NDArray[Any], f: NDArray[Any], speed: float) -> NDArray[np.float64]:
        k, f = (each.repeat(2, axis=0).repeat(2, axis=1) for each in (k, f))
        flow_x = (2 * k * np.roll(k, -1, axis=1) / (k + np.roll(k, -1, axis=1)) / dx**2).ravel()
        flow_y = (2 * k[1:] * k[:-1] / (k[1:] + k[:-1]) / dy**2).ravel()
        walls = np.zeros(fine)
        walls[0], walls[-1] = 2 * k[0] / dy**2, 2 * k[-1] / dy**2
        here, south, carried = number.ravel(), number[:-1].ravel(), np.full(number.size, speed / (2 * dx))
        entries = [
            (here, here, flow_x), (east, east, flow_x), (here, east, carried - flow_x), (east, here, -carried - flow_x),
            (south, south, flow_y), (north, north, flow_y), (south, north, -flow_y), (north, south, -flow_y),
            (here, here, walls.ravel()),
        ]  # fmt: skip
        row, column, value = (np.concatenate(each) for each in zip(*entries, strict=True))
        matrix = sparse.csc_matrix((value, (row, column)), shape=(number.size, number.size))
        solution: NDArray[np.float64] = splu(matrix).solve(f.ravel())
        return np.asarray(solution.reshape(rows, 2, columns, 2).mean(axis=(1, 3)))

    k = np.exp(0.8 * random_fields(samples, (rows, columns), (False, True), 2.5, 6, rng))
    f = 3 + 5 * random_fields(samples, (rows, columns), (False, True), 2.5, 6, rng)
    speed = rng.uniform(-5, 5, samples)
    temperature = np.stack([solve(*each) for each in zip(k, f, speed, strict=True)])
    np.savez(folder / "wind.npz", k=k, f=f, wind=speed, T=temperature)


def darcy(samples: int, folder: Path, rng: Generator, *, side: int = 32, tau: float = 9.0) -> None:
    r"""Write `darcy.hdf5` in the layout of PDEBench: :math:`-\nabla\cdot(\nu\nabla u) = 1`, u = 0 on the sides.

    `nu` [N, X, Y] has the values 0.1 and 1 on `side` x `side` cells, `tensor` [N, 1, X, Y] is u at their centres. The
    regions of one value are the larger, the smaller `tau` is.
    """
    import h5py  # noqa: PLC0415 -- only this environment has it
    import skfem  # noqa: PLC0415
    from scipy.sparse.linalg import splu  # noqa: PLC0415
    from skfem.helpers import dot, grad  # noqa: PLC0415

    ends = np.linspace(0, 1, 2 * side + 1)
    basis = skfem.Basis(skfem.MeshQuad.init_tensor(ends, ends), skfem.ElementQuad1())
    x, y = np.floor(np.asarray(basis.global_coordinates()) * side).astype(int)
    stiffness = skfem.BilinearForm(lambda u, v, w: w["nu"] * dot(grad(u), grad(v)))
    load = skfem.LinearForm(lambda v, _: 1.0 * v).assemble(basis)
    free, centres = basis.complement_dofs(basis.get_dofs()), (np.arange(side) + 0.5) / side
    probes = basis.probes(np.stack(np.meshgrid(centres, centres, indexing="ij")).reshape(2, -1))

    def solve(nu: NDArray[Any]) -> NDArray[np.float64]:
        matrix, pressure = stiffness.assemble(basis, nu=nu[x, y]), np.zeros(basis.N)
        pressure[free] = splu(matrix[free][:, free].tocsc()).solve(load[free])
        return np.asarray(probes @ pressure).reshape(side, side)

    nu = np.where(random_fields(samples, (side, side), (False, False), 2, tau, rng) > 0, 1.0, 0.1)
    with h5py.File(folder / "darcy.hdf5", "w") as target:
        target["nu"] = nu.astype("f4")
        target["tensor"] = np.stack([solve(each) for each in nu])[:, None].astype("f4")
        target["x-coordinate"] = target["y-coordinate"] = centres.astype("f4")
        target.attrs["beta"] = 1.0


def darcy85(samples: int, folder: Path, rng: Generator) -> None:
    r"""Write `darcy85.npz`, the benchmark of Darcy flow: :math:`-\nabla\cdot(a\nabla u) = 1`, u = 0 on the walls.

    `a` [N, 85, 85] has the values 3 and 12 and `u` [N, 85, 85] is the pressure, solved on 421 x 421 cells by our finite
    volumes and taken at every fifth cell, from the first to the last one.
    """
    from physics import darcy as flow  # noqa: PLC0415 -- neuraloperator's and exponax's environments have no SciPy

    pairs = (flow.sample(each) for each in rng.spawn(samples))
    strided = [[flow.restrict(each, 85).astype(np.float32) for each in pair] for pair in pairs]
    a, u = (np.stack(each) for each in zip(*strided, strict=True))
    np.savez(folder / "darcy85.npz", a=a, u=u)


def advection(samples: int, folder: Path, rng: Generator) -> None:
    r"""Write `advection.npz`: :math:`\partial_t u = -c(x)\,\partial_x u + D\,\partial_{xx} u` from t = 0 to 0.5.

    A periodic line of length one; central differences on 256 points, of which every second is stored. Speed and
    diffusion are fields that do not change, so that one compiled equation serves all samples.
    """
    import pde  # noqa: PLC0415 -- only this environment has it
    from scipy.signal import resample  # noqa: PLC0415

    points = 128
    initial = random_fields(samples, (points,), (True,), 3, 10, rng)
    speed = np.exp(0.4 * random_fields(samples, (points,), (True,), 3, 6, rng))
    diffusion = np.exp(rng.uniform(np.log(5e-4), np.log(5e-3), samples))
    grid = pde.CartesianGrid([[0, 1]], [2 * points], periodic=True)
    equation = pde.PDE({"u": "-c * d_dx(u) + d * laplace(u)", "c": "0", "d": "0"})
    fine = [resample(each, 2 * points, axis=1) for each in (initial, speed)]
    states = [
        pde.FieldCollection([pde.ScalarField(grid, each) for each in one]) for one in zip(*fine, diffusion, strict=True)
    ]
    advance = pde.RungeKuttaSolver(equation, backend="numba").make_stepper(states[0], dt=5e-4)
    for state in states:
        advance(state, 0, 0.5)
    final = np.stack([state[0].data[::2] for state in states])
    np.savez(folder / "advection.npz", initial=initial, speed=speed, diffusion=diffusion, final=final)


def reaction(samples: int, folder: Path, rng: Generator) -> None:
    r"""Write `reaction.npz`: :math:`\partial_t c = 0.3\,\Delta c + c - c^3` from t = 0 to 2 on a periodic square."""
    import pde  # noqa: PLC0415 -- only this environment has it

    grid = pde.CartesianGrid([[0, 10.0]] * 2, [32] * 2, periodic=True)
    initial = 0.5 * random_fields(samples, (32, 32), (True, True), 2.5, 6, rng)
    solver = pde.EulerSolver(pde.PDE({"c": "0.3 * laplace(c) + c - c**3"}), backend="numba")
    advance = solver.make_stepper(pde.ScalarField(grid, initial[0]), dt=0.005)
    final = np.empty_like(initial)
    for start, end in zip(initial, final, strict=True):
        state = pde.ScalarField(grid, start)
        advance(state, 0, 2.0)
        end[:] = state.data
    np.savez(folder / "reaction.npz", x=initial, y=final)


def neuralop(_: int, folder: Path, __: Generator) -> None:
    """Copy the Darcy set of neuraloperator's wheel: 1000 training and 50 test samples of 16 x 16 points."""
    for name in ("darcy_train_16.pt", "darcy_test_16.pt"):
        with (files("neuralop") / "datasets" / "data" / name).open("rb") as stored, (folder / name).open("wb") as copy:
            shutil.copyfileobj(stored, copy)


def ks(samples: int, folder: Path, _: Generator) -> None:
    """Write `ks.npz` with `u` [trajectory, 41, 128]: exponax, period 22, 20 steps per frame of 2 units of time.

    Every trajectory begins 200 units of time after five random waves.
    """
    import exponax  # noqa: PLC0415 -- only its environment has it
    import jax  # noqa: PLC0415

    jax.config.update("jax_enable_x64", val=True)  # type: ignore[no-untyped-call] # jax has no annotation there
    frame = exponax.repeat(exponax.stepper.KuramotoSivashinskyConservative(1, 22.0, 128, 0.1), 20)
    waves = exponax.ic.RandomTruncatedFourierSeries(1, cutoff=5)
    start = jax.vmap(lambda key: waves(128, key=key))(jax.random.split(jax.random.PRNGKey(0), samples))
    settled = jax.jit(jax.vmap(exponax.repeat(frame, 100)))(start)
    found = jax.jit(jax.vmap(exponax.rollout(frame, 40, include_init=True)))(settled)
    np.savez(folder / "ks.npz", u=np.asarray(found)[:, :, 0].astype(np.float32))


def vorticity(samples: int, folder: Path, _: Generator) -> None:
    """Write `vorticity.npz` with `vorticity` [trajectory, 21, 32, 32]: exponax, 50 steps per frame of half a unit.

    The flow decays with the viscosity 4e-3 on a square of side 2 pi, from random waves of numbers up to five and of
    deviation 2. It is solved on 64 x 64 points, and the waves up to 15 of each axis are kept.
    """
    import exponax  # noqa: PLC0415 -- only its environment has it
    import jax  # noqa: PLC0415

    jax.config.update("jax_enable_x64", val=True)  # type: ignore[no-untyped-call] # jax has no annotation there
    frame = exponax.repeat(exponax.stepper.NavierStokesVorticity(2, 2 * np.pi, 64, 0.01, diffusivity=4e-3), 50)
    waves = exponax.ic.RandomTruncatedFourierSeries(2, cutoff=5, std_one=True)
    start = jax.vmap(lambda key: 2 * waves(64, key=key))(jax.random.split(jax.random.PRNGKey(0), samples))
    found = jax.jit(jax.vmap(exponax.rollout(frame, 20, include_init=True)))(start)
    np.savez(folder / "vorticity.npz", vorticity=halved(np.asarray(found)[:, :, 0]))


def gray_scott(samples: int, folder: Path, rng: Generator) -> None:
    """Write `gray_scott.npz` with `a` and `b` [trajectory, 21, 32, 32]: exponax, 20 steps per frame of 20 units.

    Two species react and diffuse, a' = 2e-5 lap a - a b^2 + .04 (1 - a) and b' = 1e-5 lap b + a b^2 - .1 b, on a
    square of side 0.64: spots that grow and divide, 40 units after a = 1 and b = 0 but for 6 to 13 Gaussian spots with
    b = .25. It is solved on 64 x 64 points, and the waves up to 15 of each axis are kept.
    """
    import exponax  # noqa: PLC0415 -- only its environment has it
    import jax  # noqa: PLC0415

    jax.config.update("jax_enable_x64", val=True)  # type: ignore[no-untyped-call] # jax has no annotation there
    length, side, diffusivities = 0.64, 64, {"diffusivity_1": 2e-5, "diffusivity_2": 1e-5}
    step = exponax.stepper.reaction.GrayScott(2, length, side, 1.0, feed_rate=0.04, kill_rate=0.06, **diffusivities)
    places, spots = length / side * np.arange(side), np.zeros((samples, side, side))
    for spot in spots:
        for _ in range(rng.integers(6, 14)):
            middle, width = rng.uniform(0, length, 2), rng.uniform(0.02, 0.05)
            x, y = (np.exp(-(((places - m + length / 2) % length - length / 2) ** 2) / (2 * width**2)) for m in middle)
            np.maximum(spot, np.outer(x, y), out=spot)
    start, frame = np.stack([1 - spots / 2, spots / 4], axis=1), exponax.repeat(step, 20)
    settled = jax.jit(jax.vmap(exponax.repeat(frame, 2)))(start)
    found = np.asarray(jax.jit(jax.vmap(exponax.rollout(frame, 20, include_init=True)))(settled))
    np.savez(folder / "gray_scott.npz", a=halved(found[:, :, 0]), b=halved(found[:, :, 1]))


def halved(fields: NDArray[Any]) -> NDArray[np.float32]:
    """Return periodic fields `[..., 64, 64]` on half of the points per axis: their waves up to 15."""
    waves = np.fft.rfft2(fields)[..., :17] / 4
    kept = np.concatenate([waves[..., :16, :], waves[..., -16:, :]], axis=-2)
    kept[..., 16, :] = kept[..., 16] = 0
    return np.fft.irfft2(kept).astype(np.float32)


MADE: dict[str, Callable[[int, Path, Generator], None]] = {
    each.__name__: each
    for each in (heat, wind, darcy, darcy85, advection, reaction, neuralop, ks, vorticity, gray_scott)
}
RELATED: dict[str, Callable[[int, Path, Generator], None]] = {
    "heat-earlier": partial(heat, deviation=0.4),
    "heat-coarse": partial(heat, cells=(12, 16)),
    "darcy-earlier": partial(darcy, tau=4.0),
    "darcy-coarse": partial(darcy, side=16),
}
"""Data sets related to others, whose files have the same names; each has random numbers of its own."""

if __name__ == "__main__":
    name, count, target = sys.argv[1:]
    seed = SEED if name in MADE else [SEED, 1 + [*RELATED].index(name)]
    (MADE | RELATED)[name](int(count), Path(target), np.random.default_rng(seed))
