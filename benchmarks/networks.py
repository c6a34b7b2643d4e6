"""The baselines of the trained networks on grids, and the program that trains one of them.

The module needs torch, NumPy and the packages of the network alone, because it runs in the environment of each network:
`python -m benchmarks.networks REQUEST` trains one (see `main`), with the request and the result as JSON.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.attentions import GridAttention, LowRankAttention, PhysicsAttention
from benchmarks.loop import LOST, Samples, Settings, figures, measure, parted, relative, train

DECADES = 30.0  # a positive quantity that spans more enters by its logarithm, as in the presets of own data
CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}  # by the axes of the grid


class ChannelNetwork(nn.Module):
    """Standardise fields and parameters, join them and the coordinates as channels, and apply a network.

    The network maps channels to one channel per component of the output; with `increment` they are added to the first
    input. Fields of several components have these on their last axis.
    """

    def __init__(self, network: nn.Module, samples: Samples, *, increment: bool = False) -> None:
        super().__init__()
        self.network, self.increment, self.components = network, increment, samples.components
        self.logarithmic = [bool(each.min() > 0 and each.max() > DECADES * each.min()) for each in samples.parts]
        self.statistics = [moments(self.scaled(each, index)) for index, each in enumerate(samples.parts)]
        learned = samples.output - samples.inputs[0] if increment else samples.output
        found = torch.tensor([moments(each) for each in parted([learned], len(samples.grid))])
        self.mean, self.deviation = found.T if samples.components else found[0]
        ends = [(torch.arange(side) + 0.5) / side for side in samples.grid]
        self.coordinates = torch.stack(torch.meshgrid(*ends, indexing="ij"))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the output field `[batch, *grid]`, or `[batch, *grid, component]`."""
        grid = self.coordinates.shape[1:]
        parts = [self.channel(each, index) for index, each in enumerate(parted(inputs, len(grid)))]
        parts.append(self.coordinates.expand(len(inputs[0]), *self.coordinates.shape))
        found: Tensor = self.network(torch.cat([each.expand(-1, -1, *grid) for each in parts], dim=1))
        output: Tensor = (found.movedim(1, -1) if self.components else found[:, 0]) * self.deviation + self.mean
        return inputs[0] + output if self.increment else output

    def channel(self, values: Tensor, index: int) -> Tensor:
        """Return one input, standardised, as `[batch, 1, *grid]`, or with sides of length one."""
        mean, deviation = self.statistics[index]
        standard = (self.scaled(values, index) - mean) / deviation
        return standard.reshape(len(values), 1, *(values.shape[1:] or (1,) * (self.coordinates.ndim - 1)))

    def scaled(self, values: Tensor, index: int) -> Tensor:
        """Return an input or its logarithm."""
        return torch.log(values) if self.logarithmic[index] else values


def moments(values: Tensor) -> tuple[float, float]:
    """Return mean and standard deviation."""
    return float(values.mean()), float(values.std())


def fno(samples: Samples, *, modes: int, channels: int = 32, increment: bool = False) -> nn.Module:
    """Return neuraloperator's Fourier neural operator (Li et al., ICLR 2021), with the widths of its Darcy example."""
    from neuralop.models import FNO  # noqa: PLC0415 -- only its environment has it

    network = FNO(
        n_modes=tuple(min(modes, side) for side in samples.grid),
        hidden_channels=channels,
        in_channels=len(samples.parts) + len(samples.grid),
        out_channels=samples.components or 1,
        n_layers=4,
        lifting_channels=64,
        projection_channels=64,
    )
    convolutions = network.fno_blocks.convs
    convolutions.weight = nn.ModuleList(map(WavesFirst, convolutions.weight))
    return ChannelNetwork(network, samples, increment=increment)


class WavesFirst(nn.Module):
    """Keep neuraloperator's spectral weight `[input, output, *wave]` as a real matrix per wave, which Muon can step."""

    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.inputs, self.outputs, *self.waves = weight.shape
        first = torch.view_as_real(weight.tensor.detach()).movedim((0, 1), (-3, -2))
        self.kept = nn.Parameter(first.reshape(-1, self.inputs, 2 * self.outputs).clone())

    def __getitem__(self, part: tuple[slice, ...]) -> Tensor:
        """Return a part of the complex weight, by the axes that it has in neuraloperator."""
        whole = torch.view_as_complex(self.kept.reshape(*self.waves, self.inputs, self.outputs, 2))
        return whole.movedim((-2, -1), (0, 1))[part]


def unet(samples: Samples) -> nn.Module:
    """Return MONAI's U-Net of its default size, with batch normalisation."""
    from monai.networks.nets import BasicUNet  # noqa: PLC0415 -- only its environment has it

    axes, outputs = len(samples.grid), samples.components or 1
    network = BasicUNet(axes, len(samples.parts) + axes, outputs, norm=("batch", {"affine": True}))
    return ChannelNetwork(network, samples)


class FactorisedLayer(nn.Module):
    """A layer of the factorised FNO: a map of the low waves of each axis; a pointwise network of their sum, added."""

    def __init__(self, modes: Sequence[int], channels: int) -> None:
        super().__init__()
        self.waves = nn.ParameterList(torch.randn(count, channels, channels, 2) / channels for count in modes)
        self.network = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, channel, *grid]`."""
        total = torch.zeros_like(x)
        for axis, weight in enumerate(self.waves, start=2):
            last = x.movedim(axis, -1)
            low = torch.fft.rfft(last, norm="ortho")[..., : len(weight)]
            mapped = torch.einsum("bi...k,kio->bo...k", low, torch.view_as_complex(weight))
            total = total + torch.fft.irfft(mapped, n=last.shape[-1], norm="ortho").movedim(-1, axis)
        found: Tensor = x + self.network(total.movedim(1, -1)).movedim(-1, 1)
        return found


def factorised(samples: Samples, *, modes: int) -> nn.Module:
    """Return the factorised FNO (Tran et al., ICLR 2023), as wide as FNO."""
    sides, channels = samples.output.shape[1:], 32
    conv = CONVOLUTIONS[len(sides)]
    layers = [FactorisedLayer([min(modes, side) // 2 for side in sides], channels) for _ in range(4)]
    out = (conv(channels, 2 * channels, 1), nn.GELU(), conv(2 * channels, 1, 1))
    network = nn.Sequential(conv(len(samples.inputs) + len(sides), channels, 1), *layers, *out)
    return ChannelNetwork(network, samples)


class ConvNextBlock(nn.Module):
    """A ConvNeXt block (Liu et al., CVPR 2022): a depthwise convolution and a pointwise network, added."""

    def __init__(self, channels: int, axes: int) -> None:
        super().__init__()
        self.depthwise = CONVOLUTIONS[axes](channels, channels, 7, padding=3, groups=channels)
        layers = (nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))
        self.network = nn.Sequential(nn.LayerNorm(channels), *layers)
        self.scale = nn.Parameter(torch.full((channels,), 1e-6))  # starts as the identity, almost

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, channel, *grid]`."""
        found: Tensor = x + (self.scale * self.network(self.depthwise(x).movedim(1, -1))).movedim(-1, 1)
        return found


class ConvNextUNet(nn.Module):
    """The U-Net of ConvNeXt blocks that The Well is measured with (Ohana et al., NeurIPS 2024), for one axis, too."""

    def __init__(self, inputs: int, outputs: int, axes: int) -> None:
        super().__init__()
        conv, up = CONVOLUTIONS[axes], (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[axes - 1]
        wide = [32, 64, 128, 256]
        self.first, self.last = conv(inputs, wide[0], 3, padding=1), conv(wide[0], outputs, 3, padding=1)
        pairs = [*itertools.pairwise(wide)]
        self.down = nn.ModuleList(nn.Sequential(nn.GroupNorm(1, a), conv(a, b, 2, stride=2)) for a, b in pairs)
        self.up = nn.ModuleList(nn.Sequential(nn.GroupNorm(1, b), up(b, a, 2, stride=2)) for a, b in pairs)
        self.joined = nn.ModuleList(conv(2 * each, each, 1) for each in wide[:-1])
        self.before, self.after = (nn.ModuleList(ConvNextBlock(each, axes) for each in wide) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, channel, *grid]`, whose sides halve as often as there are levels."""
        x, kept = self.first(x), list[Tensor]()
        for block, down in zip(self.before, self.down, strict=False):
            kept.append(block(x))
            x = down(kept[-1])
        x = self.after[-1](self.before[-1](x))
        for level in reversed(range(len(self.down))):
            x = self.after[level](self.joined[level](torch.cat([self.up[level](x), kept[level]], dim=1)))
        found: Tensor = self.last(x)
        return found


def convnext(samples: Samples) -> nn.Module:
    """Return the ConvNeXt U-Net."""
    axes, outputs = len(samples.grid), samples.components or 1
    return ChannelNetwork(ConvNextUNet(len(samples.parts) + axes, outputs, axes), samples)


def attention(samples: Samples, *, kind: str) -> nn.Module:
    """Return Transolver or LRSA for the points of a grid."""
    kinds = {"transolver": PhysicsAttention, "lrsa": LowRankAttention}
    channels = len(samples.inputs) + samples.output.ndim - 1
    return ChannelNetwork(GridAttention(kinds[kind], channels), samples)


@torch.inference_mode()
def rollout(network: nn.Module, state: Tensor, numbers: Sequence[Tensor], frames: int) -> Tensor:
    """Return the frames that follow a state, `[trajectory, frame, *grid]`."""
    network.eval()
    found = []
    for _ in range(frames):
        state = network(state, *numbers)
        found.append(state)
    return torch.stack(found, dim=1)


def rollout_errors(frames: Tensor, truth: Tensor, components: int = 0) -> Tensor:
    """Return the relative L2 errors `[trajectory, frame]` of rollouts, `LOST` where they are larger or not finite."""
    return relative(frames, truth, 2, components).nan_to_num(nan=LOST, posinf=LOST).clamp(max=LOST)


class Rollout:
    """The rollouts of an FNO that `main` has trained, by the request of its training, as a side."""

    def __init__(self, request: dict[str, Any], frames: int) -> None:
        torch.set_num_threads(1)
        training, _ = trajectories(request)
        self.network, self.frames = fno(training, **request["sizes"]), frames
        with np.load(request["weights"]) as file, torch.no_grad():
            for name, weight in self.network.named_parameters():
                weight.copy_(torch.from_numpy(file[name]))

    def __call__(self, state: NDArray[Any], *numbers: NDArray[Any]) -> Tensor:
        """Return the frames that follow."""
        first, *others = (torch.from_numpy(each.astype(np.float32)) for each in (state, *numbers))
        return rollout(self.network, first, others, self.frames)


def trajectories(request: dict[str, Any]) -> tuple[Samples, list[Tensor]]:
    """Return single steps of the training trajectories, and states and parameters of the trajectories to be measured.

    Args:
        request: `file` with `state` [trajectory, frame, *grid] and, unless it is null, `parameter` [trajectory] by
            these names, several names of a list as components of the state on its last axis; `held`: how many are kept
            apart at the end for validation and, after them, for the test, and `split`: which of both are to be
            measured, the test by default.
    """
    with np.load(request["file"]) as file:
        fields = request["state"] if isinstance(request["state"], list) else []
        states = torch.from_numpy(np.stack([file[n] for n in fields], axis=-1) if fields else file[request["state"]])
        numbers = [torch.from_numpy(file[request["parameter"]])] if request["parameter"] else []
    validation, test = request["held"]
    trained, measured = slice(-validation - test), slice(-test, None)
    if request.get("split") == "validation":
        measured = slice(-validation - test, -test)
    before, after = states[trained, :-1].flatten(0, 1), states[trained, 1:].flatten(0, 1)
    repeated = [each[trained].repeat_interleave(states.shape[1] - 1) for each in numbers]
    return Samples([before, *repeated], after, len(fields)), [each[measured] for each in (states, *numbers)]


def fields(request: dict[str, Any]) -> tuple[Samples, Samples]:
    """Return the training samples, and those of the requested split.

    Args:
        request: `prepared` (file, names of inputs and output, numbers of samples per split), `split`, and
            `samples`: how many training samples are used, where they are not all; `seed` draws them as `fit` does.
    """
    import h5py  # noqa: PLC0415 -- only trainings on fields need it

    prepared = request["prepared"]
    with h5py.File(prepared["file"], "r") as file:
        inputs = [torch.from_numpy(file[name][:]) for name in prepared["inputs"]]
        whole = Samples(inputs, torch.from_numpy(file[prepared["output"]][:]))
    train_, validation, _ = prepared["counts"]
    held = {"validation": slice(train_, train_ + validation), "test": slice(train_ + validation, None)}
    drawn = np.random.default_rng(request.get("seed")).permutation(train_)[: request.get("samples", train_)]
    return whole[torch.from_numpy(np.sort(drawn))], whole[held[request["split"]]]


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Train a network and measure it.

    Args:
        request: `network` (a key of `BASELINES`, `petrov` for what `fit` trains, or `operator` for its network in this
            loop) and its `sizes`, `settings` of the loop, `seconds`, `seed`, and what `fields` reads; or, for steps of
            trajectories, what `trajectories` reads, and `weights`, a file.

    Returns:
        The errors: mean, standard error and all of them, or means per frame; parameters, steps and processor seconds.
    """
    torch.set_num_threads(1)
    torch.manual_seed(request["seed"])
    stepping = "state" in request
    training, held = trajectories(request) if stepping else fields(request)
    move, facts = None, dict[str, Any]()
    if request["network"] in BASELINES:
        network = BASELINES[request["network"]](training, **request["sizes"])
    else:
        from benchmarks import own_data  # noqa: PLC0415 -- only the environment of this project has what it imports

        if request["network"] == "petrov":
            network, facts = own_data.fitted(request, "own-data")
        else:
            network = own_data.operator(request["prepared"], training, **request["sizes"])
            move = own_data.moved(request["prepared"], request["seed"]) if request.get("symmetries") else None
    if not facts:
        settings = Settings(**request["settings"])
        used, steps = train(network, training, settings, request["seconds"], request["seed"], move)
        facts = {"epochs": steps * settings.batch / len(training), "steps": steps, "seconds": used}
    if stepping:  # for `Rollout`
        np.savez(request["weights"], **{name: each.detach().numpy() for name, each in network.named_parameters()})
    facts["parameters"] = sum(each.numel() for each in network.parameters())
    if isinstance(held, Samples):
        if request.get("averaged"):
            network = own_data.MeanOverFlips(network, request["prepared"])
        return figures(measure(network, held), facts)
    states, *numbers = held
    frames = rollout(network, states[:, 0], numbers, states.shape[1] - 1)
    return {"errors": rollout_errors(frames, states[:, 1:]).mean(dim=0).tolist()} | facts


BASELINES: dict[str, Any] = {
    "fno": fno,
    "factorised": factorised,
    "unet": unet,
    "convnext": convnext,
    "attention": attention,
}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
