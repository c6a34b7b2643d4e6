"""Differences of the graph of a derivative and automatic differentiation of its network, and central differences."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from export.graphs.deployable import Deployable, shape_checks_off
from export.parity import Graph, ParityError, largest
from export.probes import Statistics, draw, shapes
from export.signature import PRODUCT_FRAMES
from schema.card import FRAME, GRID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import nn

    from export.signature import Signature
    from schema.card import Kind

    Network = Callable[..., Tensor | tuple[Tensor, ...]]
    Arrays = dict[str, NDArray[Any]]

#: Largest difference to float32 eager, relative to the largest entry of each tensor.
TOLERANCE = 1e-4

#: Largest difference that rounding of float32 eager excuses.
ROUNDING = 1e-3

#: Points of the largest sample that is compared: automatic differentiation keeps every intermediate field. Where all
#: grids of a model have more, the smallest one is compared.
LARGEST = 50_000

#: The step of central differences, relative to the largest entry of each input.
STEP = 1e-6

#: Relative noise on inputs of central differences: a network has a kink where two entries are its extreme value.
NOISE = 0.01


@dataclass(frozen=True)
class Agreement:
    """The largest difference of any tensor of a derivative, relative to its largest entry, for a shape of the inputs.

    `shape` holds batch and points per axis.
    """

    shape: tuple[int, ...]
    frames: int | None  # of a trajectory
    float32: float  # to float32 eager, which decides
    float64: float
    rounding: float  # of float32 eager to float64 eager


@dataclass(frozen=True)
class Derivative:
    """A product of a network's Jacobian and a vector, by automatic differentiation in arithmetic of a type."""

    kind: Kind
    signature: Signature
    network: Network
    dtype: torch.dtype

    def __call__(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return outputs and gradients, or tangents, by name."""
        inputs, names, function = self.tensors(arrays, "", self.arguments), self.names, self.function(arrays)
        if self.kind == "vjp":
            outputs, pull = torch.func.vjp(function, *inputs)  # type: ignore[misc]  # two results without aux
            found = pull(tuple(self.tensors(arrays, "cotangents.", names)))
            found = [g[:, None] if g.ndim == 1 else g for g in found]
            made = [f"gradients.{name}" for name in self.arguments]
        else:
            tangents = tuple(self.tensors(arrays, "tangents.", self.arguments))
            outputs, pull = torch.func.vjp(function, *inputs)  # type: ignore[misc]  # as above
            _, push = torch.func.vjp(pull, tuple(torch.zeros_like(output) for output in outputs))  # type: ignore[misc]
            found, made = push(tangents)[0], [f"tangents.{name}" for name in names]
        tensors = zip((*names, *made), (*outputs, *found), strict=True)
        return {name: tensor.detach().numpy() for name, tensor in tensors}

    @property
    def names(self) -> list[str]:
        return [output.name for output in self.signature.outputs]

    @property
    def arguments(self) -> list[str]:
        """Names of the arguments that are differentiated: not of the one whose shape counts frames or points."""
        return [name for name in self.signature.argument_names if name not in {FRAME, GRID}]

    def function(self, arrays: Mapping[str, NDArray[Any]]) -> Callable[..., tuple[Tensor, ...]]:
        """Return the network as a function of `arguments` with a tuple of outputs, for as many frames as the arrays."""
        frame = [torch.from_numpy(arrays[name]) for name in (FRAME, GRID) if name in self.signature.argument_names]

        def outputs(*inputs: Tensor) -> tuple[Tensor, ...]:
            found = self.network(*inputs, *frame)
            return (found,) if isinstance(found, Tensor) else tuple(found)

        return outputs

    def tensors(self, arrays: Arrays, role: str, names: Sequence[str]) -> list[Tensor]:
        return [torch.from_numpy(arrays[role + name]).to(self.dtype) for name in names]


def evidence(run: Graph, kind: Kind, network: nn.Module, signature: Signature, like: Statistics) -> dict[str, Any]:
    """Compare a derivative's graph with automatic differentiation, and return what the certificate says of it."""
    single, double = (
        Derivative(kind, signature, without_quality(network, signature, dtype), dtype)
        for dtype in (torch.float32, torch.float64)
    )
    with shape_checks_off():
        compared = compare(run, single, double, like)
        difference = central_difference(double, like)
    gate(compared, difference)
    rows = [{key: value for key, value in asdict(one).items() if value is not None} for one in compared]
    return {
        "tolerance": TOLERANCE,
        "comparisons": [row | {"shape": list(row["shape"])} for row in rows],
        "central_difference": difference,
    }


def without_quality(network: nn.Module, signature: Signature, dtype: torch.dtype) -> nn.Module:
    """Return a network as it is exported, without its quality outputs."""
    deployed: Any = Deployable(network, signature.argument_names, dtype)
    deployed.forward = deployed.operator.forward
    found: nn.Module = deployed
    return found


def compare(run: Graph, single: Derivative, double: Derivative, like: Statistics | None = None) -> list[Agreement]:
    """Compare the graph of a derivative with automatic differentiation in float32 and float64."""
    signature = single.signature
    smallest, *others = shapes(signature)
    compared = [smallest, *(shape for shape in others if math.prod(shape[1:]) <= LARGEST)]
    found = [compare_at(shape, run, single, double, like) for shape in compared]
    if signature.frames is not None:
        most = min(PRODUCT_FRAMES, signature.frames.maximum)
        found.append(compare_at(compared[0], run, single, double, like, most))
    return found


def compare_at(
    shape: tuple[int, ...],
    run: Graph,
    single: Derivative,
    double: Derivative,
    like: Statistics | None = None,
    frames: int | None = None,
) -> Agreement:
    """Compare for one shape, and frames of a trajectory."""
    described = single.signature.product(single.kind)
    drawn = draw(shape, described, frames=frames, like=like)
    arrays = dict(zip(described.argument_names, drawn, strict=True))
    eager32, eager64 = single(arrays), double(arrays)
    found = dict(zip(described.result_names, run(*drawn), strict=True))
    for name, array in found.items():
        if array.shape != eager32[name].shape:
            raise ParityError(f"for the input {shape}: expected {name} {eager32[name].shape} but got {array.shape}")
    count = arrays[FRAME].shape[1] if FRAME in arrays else None
    pairs = (found, eager32), (found, eager64), (eager32, eager64)
    return Agreement(shape, count, *(farthest(one, other, like or {}) for one, other in pairs))


def farthest(found: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]], like: Statistics) -> float:
    """Return the largest distance of two sets of tensors; an output that is a number is of the size of the data's."""
    sizes = {name: float(like[name].size.max()) for name in found if name in like}
    return largest(distance(found[name], expected[name], sizes.get(name, 0.0)) for name in found)


def gate(agreements: Sequence[Agreement], difference: float) -> None:
    """Accept only derivatives within `TOLERANCE` of automatic differentiation and of central differences.

    Where float32 eager itself is farther than that from float64, twice its own rounding is accepted, up to `ROUNDING`.
    The tolerance of a trajectory grows with its frames: a chaotic one amplifies rounding from frame to frame.
    """
    for one in agreements:
        allowed = max(TOLERANCE * (one.frames or 1), min(2 * one.rounding, ROUNDING))
        if not one.float32 <= allowed:
            raise ParityError(
                f"for the input {one.shape}: expected a difference to float32 eager of at most {allowed:.2g} of the "
                f"largest entry but found {one.float32:.2g}"
            )
    if not difference <= TOLERANCE:
        raise ParityError(
            f"expected automatic differentiation within {TOLERANCE:g} of central differences but found {difference:.2g}"
        )


def central_difference(double: Derivative, like: Statistics | None = None) -> float:
    """Return the distance of automatic differentiation to central differences, in float64 on the smallest grid.

    The Jacobian is applied to one direction t, a step of which changes every input by the same share of its largest
    entry. Both t and the products with it are compared: J t entry by entry, and the inner product of t and the gradient
    for a vector-Jacobian product.
    """
    signature = double.signature
    described = signature.product(double.kind)
    shape = next(iter(shapes(signature)))
    drawn = zip(described.argument_names, draw(shape, described, like=like), strict=True)
    arrays = {name: varied(array, seed) for seed, (name, array) in enumerate(drawn)}
    inputs = {name: arrays[name].astype(np.float64) for name in double.arguments}
    sizes = {name: float(np.abs(array).max()) or 1.0 for name, array in inputs.items()}
    found = double(arrays)
    if double.kind == "vjp":
        gradients = {name: found[f"gradients.{name}"].reshape(array.shape) for name, array in inputs.items()}
        steps = {name: sizes[name] * along(gradient) for name, gradient in gradients.items()}
    else:
        steps = {name: sizes[name] * along(arrays[f"tangents.{name}"]) for name in inputs}
        found = double(arrays | {f"tangents.{name}": step for name, step in steps.items()})
    function = double.function(arrays)

    def after(size: float) -> dict[str, NDArray[Any]]:
        moved = (torch.from_numpy(array + size * steps[name]) for name, array in inputs.items())
        with torch.inference_mode():
            return {name: output.numpy() for name, output in zip(double.names, function(*moved), strict=True)}

    ahead, behind = after(STEP), after(-STEP)
    slopes = {name: (ahead[name] - behind[name]) / (2 * STEP) for name in ahead}
    if double.kind == "jvp":
        return largest(distance(found[f"tangents.{name}"], slope) for name, slope in slopes.items())
    by_steps = sum(float((slope * arrays[f"cotangents.{name}"]).sum()) for name, slope in slopes.items())
    by_gradients = sum(float((gradients[name] * step).sum()) for name, step in steps.items())
    return abs(by_steps - by_gradients) / max(abs(by_gradients), np.finfo(np.float64).tiny)


def varied(array: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Return an array with relative noise."""
    noise = np.random.default_rng(seed).standard_normal(array.shape)
    return (array * (1 + NOISE * noise)).astype(np.float32)


def along(gradient: NDArray[Any]) -> NDArray[np.float64]:
    """Return a gradient as a direction whose largest entry is 1."""
    size = float(np.abs(gradient).max())
    return np.asarray(gradient / size if size else gradient, np.float64)


def distance(found: NDArray[Any], expected: NDArray[Any], least: float = 0.0) -> float:
    """Return the largest difference, relative to the largest entry, or to a least size of it."""
    scale = max(float(np.abs(expected).max()), least)
    difference = float(np.abs(found.astype(np.float64) - expected).max())
    return difference / scale if scale else difference
