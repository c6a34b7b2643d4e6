r"""The comparison of networks on meshes and clouds of points, at equal processor time.

Every sample has points of its own: plates with a hole (`research.plates`), Poisson's equation on stars of any size
(`physics.stars`) and in bent balls (`balls` below), and the pressure of the flow past bodies in space
(`physics.bodies`). The baselines are those of `benchmarks.attentions` and neuraloperator's FNO on an interpolated grid.
Their learning rates are tuned. Petrov is what `fit --preset quick` makes of the problem file: its race and its
validation are part of the time. The floor is the solution of the nearest training sample. Test samples are used once
per final training.
"""

from __future__ import annotations

import itertools
import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.attentions import AttentionNetwork, Gnot, LinearAttention, LowRankAttention, PhysicsAttention
from benchmarks.loop import OURS, PETROV, WITH_ADAMW, Samples, Settings, figures, measure, settings_of_rates, train
from benchmarks.networks import fields, moments

SAMPLES, TUNING = 650, 60.0  # processor seconds
FLOOR, FNO, TRANSOLVER, LINEAR, GNOT, LRSA, *_ = TITLES = (
    "nearest training sample",
    "FNO on a grid",
    "Transolver",
    "linear attention",
    "GNOT",
    "LRSA",
    WITH_ADAMW,
    PETROV,
)
BATCH = 8
GRIDS = {2: (64, 64), 3: (20, 20, 20)}  # of FNO, by the dimensions
CHANNELS = {2: 32, 3: 16}
IN_SPACE = frozenset({"balls", "bodies"})
RATES = {FNO: (2e-3, 5e-3)} | dict.fromkeys((TRANSOLVER, LINEAR, GNOT, LRSA), (1e-3, 3e-3))
MUON_RATES = dict.fromkeys((TRANSOLVER, LINEAR), (3e-3, 1e-2))  # not tried for FNO
Array = NDArray[np.float32]


# The samples


def balls(folder: Path, count: int) -> None:
    r"""Write meshes of bent balls with a source f and :math:`-\Delta u = f`, u = 0 on the surface, as VTU files.

    Linear elements (scikit-fem). The radius is :math:`R\exp\sum_k a_k\cos(q_k\cdot n + \phi_k)` in the direction n, and
    50 to 400 elements near the middle of the first of three Gaussian sources are refined: 860 to 1,220 points.
    """
    import meshio  # noqa: PLC0415 -- only the environment of this project has it
    import skfem  # noqa: PLC0415
    from skfem.helpers import dot, grad  # noqa: PLC0415

    logging.getLogger("skfem").setLevel(logging.ERROR)
    stiffness = skfem.BilinearForm(lambda u, v, _: dot(grad(u), grad(v)))
    mass = skfem.BilinearForm(lambda u, v, _: u * v)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        rng = np.random.default_rng([3, number])
        middles, widths = rng.uniform(-0.6, 0.6, (3, 3)), rng.uniform(0.25, 0.6, 3)
        ball = skfem.MeshTet.init_ball(3)
        distances = np.linalg.norm(ball.p[:, ball.t].mean(axis=1).T - middles[0], axis=1)
        ball = ball.refined(np.argsort(distances)[: int(rng.integers(50, 401))])
        size, waves = rng.uniform(0.7, 1.3), rng.normal(0, 1.5, (4, 3))
        radius = np.linalg.norm(ball.p, axis=0)
        phase = rng.uniform(0, 2 * np.pi, 4)[:, None] + waves @ (ball.p / np.maximum(radius, 1e-9))
        bent = size * np.exp(rng.normal(0, 0.12, 4) @ np.cos(phase))
        mesh = skfem.MeshTet(ball.p * (1 + (bent - 1) * np.minimum(1, radius)), ball.t)
        squares = ((mesh.p.T[:, None] - size * middles) ** 2).sum(axis=2)
        source = 1 + np.exp(-squares / (2 * widths**2)) @ rng.normal(0, 4, 3)
        basis = skfem.Basis(mesh, skfem.ElementTetP1())
        system = skfem.condense(
            stiffness.assemble(basis), mass.assemble(basis) @ source, D=mesh.boundary_nodes(), x=np.zeros(basis.N)
        )
        fields = {"source": source, "solution": skfem.solve(*system)}
        meshio.Mesh(mesh.p.T, {"tetra": mesh.t.T}, fields).write(folder / f"{number:04}.vtu")


def stars(folder: Path, count: int) -> None:
    """Write star-shaped domains with 270 to 2,270 nodes as VTU files."""
    import meshio  # noqa: PLC0415 -- only the environment of this project has it

    from physics.stars import sample  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        star = sample(np.random.default_rng([2, number]))
        points = np.column_stack([star.points, 0 * star.source])
        fields = {"source": star.source, "solution": star.solution}
        meshio.Mesh(points, {"triangle": star.triangles}, fields).write(folder / f"{number:04}.vtu")


def flows(folder: Path, count: int) -> None:
    """Write closed surfaces of 162 to 362 points with their normals and the pressure of the flow past them."""
    import meshio  # noqa: PLC0415 -- only the environment of this project has it

    from physics import bodies  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        rng = np.random.default_rng(number)
        points, triangles = bodies.body(rng, frequency=int(rng.integers(4, 7)))
        directions, areas = bodies.faces(points, triangles)
        normal = bodies.weights(len(points), triangles, areas) @ directions
        fields = {"normal": normal, "pressure": bodies.solve(points, triangles).pressure}
        meshio.Mesh(points, {"triangle": triangles}, fields).write(folder / f"{number:04}.vtu")


def prepared(name: str, folder: Path) -> dict[str, Any]:
    """Return where the checked samples of a problem are and what they mean; they are made if there are none."""
    from benchmarks.own_data import PROBLEMS, described  # noqa: PLC0415 -- imports more than the baselines' environment has
    from training.data.dataset import SampleFile  # noqa: PLC0415
    from training.data.prepare import prepare  # noqa: PLC0415
    from training.problems.problem_file import read_problem_file  # noqa: PLC0415

    file, meshes = folder / f"{name}.toml", folder / name
    if len([*meshes.glob("*.vtu")]) < SAMPLES:
        if name == "plates":
            command = [sys.executable, "-m", "research", "plates", str(meshes), "--samples", str(SAMPLES)]
            subprocess.run(command, check=True)  # noqa: S603 -- our own command
        else:
            {"stars": stars, "balls": balls, "bodies": flows}[name](meshes, SAMPLES)
    file.write_text((PROBLEMS / file.name).read_text())
    problem = read_problem_file(file)
    return described(file, SampleFile(prepare(problem, folder, folder), problem))


def split(request: dict[str, Any]) -> tuple[Samples, Samples]:
    """Return the training samples, and those of the requested split; see `networks.fields`.

    The inputs are coordinates `[sample, point, dimension]`, counts `[sample]`, and fields `[sample, point]`. The
    outputs `[sample, point, component]` are 0 at padding.
    """
    counts = request["prepared"]["inputs"].index("counts")

    def ordered(samples: Samples) -> Samples:
        coordinates, *others = samples.inputs
        output = samples.output if samples.output.ndim == 3 else samples.output[:, :, None]
        return Samples([coordinates, others.pop(counts - 1), *others], output)

    training, held = fields(request)
    return ordered(training), ordered(held)


def componentwise(samples: Samples) -> Samples:
    """Return samples whose vectors `[sample, point, component]` are a field per component, as baselines see them."""
    coordinates, counts, *fields = samples.inputs
    parts = [part for each in fields for part in (each.unbind(dim=2) if each.ndim == 3 else (each,))]
    return replace(samples, inputs=[coordinates, counts, *parts])


def cropped(batch: Samples) -> Samples:
    """Leave out the points that are padding in all samples of a batch."""
    most = int(batch.inputs[1].max())
    inputs = [each[:, :most] if each.ndim in {2, 3} else each for each in batch.inputs]  # not counts and images
    return replace(batch, inputs=inputs, output=batch.output[:, :most])


def images(samples: Samples, box: Tensor, grid: Sequence[int]) -> Tensor:
    """Interpolate the fields linearly on a grid, with the nearest point beyond the hull: `[sample, channel, *grid]`.

    The last channel is the distance to the nearest point.
    """
    from scipy.interpolate import LinearNDInterpolator  # noqa: PLC0415
    from scipy.spatial import cKDTree  # noqa: PLC0415

    coordinates, counts, *fields = (each.numpy() for each in samples.inputs)
    axes = [np.linspace(low, high, side) for (low, high), side in zip(box.tolist(), grid, strict=True)]
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(grid))
    found = []
    for index, count in enumerate(counts.astype(int)):
        points, values = coordinates[index, :count], np.stack([each[index, :count] for each in fields], axis=1)
        distance, nearest = map(np.asarray, cKDTree(points).query(nodes))
        linear = LinearNDInterpolator(points, values)(nodes)
        filled = np.where(np.isnan(linear), values[nearest], linear)
        found.append(np.concatenate([filled, distance[:, None]], axis=1).T.reshape(-1, *grid))
    return torch.from_numpy(np.stack(found).astype(np.float32))


# The networks


class PointNetwork(nn.Module):
    """Standardise coordinates, fields and outputs, and apply a network to features of the points.

    The network maps features `[batch, point, feature]`, of which the first are the coordinates, the weight of each
    point `[batch, point, 1]`, 0 at padding, and images, if there are any, to `[batch, point, component]`.
    """

    def __init__(self, network: nn.Module, samples: Samples, box: Tensor) -> None:
        super().__init__()
        self.network, self.box = network, box
        valid = weights(samples.inputs)[:, :, 0] > 0
        self.moments = [moments(each[valid]) for each in samples.inputs[2:] if each.ndim == 2]
        self.mean, self.deviation = samples.output[valid].mean(dim=0), samples.output[valid].std(dim=0)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the outputs `[batch, point, component]`, 0 at padding."""
        weight, fields = weights(inputs), [each for each in inputs[2:] if each.ndim == 2]
        low, high = self.box.T
        parts = [2 * (inputs[0] - low) / (high - low) - 1]
        parts += [((x - mean) / spread)[:, :, None] for x, (mean, spread) in zip(fields, self.moments, strict=True)]
        pictures = [each for each in inputs[2:] if each.ndim > 3]
        found: Tensor = self.network(torch.cat(parts, dim=2), weight, *pictures)
        return (found * self.deviation + self.mean) * weight


def weights(inputs: Sequence[Tensor]) -> Tensor:
    """Return 1 at valid points and 0 at padding: `[batch, point, 1]`."""
    coordinates, counts = inputs[:2]
    return (torch.arange(coordinates.shape[1]) < counts[:, None]).to(coordinates.dtype)[:, :, None]


class GridNetwork(nn.Module):
    """neuraloperator's FNO on interpolated fields, sampled at the points."""

    def __init__(self, pictures: Tensor, outputs: int, modes: int) -> None:
        from neuralop.models import FNO as Fourier  # noqa: PLC0415, N811 -- only its environment has it

        super().__init__()
        _, self.mean, self.deviation = standard(pictures)
        dimensions = pictures.ndim - 2
        ends = [torch.linspace(-1, 1, side) for side in pictures.shape[2:]]
        self.places = torch.stack(torch.meshgrid(*ends, indexing="ij"))
        self.network = Fourier(
            n_modes=(modes,) * dimensions,
            hidden_channels=CHANNELS[dimensions],
            in_channels=pictures.shape[1] + dimensions,
            out_channels=outputs,
            n_layers=4,
            lifting_channels=64,
            projection_channels=64,
            positional_embedding=None,
        )

    def forward(self, features: Tensor, _: Tensor, pictures: Tensor) -> Tensor:
        scaled = (pictures - self.mean) / self.deviation
        dimensions = pictures.ndim - 2
        places = self.places.expand(len(pictures), *self.places.shape)
        grid = self.network(torch.cat([scaled, places], dim=1))
        at = features[:, :, :dimensions].flip(2)  # `grid_sample` counts from the last axis
        at = at[:, :, None, :] if dimensions == 2 else at[:, :, None, None, :]
        return functional.grid_sample(grid, at, align_corners=True).flatten(2).transpose(1, 2)


class Nearest(nn.Module):
    """The outputs of the training sample whose images are nearest, of its point nearest to each point."""

    def __init__(self, training: Samples) -> None:
        super().__init__()
        self.training_samples, (self.pictures, self.mean, self.spread) = training, standard(training.inputs[-1])

    def forward(self, *inputs: Tensor) -> Tensor:
        from scipy.spatial import cKDTree  # noqa: PLC0415

        pictures, found = ((inputs[-1] - self.mean) / self.spread).flatten(1), list[Tensor]()
        for sample in torch.cdist(pictures, self.pictures.flatten(1)).argmin(dim=1).tolist():
            coordinates, counts = (each[sample] for each in self.training_samples.inputs[:2])
            known = cKDTree(coordinates[: int(counts)].numpy())
            _, index = known.query(inputs[0][len(found)].numpy())
            found.append(self.training_samples.output[sample][torch.from_numpy(index)])
        return torch.stack(found) * weights(inputs)


def standard(pictures: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return standardised images, and mean and deviation of their channels."""
    axes = tuple(index for index in range(pictures.ndim) if index != 1)
    mean, spread = pictures.mean(axes, keepdim=True), pictures.std(axes, keepdim=True)
    return (pictures - mean) / spread, mean, spread


# The trainings


def candidates(title: str, dimensions: int) -> list[dict[str, Any]]:
    """Return the candidates of a network: its name, sizes, and settings of the loop."""
    if title == FLOOR:
        return [{"network": title, "sizes": {}}]
    if title in OURS:
        return [{"network": "petrov", "sizes": {}} | ({"settings": OURS[title]} if OURS[title] else {})]
    sizes = {"modes": 24 if dimensions == 2 else 12} if title == FNO else {}
    tried = settings_of_rates(BATCH, RATES[title], MUON_RATES.get(title, ()))
    return [{"network": title, "sizes": sizes, "settings": each} for each in tried]


def compare(
    names: Sequence[str],
    titles: Sequence[str],
    seconds: Sequence[float],
    seeds: int,
    kept: Any,
    folder: Path,
    workers: int = 1,
) -> Iterator[dict[str, Any]]:
    """Tune the baselines among some networks, then train all of these."""
    from benchmarks.own_data import tuned_and_trained  # noqa: PLC0415 -- imports more than the baselines' environment has

    data = {name: prepared(name, folder) for name in names}
    choices = {
        (name, title): candidates(title, 3 if name in IN_SPACE else 2)
        for name, title in itertools.product(names, titles)
    }
    yield from tuned_and_trained(choices, data, seconds, seeds, kept, workers, "benchmarks.points", tried=TUNING)


def network_of(request: dict[str, Any], training: Samples, box: Tensor) -> nn.Module:
    """Build a baseline for its training samples."""
    dimensions, outputs = training.inputs[0].shape[2], training.output.shape[2]
    features = dimensions + sum(each.ndim == 2 for each in training.inputs[2:])
    if request["network"] == FLOOR:
        return Nearest(training)
    if request["network"] == FNO:
        return PointNetwork(GridNetwork(training.inputs[-1], outputs, **request["sizes"]), training, box)
    if request["network"] == GNOT:
        return PointNetwork(Gnot(features, outputs, dimensions), training, box)
    attention = {TRANSOLVER: PhysicsAttention, LINEAR: LinearAttention, LRSA: LowRankAttention}[request["network"]]
    return PointNetwork(AttentionNetwork(attention, features, outputs), training, box)


class Fitted(nn.Module):
    """A trained operator with the arguments of a baseline."""

    def __init__(self, operator: nn.Module) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, coordinates: Tensor, counts: Tensor, *fields: Tensor) -> Tensor:
        found: Tensor = self.operator(coordinates, *fields, counts)
        return found if found.ndim == 3 else found[:, :, None]


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Train a network and measure it on the requested split.

    Args:
        request: `network`, its `sizes` and `settings`, `seconds`, `seed`, `split`, and `prepared` samples.

    Returns:
        The errors: mean, standard error and all; parameters, steps, epochs and processor seconds.
    """
    torch.set_num_threads(1)
    torch.manual_seed(request["seed"])
    training, held = split(request)
    facts: dict[str, Any] = {}
    if request["network"] == "petrov":
        from benchmarks.own_data import fitted  # noqa: PLC0415 -- imports more than the baselines' environment has

        operator, facts = fitted(request, "points")
        network: nn.Module = Fitted(operator)
    else:
        training, held = componentwise(training), componentwise(held)
        valid = weights(training.inputs)[:, :, 0] > 0
        places = training.inputs[0][valid]
        box = torch.stack([places.amin(dim=0), places.amax(dim=0)], dim=1)
        if request["network"] in {FNO, FLOOR}:
            grid = GRIDS[len(box)]
            training, held = (
                replace(each, inputs=[*each.inputs, images(each, box, grid)]) for each in (training, held)
            )
        network = network_of(request, training, box)
        if request["network"] != FLOOR:
            settings = Settings(**request["settings"])
            used, steps = train(network, training, settings, request["seconds"], request["seed"], cropped)
            facts = {"epochs": steps * settings.batch / len(training), "steps": steps, "seconds": used}
    return figures(measure(network, held), facts | {"parameters": sum(each.numel() for each in network.parameters())})


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
