"""The work of the baselines, done by this project in the same kind of process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.baselines import published
from benchmarks.repository import feed
from export.graphs import to_onnx, to_torchscript
from export.graphs.deployable import Deployable
from export.signature import Signature
from research.importing.reference import restore
from research.importing.state_file import read_state
from training.fit.loop.allocator import keep_freed_memory
from training.losses import LineLoss, PlaneLoss, training_loss
from training.operators import PlaneTransformer, build
from training.problems.registry import PROBLEMS
from training.recipes import recipe as recipes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from training.recipes.recipe import Recipe

#: Recipes of the released networks, by the example of the reference that they are compared with.
RELEASED = {
    "darcy": "darcy-laptop",
    "darcy_inverse": "darcy_inverse-laptop",
    "burgers_galerkin": "burgers_galerkin-laptop",
    "burgers_fourier": "burgers_fourier-laptop",
}


class Eager:
    """The published Darcy network with the reference's own weights, in eager torch."""

    def __init__(self, file: str, batch: int, weights: str) -> None:
        torch.set_num_threads(1)
        self.fields = torch.from_numpy(np.load(file)[:batch])
        operator = published_operator(self.fields.shape[1], weights)
        self.facts = {
            "parameters": sum(each.numel() for each in operator.parameters()),
            "flops": flops(operator, self.fields[:1]),
        }
        self.module = Deployable(operator, ("coefficient",))

    @torch.inference_mode()
    def step(self) -> Tensor:
        """Compute the outputs."""
        output: Tensor = self.module(self.fields)
        return output

    def write_output(self, file: str) -> None:
        """Write the outputs."""
        np.save(file, self.step().numpy())


class TorchScript:
    """The same network, as exported for Triton's PyTorch backend."""

    facts: dict[str, Any]

    def __init__(self, file: str, graph: str) -> None:
        torch.set_num_threads(1)
        self.fields = np.load(file)
        self.graph, _ = to_torchscript.read(Path(graph))
        self.facts = {"bytes": Path(graph).stat().st_size}

    def step(self) -> NDArray[np.float32]:
        """Compute the outputs."""
        [output] = self.graph(self.fields)
        return output

    def write_output(self, file: str) -> None:
        """Write the outputs."""
        np.save(file, self.step())


class Graph:
    """An exported graph in ONNX Runtime, on one thread; with `single` one field after the other."""

    def __init__(self, file: str, graph: str, batch: int, *, single: bool = False) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        fields = np.load(file)[:batch].astype(np.float32)
        self.parts = [feed(self.session, part) for part in (np.split(fields, batch) if single else [fields])]
        self.facts = {"bytes": Path(graph).stat().st_size}

    def step(self) -> NDArray[np.float32]:
        """Compute the outputs."""
        return np.concatenate([self.session.run(None, part)[0] for part in self.parts])

    def write_output(self, file: str) -> None:
        """Write the outputs."""
        np.save(file, self.step())


class Export:
    """The export of both graphs, in a process of its own, since tracing leaves much memory behind."""

    def __init__(self, points: int, weights: str, onnx: str, torchscript: str) -> None:
        signature = Signature.of(PROBLEMS["darcy"].description)
        module = Deployable(published_operator(points, weights), ("coefficient",))
        to_onnx.write(module, signature, Path(onnx))
        to_torchscript.write(module, signature, Path(torchscript))
        self.facts = {"operators": to_onnx.read(Path(onnx))[1]}


class Step:
    """One training step of a paper recipe: forward, its weighted loss, backward, clipping, AdamW."""

    def __init__(self, example: str, batch: int) -> None:
        recipe = recipe_of(example)
        inputs, loss = SAMPLES[recipe.problem](recipe, batch)
        self.prepare(recipe, inputs, loss)

    def prepare(self, recipe: Recipe, inputs: Tensor, loss: Callable[[Tensor], Tensor]) -> None:
        """Build the network and its optimiser."""
        keep_freed_memory()  # as every training does
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.operator = build(recipe.operator).train()
        self.inputs, self.loss, self.clip = inputs, loss, recipe.fit.clip
        self.optimiser = torch.optim.AdamW(self.operator.parameters(), lr=recipe.fit.learning_rate, weight_decay=0.0)
        self.facts = {"parameters": sum(each.numel() for each in self.operator.parameters())}

    def step(self) -> None:
        """Take the step."""
        self.optimiser.zero_grad()
        self.loss(self.operator(self.inputs)).backward()
        nn.utils.clip_grad_norm_(self.operator.parameters(), self.clip)
        self.optimiser.step()


class ReleasedStep(Step):
    """One training step of the recipe of a released network, with its own loss, at the published grid and batch."""

    def __init__(self, example: str, batch: int) -> None:
        [points], recipe = recipe_of(example).data.grids, recipes.read_fields(recipes.find(RELEASED[example]), [])
        sides = (points,) * len(PROBLEMS[recipe.problem].description.axes)
        inputs = 1 + torch.rand(batch, *sides)
        truth = 1 + torch.rand(batch, *(PROBLEMS[recipe.problem].description.output_grid or sides))
        self.prepare(recipe, inputs, lambda found: training_loss(found, truth, recipe.fit.h1))


def published_operator(points: int, weights: str) -> PlaneTransformer:
    """Return the published network of a grid, with the reference's weights."""
    operator = build(recipe_at(points).operator)
    if not isinstance(operator, PlaneTransformer):
        raise TypeError(f"expected a PlaneTransformer but darcy-paper builds a {type(operator).__name__}")
    restore(operator, read_state(Path(weights)))
    return operator.eval()


def recipe_at(points: int) -> Recipe:
    """Return `darcy-paper` with the published sizes of another grid."""
    sides = published.DARCY[points]
    sizes = {"grid": sides.grid, "down_middle": sides.down, "tokens": sides.tokens, "up_middle": sides.up}
    squares = [f"operator.{name}=[{side}, {side}]" for name, side in (sizes | {"output": sides.grid}).items()]
    eps = f"operator.eps={published.norm_eps(points)}"
    return recipes.read_fields(recipes.find("darcy-paper"), [*squares, eps])


def recipe_of(example: str) -> Recipe:
    """Return the recipe of one of the reference's examples; `burgers_<attention>` names the type."""
    name, _, attention = example.partition("burgers_")
    changes = [f"operator.attention={attention}"] if attention else []
    return recipes.read_fields(recipes.find(f"{name or 'burgers'}-paper"), changes)


def flops(module: nn.Module, fields: Tensor) -> int:
    """Return the operations of products and convolutions for one field; a multiplication and an addition are two."""
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        module(fields)
    return int(counter.get_total_flops())


def plane_samples(recipe: Recipe, batch: int) -> tuple[Tensor, Any]:
    """Return random coefficients and the published loss against random pressures."""
    [points] = recipe.data.grids
    fields, truth = torch.rand(2, batch, points, points)
    loss = PlaneLoss(1 / points, gamma=recipe.fit.gamma)
    gradients = torch.rand(batch, points, points, 2)
    return fields, lambda found: loss(found, truth, gradients, coefficient=1 + fields).total


def block_samples(recipe: Recipe, batch: int) -> tuple[Tensor, Any]:
    """Return random pressures and the loss against random coefficients of blocks."""
    [points] = recipe.data.grids
    tokens = published.INVERSE.tokens
    truth = torch.rand(batch, tokens, tokens)
    loss = PlaneLoss(1 / tokens, gamma=recipe.fit.gamma)
    return torch.rand(batch, points, points), lambda found: loss(found, truth).total


def line_samples(recipe: Recipe, batch: int) -> tuple[Tensor, Any]:
    """Return random initial values and the published loss against random final ones."""
    [points] = recipe.data.grids
    fields, truth, slopes = torch.rand(3, batch, points)
    loss = LineLoss(1 / points, gamma=recipe.fit.gamma)
    return fields, lambda found: loss(found, truth, slopes).total


SAMPLES = {"darcy": plane_samples, "darcy_inverse": block_samples, "burgers": line_samples}
