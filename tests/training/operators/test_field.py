"""The general operator: any fields, numbers, axes and grids; physical units; closed where an axis is periodic."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from training.nn.pointwise import unpatch
from training.operators.field import FieldConfig, FieldOperator

SMALL = {"channels": 8, "heads": 2, "layers": 1, "feedforward": 16, "detail": 4, "modes": 3, "spectral": 1}
HEAT = FieldConfig(
    input_components=(0, 2),
    input_scales=("log", "linear"),
    parameter_scales=("linear",),
    output_components=(0, 3),
    output_scales=("linear", "log"),
    periodic=(False, True),
    points=("cells", "left"),
    working=(10, 14),
    **SMALL,
)


def plain(axes: int, **changes: Any) -> FieldConfig:
    one: dict[str, Any] = {
        "input_components": (0,),
        "input_scales": ("linear",),
        "output_components": (0,),
        "output_scales": ("linear",),
        "periodic": (True,) * axes,
        "points": ("left",) * axes,
        "working": (8, 9, 10)[:axes],
    }
    return FieldConfig(**one | SMALL | changes)


def samples(batch: int, *sides: int) -> list[Tensor]:
    return [torch.rand(batch, *sides) + 0.1, torch.randn(batch, 2, *sides), torch.rand(batch)]


@pytest.mark.parametrize("sides", [(10, 14), (7, 31), (40, 12)])
def test_several_fields_and_a_number_become_several_fields_on_any_grid(sides: tuple[int, int]) -> None:
    scalar, vector = FieldOperator(HEAT)(*samples(3, *sides))
    assert scalar.shape == (3, *sides)
    assert vector.shape == (3, 3, *sides)
    assert (vector > 0).all()  # its logarithm is what the network gives


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_one_to_three_axes(axes: int) -> None:
    operator, sides = FieldOperator(plain(axes)), (11, 6, 7)[:axes]
    assert operator(torch.randn(2, *sides)).shape == (2, *sides)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("layers", [0, 1])
@pytest.mark.parametrize("gated", [False, True])
def test_a_unet_takes_grids_of_any_number_of_points(axes: int, layers: int, gated: bool) -> None:
    config = plain(
        axes, unet=1, layers=layers, gated=gated, periodic=(True, False, False)[:axes], working=(8, 9, 6)[:axes]
    )
    operator, sides = FieldOperator(config), (11, 6, 7)[:axes]
    output = operator(torch.randn(2, *sides))
    assert output.shape == (2, *sides)
    output.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in operator.parameters())


def test_a_unet_is_closed_around_a_periodic_axis() -> None:
    """A shift by a whole number of the coarsest cells moves the output alike."""
    operator = FieldOperator(plain(1, unet=1, layers=0, working=(16,), translation=(True,))).eval()
    x = torch.randn(1, 16)
    assert torch.allclose(operator(x.roll(4, 1)), operator(x).roll(4, 1), atol=1e-5)


def test_units_of_inputs_do_not_matter_once_statistics_are_taken() -> None:
    """K in other units is a shift of its logarithm; the output scales with its own statistics."""
    inputs, outputs = samples(6, 10, 14), [torch.randn(6, 10, 14), torch.rand(6, 3, 10, 14) + 1]
    results = []
    for factor in (1.0, 1000.0):
        torch.manual_seed(0)
        operator = FieldOperator(HEAT).double()
        scaled = [factor * inputs[0], factor * inputs[1], factor * inputs[2]]
        operator.fit_normalisers(*(x.double() for x in scaled), factor * outputs[0].double(), outputs[1].double())
        results.append(operator(*(x.double() for x in scaled))[0] / factor)
    assert torch.allclose(*results, rtol=1e-5, atol=1e-6)


def test_every_parameter_gets_a_gradient() -> None:
    operator = FieldOperator(HEAT)
    sum(output.square().sum() for output in operator(*samples(2, 10, 14))).backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in operator.parameters())


def test_the_same_network_gives_nearly_the_same_output_on_a_finer_grid() -> None:
    operator = FieldOperator(plain(1, working=(32,))).eval()
    x = torch.arange(64) / 64
    fine = torch.sin(2 * torch.pi * x)[None]
    with torch.inference_mode():
        coarse = operator(fine[:, ::2])
        assert torch.allclose(operator(fine)[:, ::2], coarse, atol=0.05 * float(coarse.abs().max()))


def test_patches_are_laid_out_where_they_came_from() -> None:
    x = torch.arange(24.0).reshape(1, 1, 4, 6)
    tokens = x.unfold(2, 2, 2).unfold(3, 2, 2).reshape(1, 6, 4)  # the channels of a token are its points
    assert torch.equal(unpatch(tokens, (2, 3), 2), x)


def test_unequal_numbers_of_entries_are_refused() -> None:
    with pytest.raises(ValidationError, match="as many input_scales as input_components"):
        plain(1, input_scales=("linear", "log"))


GATED = {"layers": 0, "gated": True, "band_limited": True, "translation": (True, True)}


def test_a_network_of_gated_layers_has_no_tokens_and_moves_with_its_input() -> None:
    torch.manual_seed(0)
    operator, x = FieldOperator(plain(2, **GATED)), torch.randn(2, 8, 9)
    assert not any(name.startswith(("encoder", "patch", "unpatch")) for name, _ in operator.named_parameters())
    moved = operator(x.roll((3, 4), (1, 2)))
    torch.testing.assert_close(moved, operator(x).roll((3, 4), (1, 2)), rtol=1e-4, atol=1e-4)


def test_a_band_limited_network_maps_one_smooth_field_alike_on_every_grid() -> None:
    torch.manual_seed(0)
    operator = FieldOperator(plain(1, **GATED | {"translation": (True,)}))

    def wave(count: int) -> Tensor:
        angle = 2 * torch.pi * torch.arange(count) / count
        return (torch.sin(angle) + torch.cos(3 * angle))[None]

    coarse, fine = operator(wave(12)), operator(wave(48))
    torch.testing.assert_close(fine[:, ::4], coarse, rtol=1e-4, atol=1e-4)


def test_fourier_series_need_periodic_axes() -> None:
    with pytest.raises(ValidationError, match="periodic axes only"):
        plain(1, band_limited=True, periodic=(False,))


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("unet", [0, 1])
def test_a_network_is_linear_in_its_sources_on_any_grid(axes: int, unet: int) -> None:
    torch.manual_seed(0)
    fields = {"input_components": (0, 2, 0), "input_scales": ("log", "linear", "linear"), "linear": (False, True, True)}
    sizes = {"layers": 0, "unet": unet, "gated": True, "parameter_scales": ("linear",), "spectral": 2}
    operator = FieldOperator(plain(axes, **fields, **sizes)).double()
    operator.output_normaliser.mean.fill_(3.0)
    sides = (12, 7)[:axes]
    medium, number = torch.rand(2, *sides).double() + 0.1, torch.rand(2).double()
    first, second = ([torch.randn(2, 2, *sides).double(), torch.randn(2, *sides).double()] for _ in range(2))
    between = [0.3 * one + 0.7 * other for one, other in zip(first, second, strict=True)]
    one, other, mixed = (operator(medium, *sources, number) for sources in (first, second, between))
    torch.testing.assert_close(mixed, 0.3 * one + 0.7 * other)
    assert not torch.allclose(operator(2 * medium, *first, number), one)


def test_a_source_alone_moves_with_the_grid() -> None:
    torch.manual_seed(0)
    operator = FieldOperator(plain(2, linear=(True,), gated=True, layers=0, translation=(True, True)))
    x = torch.randn(2, 8, 9)
    torch.testing.assert_close(operator(x.roll(3, 1)), operator(x).roll(3, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("change", [{"gated": False}, {"input_scales": ("log",)}, {"output_scales": ("log",)}])
def test_linear_inputs_need_a_gated_network_and_linear_scales(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="expected gated layers, linear scales"):
        plain(1, **{"linear": (True,), "gated": True} | change)


MASKED = FieldConfig.model_validate(HEAT.model_dump() | {"masked": True})


def in_domain(*sides: int) -> list[Tensor]:
    first, second, numbers = samples(3, *sides)
    inside = torch.ones(3, *sides)
    inside[:, 2:5, 1:4] = 0
    return [first, second, inside, numbers]


@torch.inference_mode()
def test_what_lies_outside_a_domain_changes_nothing_and_has_outputs_of_zero() -> None:
    operator, inputs = FieldOperator(MASKED), in_domain(10, 14)
    expected, seen, inside = operator(*inputs), operator.canonical(*inputs), inputs[2] == 1
    inputs[0][~inside] = -1.0  # of no logarithm
    inputs[1].movedim(1, -1)[~inside] = torch.nan
    found = operator(*inputs)
    for one, other in zip((*found, *operator.canonical(*inputs)), (*expected, *seen), strict=True):
        assert torch.equal(one, other)
    assert not found[0][~inside].any()
    assert not found[1].movedim(1, -1)[~inside].any()
    inputs[2][:, 7, 7] = 0
    assert not torch.allclose(operator(*inputs)[0][:, 0, 0], expected[0][:, 0, 0], rtol=0, atol=1e-6)


def test_statistics_are_of_the_points_inside() -> None:
    operator, inputs = FieldOperator(MASKED), in_domain(10, 14)
    inside, outputs = inputs[2] == 1, [torch.randn(3, 10, 14), torch.rand(3, 3, 10, 14) + 0.1]
    operator.fit_normalisers(*inputs, *outputs)
    assert operator.input_normaliser.mean[0].item() == pytest.approx(inputs[0][inside].log().mean().item(), rel=1e-4)
    deviation = outputs[0][inside].std(correction=0).item()
    assert operator.output_normaliser.deviation[0].item() == pytest.approx(deviation, rel=1e-4)


def test_a_mask_alone_is_an_input() -> None:
    operator, inside = FieldOperator(plain(2, masked=True, input_components=(), input_scales=())), torch.ones(2, 8, 9)
    operator.fit_normalisers(inside, torch.randn(2, 8, 9))
    assert operator(inside).shape == (2, 8, 9)
