"""Graphs are compared on inputs of the size of the data's, whatever its units are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch import nn

from export import parity, probes
from export.derivatives import agreement
from export.graphs import to_onnx
from export.graphs.deployable import Deployable
from export.signature import Signature
from schema.card import Parameter, Tensor
from schema.problem import Grid


def field(name: str, *, positive: bool = False, components: tuple[str, ...] = ()) -> Tensor:
    more = ("component",) if components else ()
    return Tensor(
        name=name,
        dtype="FP32",
        axes=("batch", *more, "row", "column"),
        shape=(None, *(len(components) for _ in more), None, None),
        components=components,
        meaning=name,
        units="1",
        positive=positive,
    )


def number(name: str, **limits: float) -> Parameter:
    bounds = {"default": None, "minimum": None, "maximum": None, **limits}
    return Parameter(name=name, meaning=name, units="1", **bounds)


def described(*inputs: Tensor, parameters: tuple[Parameter, ...] = ()) -> Signature:
    grid = Grid(axes=("row", "column"), minimum=8, maximum=40, declared=(16,), points="cells")
    return Signature(inputs=inputs, parameters=parameters, outputs=(field("heat"),), grid=grid)


def test_inputs_are_like_the_examples(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    wind = (
        rng.standard_normal((8, 2, 16, 16)) * np.array([1.0, 50.0])[:, None, None]
        + np.array([3.0, -1e4])[:, None, None]
    )
    examples = {
        "wind": wind,
        "permeability": np.exp(rng.standard_normal((8, 16, 16)) - 20),
        "age": rng.uniform(7e3, 9e3, 8),
    }
    save_file({name: array.astype(np.float32) for name, array in examples.items()}, tmp_path / "examples")
    signature = described(
        field("wind", components=("x", "y")), field("permeability", positive=True), parameters=(number("age"),)
    )
    like = probes.statistics(tmp_path / "examples", signature)
    drawn, coefficient, age = probes.draw((64, 16, 16), signature, like=like)
    for component in (0, 1):
        truth, found = wind[:, component], drawn[:, component]
        assert abs(found.mean() - truth.mean()) < truth.std()
        assert 0.3 < found.std() / truth.std() < 3
    assert np.unique(coefficient) == pytest.approx(np.quantile(examples["permeability"], probes.TENTHS), rel=1e-5)
    assert ((age >= 7e3) & (age <= 9e3)).all()


@pytest.mark.parametrize(
    "limits", [{"maximum": -5.0}, {"minimum": 3.0}, {"minimum": -2.0, "maximum": -1.0}, {"default": 9.0}]
)
def test_a_parameter_stays_within_its_bounds(limits: dict[str, float]) -> None:
    found = probes.numbers(100, number("age", **limits))
    assert limits.get("minimum", -np.inf) <= found.min() <= found.max() <= limits.get("maximum", np.inf)
    assert np.ptp(found) > 0


class Normalised(nn.Module):
    """A network that is right near its data and overflows far away from them, as a cubic fit does."""

    def __init__(self, mean: float, deviation: float) -> None:
        super().__init__()
        self.mean, self.deviation = mean, deviation

    def forward(self, conductivity: torch.Tensor) -> torch.Tensor:
        x = (conductivity - self.mean) / self.deviation
        return self.mean + self.deviation * torch.sinh(x)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1e-3), (1e5, 1e3), (-2e-7, 1e-8)])
def test_an_exact_graph_is_certified_whatever_the_units_are(tmp_path: Path, mean: float, deviation: float) -> None:
    rng = np.random.default_rng(1)
    samples = (mean + deviation * rng.standard_normal((8, 16, 16))).astype(np.float32)
    save_file({"conductivity": samples}, tmp_path / "examples")
    signature, network = described(field("conductivity")), Normalised(mean, deviation)
    to_onnx.write(Deployable(network, signature.argument_names), signature, tmp_path / "model.onnx")
    run, _ = to_onnx.read(tmp_path / "model.onnx")
    compared = parity.compare(run, network, signature, probes.statistics(tmp_path / "examples", signature))
    parity.gate(compared)
    assert all(np.isfinite(one.float64.max_abs) for one in compared)
    if deviation < 1e-2:
        with np.errstate(all="ignore"), pytest.raises(parity.ParityError):
            parity.gate(parity.compare(run, network, signature))


class Lift(nn.Module):
    """Two numbers per sample in units far apart: a field's mean, and the difference of its means on two sides."""

    def forward(self, pressure: torch.Tensor) -> torch.Tensor:
        across = 1e-9 * (pressure[:, 0] - pressure[:, -1]).mean(dim=1)
        return torch.stack([pressure.mean(dim=(1, 2)), across], dim=1)


def test_a_number_near_zero_is_compared_in_units_of_the_data(tmp_path: Path) -> None:
    """Fields that are drawn have the data's mean, so that of one around zero is what rounding leaves."""
    rng = np.random.default_rng(2)
    samples = rng.standard_normal((8, 16, 16)).astype(np.float32) + rng.standard_normal((8, 1, 1)).astype(np.float32)
    samples -= samples.mean()
    network = Lift()
    lift = network(torch.from_numpy(samples)).numpy()
    save_file({"pressure": samples, "lift": lift}, tmp_path / "examples")
    output = Tensor(name="lift", axes=("batch", "component"), shape=(None, 2), components=("x", "y"), meaning="lift")
    signature = described(field("pressure")).model_copy(update={"outputs": (output,)})
    like = probes.statistics(tmp_path / "examples", signature)

    def graph(*off: float) -> parity.Graph:
        return lambda x: [(network(torch.from_numpy(x).double()).numpy() + off).astype(np.float32)]

    parity.gate(parity.compare(graph(0, 0), network, signature, like))
    for off, known in (((0, 0), {"pressure": like["pressure"]}), ((1e-4, 0), like), ((0, 1e-11), like)):
        with pytest.raises(parity.ParityError):  # without the data, and where either number is wrong
            parity.gate(parity.compare(graph(*off), network, signature, known))

    single, double = (
        agreement.Derivative("vjp", signature, agreement.without_quality(network, signature, dtype), dtype)
        for dtype in (torch.float32, torch.float64)
    )
    product = signature.product("vjp")

    def pulled(*arrays: Any) -> list[Any]:
        found = double(dict(zip(product.argument_names, arrays, strict=True)))
        return [found[name].astype(np.float32) for name in product.result_names]

    agreement.gate(agreement.compare(pulled, single, double, like), 0.0)
    with pytest.raises(parity.ParityError):
        agreement.gate(agreement.compare(pulled, single, double, {"pressure": like["pressure"]}), 0.0)
