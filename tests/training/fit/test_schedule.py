"""The published training, step by step: rates, beta1, losses, gradients and the weights they lead to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import Generator
from torch import Tensor

from research.cao2021.transformers import LineTransformer, LineTransformerConfig
from research.importing.weights import load_reference, reference_views
from training import recipes
from training.fit.operator_workload import OperatorWorkload
from training.fit.run import fit
from training.fit.run_folder import RunFolder
from training.fit.workload import BatchSampler, Rows, Task
from training.losses import Batch
from training.nn.decoders import SpectralDecoderConfig
from training.recipe import Fit, Recipe

PUBLISHED = Fit(
    epochs=10,
    batch=4,
    learning_rate=1e-3,
    weight_decay=0.0,
    warmup=0.2,
    div_factor=1e4,
    final_div_factor=1e4,
    cycle_momentum=True,
    clip=0.999,
    loss="weighted",
    gamma=0.1,
    symmetries=False,
)
NETWORK = LineTransformerConfig(
    attention="fourier",
    norm="none",
    channels=12,
    heads=1,
    layers=2,
    feedforward=24,
    activation="relu",
    decoder=SpectralDecoderConfig(coordinates=False, channels=6, modes=4, hidden=6),
)


class Watched(OperatorWorkload):
    """Trains on one full batch of float64 and writes down every step."""

    batch: Batch
    seen: list[dict[str, float]]

    @property
    def batch_sampler(self) -> BatchSampler:
        return BatchSampler(4, 4, 1, 0)

    def draw(self, chosen: Rows, rng: Generator, share: float) -> Batch:
        del chosen, rng, share
        return self.batch

    def validation(self) -> list[Batch]:
        return [self.batch]

    def loss(self, network: Any, batch: Batch) -> Tensor:
        loss = super().loss(network, batch)
        self.seen.append({"loss": loss.item()})
        return loss


class WatchedTask(Task):
    """Writes down the rates and the gradients' norm of every step."""

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        gradients = [parameter.grad.flatten() for parameter in self.network.parameters()]
        [group] = optimizer.param_groups
        found = {"lr": group["lr"], "beta1": group["betas"][0], "norm": torch.cat(gradients).norm().item()}
        self.work.seen[-1].update(found)


def test_ten_steps_lead_where_the_published_ones_do(golden: Callable[[str], Any], tmp_path: Path) -> None:
    case = golden("training_burgers_tiny")
    operator = LineTransformer(NETWORK).double()
    start = {key.removeprefix("init/"): tensor for key, tensor in case.arrays.items() if key.startswith("init/")}
    load_reference(NETWORK, operator.state_dict(), start)
    work = Watched(published_recipe(), tmp_path)
    work.batch = Batch([case.inputs["node"][..., 0]], [case.inputs["u"]], case.inputs["u_prime"])
    work.seen = []
    fit(WatchedTask(operator, work), work, RunFolder(tmp_path), None)
    expected = case.outputs
    np.testing.assert_allclose(column(work, "loss"), expected["loss"] + expected["regularizer"], rtol=1e-10)
    np.testing.assert_allclose(column(work, "lr"), expected["lr"], rtol=1e-10)
    np.testing.assert_allclose(column(work, "beta1"), expected["beta1"], rtol=1e-10)
    np.testing.assert_allclose(column(work, "norm"), expected["grad_norm_before_clip"], rtol=1e-10)
    found = reference_views(NETWORK, operator.state_dict())
    for name, tensor in case.state.items():
        np.testing.assert_allclose(found[name], tensor, rtol=1e-10, atol=1e-12, err_msg=name)


def published_recipe() -> Recipe:
    recipe = recipes.read(recipes.find("burgers-tiny"))
    return recipe.model_copy(update={"operator": NETWORK, "fit": PUBLISHED})


def column(work: Watched, name: str) -> list[float]:
    return [step[name] for step in work.seen]


def test_the_darcy_schedule_is_the_published_one(golden: Callable[[str], Any]) -> None:
    case, recipe = golden("onecycle_ex2"), recipes.read(recipes.find("darcy-paper"))
    task = Task(LineTransformer(NETWORK), OperatorWorkload(recipe, Path()))
    found = task.configure_optimizers()
    optimiser, schedule = found["optimizer"], found["lr_scheduler"]["scheduler"]
    [group], rates = optimiser.param_groups, []
    for _ in range(case.config["total_steps"] - 1):
        rates.append((group["lr"], group["betas"][0]))
        optimiser.step()
        schedule.step()
    chosen = np.array(rates)[case.inputs["step"].int()]
    np.testing.assert_allclose(chosen[:, 0], case.outputs["lr"], rtol=1e-10)
    np.testing.assert_allclose(chosen[:, 1], case.outputs["beta1"], rtol=1e-10)
    assert group["lr"] == pytest.approx(1e-11)
    assert schedule.total_steps == case.config["total_steps"]
