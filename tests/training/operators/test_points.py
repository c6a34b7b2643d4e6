"""The operator on points: what order, padding and further dimensions change, and what they do not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from training.operators import points
from training.operators.points import PointsConfig, PointsOperator


def operator(dimensions: int = 2) -> PointsOperator:
    torch.manual_seed(0)
    config = PointsConfig(
        input_components=(0, 2),
        input_scales=("log", "linear"),
        parameter_scales=("linear",),
        output_components=(0, 2),
        output_scales=("log", "linear"),
        box=((0, 1), (-1, 2), (0, 1))[:dimensions],
        latent=8,
        channels=6,
    )
    return PointsOperator(config).eval()


def arguments(count: int = 50, dimensions: int = 2) -> list[Tensor]:
    torch.manual_seed(1)
    counts = torch.tensor([float(count), count // 2, 0])
    fields = torch.rand(3, count) + 0.5, torch.randn(3, count, 2)
    return [torch.rand(3, count, dimensions), *fields, counts, torch.randn(3)]


def changed(inputs: list[Tensor], index: Tensor) -> list[Tensor]:
    """Return the arguments with points in another order, or some of them."""
    return [each[:, index] if each.ndim > 1 else each for each in inputs]


def assert_close(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * float(other.abs().max()))


@pytest.mark.parametrize("dimensions", [2, 3])
@torch.inference_mode()
def test_the_order_of_points_changes_that_of_the_outputs_alone(dimensions: int) -> None:
    network, inputs = operator(dimensions), arguments(dimensions=dimensions)
    inputs[3][:] = 0
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    expected = tuple(each[:, order] for each in network(*inputs))
    assert_close(network(*changed(inputs, order)), expected)
    assert_close(network.canonical(*changed(inputs, order)), network.canonical(*inputs))


@torch.inference_mode()
def test_padding_changes_nothing_and_has_outputs_of_zero() -> None:
    network, inputs = operator(), arguments()
    expected, seen = network(*inputs), network.canonical(*inputs)
    for each in inputs[:3]:
        each[1, 25:] = torch.nan
    found = network(*inputs)
    assert_close(found, expected)
    assert_close(network.canonical(*inputs), seen)
    assert all((each[1, 25:] == 0).all() for each in found)
    alone = network(*(each[1:2] for each in changed(inputs, torch.arange(25))))
    assert_close(alone, tuple(each[1:2, :25] for each in found))


@torch.inference_mode()
def test_points_in_parts_are_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    network, inputs = operator(), arguments()
    expected = network(*inputs)
    monkeypatch.setattr(points, "PART", 3 * 7)  # of three samples
    found = network(*inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6 * float(other.abs().max()))


@torch.inference_mode()
def test_statistics_hardly_depend_on_the_number_of_points() -> None:
    network, points = operator(), torch.rand(1, 4000, 2, generator=torch.Generator().manual_seed(0))
    some = [points, points[..., 0] + 1, points, torch.zeros(1), torch.zeros(1)]
    for few, many in zip(network.canonical(*changed(some, torch.arange(400))), network.canonical(*some), strict=True):
        assert float((few - many).square().mean().sqrt()) < 0.1


def test_normalisers_see_valid_points_alone() -> None:
    network, inputs = operator(), arguments()
    inputs[3][2] = 10
    outputs = torch.rand(3, 50) + 1, torch.randn(3, 50, 2)
    valid = torch.arange(50) < inputs[3][:, None]
    network.fit_normalisers(*inputs, *outputs)
    assert network.input_normaliser.mean[0] == pytest.approx(float(inputs[1][valid].log().mean()), rel=1e-5)
    assert network.output_normaliser.deviation[2] == pytest.approx(
        float(outputs[1][valid][:, 1].std(correction=0)), rel=1e-5
    )


def test_a_point_beyond_the_box_and_gradients_are_finite() -> None:
    network, inputs = operator(), arguments()
    inputs[0][0, 0] = torch.tensor([-9.0, 30.0])
    inputs[0].requires_grad_()
    scalar, vector = network(*inputs)
    (scalar.sum() + vector.sum()).backward()
    assert inputs[0].grad is not None
    assert torch.isfinite(inputs[0].grad).all()
    assert inputs[0].grad[0, 1:].any()
    assert not inputs[0].grad[1, 25:].any()


@torch.inference_mode()
def test_nothing_jumps_where_a_point_moves_to_the_next_cell() -> None:
    network, inputs = operator().double(), [each.double() for each in arguments()]
    width = network.lattice.width
    found = []
    for step in (-1e-9, 1e-9):
        inputs[0][:, 0, 0] = 3 * width + step
        found.append(network(*inputs))
    for one, other in zip(*found, strict=True):
        assert float((one - other).abs().max()) < 1e-6 * float(other.abs().max())


def test_a_flat_box_is_refused() -> None:
    with pytest.raises(ValueError, match="expected low < high"):
        PointsConfig(
            input_components=(),
            input_scales=(),
            output_components=(0,),
            output_scales=("linear",),
            box=((0, 1), (1, 1)),
        )
