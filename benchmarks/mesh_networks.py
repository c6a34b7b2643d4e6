"""Networks that predict the next state on a mesh from the state before: Transolver, FNO on a grid and MeshGraphNet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.attentions import AttentionNetwork, PhysicsAttention

CHANNELS, FNO_LAYERS = 32, 4
Array = NDArray[Any]


@dataclass(frozen=True)
class Meshes:
    """Trajectories on meshes.

    Attributes:
        coordinates: `[sample, point, 2]`.
        weight: 1 at points and 0 at padding `[sample, point, 1]`.
        steady: Fields, and numbers at every point, `[sample, point, feature]`.
        triangles: `[sample, triangle, 3]`, -1 at padding.
        states: `[sample, frame, point, component]`.
        known: What a network has computed of the meshes, a row per sample.
    """

    coordinates: Tensor
    weight: Tensor
    steady: Tensor
    triangles: Tensor
    states: Tensor
    known: tuple[Tensor, ...] = ()

    def __getitem__(self, rows: Tensor | slice) -> Meshes:
        most = int(self.weight[rows].sum(dim=1).max())  # points beyond those of the largest mesh are padding in all
        return Meshes(
            self.coordinates[rows, :most],
            self.weight[rows, :most],
            self.steady[rows, :most],
            self.triangles[rows],
            self.states[rows, :, :most],
            tuple(each[rows] for each in self.known),
        )

    def __len__(self) -> int:
        return len(self.states)


class Step(nn.Module):
    """Standardise states and steady fields, and add what a network makes of them to the state.

    Args:
        network: Maps features of the points `[batch, point, feature]`, the state first, and a batch of meshes to
            increments `[batch, point, component]`; `of_meshes` returns what it has to know of meshes.
        training: The samples whose statistics are used.
    """

    def __init__(self, network: Any, training: Meshes) -> None:
        super().__init__()
        self.network, valid = network, training.weight[:, :, 0] > 0
        self.steady_moments = moments(training.steady[valid])
        frames = training.states.transpose(1, 2)[valid]  # of all points together
        self.state_moments, self.increment_moments = moments(frames), moments(frames.diff(dim=1))

    def standard(self, state: Tensor, batch: Meshes) -> Tensor:
        """Return the increments in deviations."""
        (mean, spread), (middle, wide) = self.state_moments, self.steady_moments
        features = torch.cat([(state - mean) / spread, (batch.steady - middle) / wide], dim=2) * batch.weight
        found: Tensor = self.network(features, batch)
        return found

    def forward(self, state: Tensor, batch: Meshes) -> Tensor:
        """Return the next state `[batch, point, component]`, 0 at padding."""
        mean, spread = self.increment_moments
        return (state + self.standard(state, batch) * spread + mean) * batch.weight


def moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of the last axis' entries."""
    flat = values.flatten(0, -2)
    return flat.mean(dim=0), flat.std(dim=0).clamp_min(1e-6)


class Transolver(nn.Module):
    """Attention between slices, of coordinates and features."""

    def __init__(self, features: int, outputs: int, training: Meshes) -> None:
        super().__init__()
        self.scale = training.coordinates.abs().max()
        self.network = AttentionNetwork(PhysicsAttention, features + 2, outputs)

    def of_meshes(self, _: Meshes) -> tuple[Tensor, ...]:
        """Return nothing."""
        return ()

    def forward(self, features: Tensor, batch: Meshes) -> Tensor:
        """Return increments in deviations."""
        found: Tensor = self.network(torch.cat([batch.coordinates / self.scale, features], dim=2), batch.weight)
        return found


class GridNetwork(nn.Module):
    """neuraloperator's FNO on a grid: linear interpolation in triangles to its nodes, bilinear back to the points."""

    def __init__(self, features: int, outputs: int, training: Meshes, *, side: int, modes: int) -> None:
        from neuralop.models import FNO as Fourier  # noqa: PLC0415, N811 -- only its environment has it

        super().__init__()
        places = training.coordinates[training.weight[:, :, 0] > 0]
        self.side, self.low, self.high = side, places.amin(dim=0), places.amax(dim=0)
        ends = torch.linspace(-1, 1, side)
        self.places = torch.stack(torch.meshgrid(ends, ends, indexing="ij"))
        self.network = Fourier(
            n_modes=(modes, modes),
            hidden_channels=CHANNELS,
            in_channels=features + 3,
            out_channels=outputs,
            n_layers=FNO_LAYERS,
            lifting_channels=64,
            projection_channels=64,
            positional_embedding=None,
        )

    def of_meshes(self, meshes: Meshes) -> tuple[Tensor, ...]:
        """Return three points and their weights of every node, the nearest alone beyond the hull, and its distance."""
        from scipy.spatial import Delaunay, cKDTree  # noqa: PLC0415

        low, high = self.low.double().numpy(), self.high.double().numpy()
        nodes = low + (self.places.flatten(1).double().numpy().T + 1) / 2 * (high - low)
        made: list[tuple[Array, Array, Array]] = []
        for coordinates, weight in zip(meshes.coordinates, meshes.weight, strict=True):
            points = coordinates[weight[:, 0] > 0].double().numpy()
            net = Delaunay(points)
            found = net.find_simplex(nodes)
            distance, nearest = map(np.asarray, cKDTree(points).query(nodes))
            change = net.transform[found]
            first = np.einsum("nij,nj->ni", change[:, :2], nodes - change[:, 2])
            shares = np.concatenate([first, 1 - first.sum(axis=1, keepdims=True)], axis=1)
            inside = ((found >= 0) & np.isfinite(shares).all(axis=1))[:, None]
            corners = np.where(inside, net.simplices[found], nearest[:, None])
            made.append((corners, np.where(inside, shares, [[1.0, 0.0, 0.0]]), distance))
        corners, shares, distances = (np.stack(each) for each in zip(*made, strict=True))
        return torch.from_numpy(corners).long(), torch.from_numpy(shares).float(), torch.from_numpy(distances).float()

    def forward(self, features: Tensor, batch: Meshes) -> Tensor:
        """Return increments in deviations."""
        corners, shares, distances = batch.known
        count, width = len(features), features.shape[2]
        at = corners.flatten(1)[:, :, None].expand(-1, -1, width)
        picture = (features.gather(1, at).unflatten(1, corners.shape[1:]) * shares[..., None]).sum(dim=2)
        grid = picture.transpose(1, 2).reshape(count, width, self.side, self.side)
        places = self.places.expand(count, *self.places.shape)
        beyond = distances.reshape(count, 1, self.side, self.side)
        found = self.network(torch.cat([grid, places, beyond], dim=1))
        scaled = 2 * (batch.coordinates - self.low) / (self.high - self.low) - 1
        read_off = functional.grid_sample(found, scaled.flip(2)[:, :, None, :], align_corners=True)
        return read_off.flatten(2).transpose(1, 2)


def layers(features: int, width: int, outputs: int, *, normal: bool = True) -> nn.Sequential:
    """Return MeshGraphNet's network of nodes or edges: two hidden layers, and a layer norm."""
    found = (nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))
    return nn.Sequential(*found, *((nn.LayerNorm(outputs),) if normal else ()))


class Message(nn.Module):
    """A step of message passing: edges see their ends, then nodes see the sum of their edges; both are added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # The first layer of the edges' network, apart for the edge and its ends: nodes are fewer than edges.
        self.edge, self.ends = nn.Linear(width, width), nn.Linear(width, 2 * width, bias=False)
        hidden = (nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.LayerNorm(width))
        self.of_edges, self.of_nodes = nn.Sequential(*hidden), layers(2 * width, width, width)

    def forward(self, nodes: Tensor, edges: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """Return nodes `[node, feature]` and edges `[edge, feature]`; `ends` are senders and receivers."""
        sent, received = self.ends(nodes).chunk(2, dim=1)
        first = self.edge(edges) + sent.index_select(0, ends[0]) + received.index_select(0, ends[1])
        edges = edges + self.of_edges(first)
        total = torch.zeros_like(nodes).index_add(0, ends[1], edges)
        return nodes + self.of_nodes(torch.cat([nodes, total], dim=1)), edges


class MeshGraphNet(nn.Module):
    """Encoder, message passing on the edges of the triangles, both ways, and decoder; no absolute coordinates."""

    def __init__(self, features: int, outputs: int, training: Meshes, *, width: int, steps: int) -> None:
        super().__init__()
        [edges], self.length = self.of_meshes(training), 1.0
        apart, _ = self.graph(replace(training, known=(edges,)))
        self.length = float(apart[:, 2].mean())
        self.nodes, self.edges = layers(features, width, width), layers(3, width, width)
        self.messages = nn.ModuleList(Message(width) for _ in range(steps))
        self.out = layers(width, width, outputs, normal=False)

    def of_meshes(self, meshes: Meshes) -> tuple[Tensor, ...]:
        """Return the edges of every mesh, `[sample, edge, 2]`, each once, -1 at padding."""
        made = []
        for triangles in meshes.triangles:
            sides = torch.cat([triangles[:, [a, b]] for a, b in ((0, 1), (1, 2), (2, 0))])
            made.append(torch.unique(sides[sides[:, 0] >= 0].sort(dim=1).values, dim=0))
        return (nn.utils.rnn.pad_sequence(made, batch_first=True, padding_value=-1),)

    def graph(self, batch: Meshes) -> tuple[Tensor, Tensor]:
        """Return features of all edges, the way between their ends and its length, and senders and receivers."""
        [edges] = batch.known
        points = batch.coordinates.shape[1]
        first = torch.arange(len(edges))[:, None, None] * points
        ends = (edges + first)[edges[:, :, 0] >= 0].T
        ends = torch.cat([ends, ends.flip(0)], dim=1)
        way = torch.diff(batch.coordinates.flatten(0, 1)[ends], dim=0)[0] / self.length
        return torch.cat([way, way.norm(dim=1, keepdim=True)], dim=1), ends

    def forward(self, features: Tensor, batch: Meshes) -> Tensor:
        """Return increments in deviations."""
        apart, ends = self.graph(batch)
        nodes, edges = self.nodes(features.flatten(0, 1)), self.edges(apart)
        for message in self.messages:
            nodes, edges = message(nodes, edges, ends)
        found: Tensor = self.out(nodes).unflatten(0, features.shape[:2])
        return found
