"""Layers and networks against the golden vectors of the reference: outputs and gradients."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from research.cao2021.transformers import LineTransformerConfig, PlaneTransformer, PlaneTransformerConfig
from research.importing.network import scaler_sizes
from research.importing.weights import reference_views
from tests.training.nn.published import (
    LINE,
    PRECISIONS,
    assert_published,
    assert_published_gradients,
    load_published,
)
from training.nn.decoders import PointwiseDecoderConfig, SpectralDecoderConfig, build_decoder
from training.nn.encoder import EncoderConfig
from training.nn.grids import grid_coordinates
from training.nn.scalers import Downscaler, Upscaler, interpolate
from training.nn.spectral import SpectralConv
from training.operators import build
from training.operators.grid_transformer import GridTransformerConfig

PLANE = GridTransformerConfig()  # as LINE, it fixes the number of axes of a single layer

Exact = Callable[..., None]


def assert_exact(
    module: nn.Module, case: Any, inputs: Mapping[str, Tensor], parts: tuple[str, str], layout: EncoderConfig
) -> None:
    """Compare output and gradients; `parts` are the prefixes of the module's keys in the reference's network and here.

    The reference has channels last, this project first; fields of one channel have no channel axis here.
    """
    load_published(module.double(), case.state, parts, layout)
    dtype = next(iter(inputs.values())).dtype
    module.to(dtype).eval()
    output = module(*inputs.values())
    cotangent = case.inputs["cotangent"].movedim(-1, 1).to(dtype).reshape(output.shape)
    output.backward(cotangent)
    expected = next(iter(case.outputs.values())).movedim(-1, 1)
    assert_published("output", output, expected.reshape(output.shape))
    gradients = {key: case.gradients[f"state/{key}"] for key in case.state}
    assert_published_gradients(module, gradients, dtype, parts, layout)
    for key, tensor in inputs.items():
        if key in case.gradients:
            assert_published(key, tensor.grad, case.gradients[key].movedim(-1, 1).reshape(tensor.shape))


def channels_first(case: Any, key: str, dtype: torch.dtype) -> Tensor:
    return case.inputs[key].movedim(-1, 1).to(dtype).contiguous().requires_grad_()


@PRECISIONS
@pytest.mark.parametrize(
    "name",
    [
        "spectral_conv1d_n16_m5_silu",
        "spectral_conv1d_n8_m5_relu",
        "spectral_conv2d_n8_m3_silu_4d",
        "spectral_conv2d_n9_m3_silu_4d",
        "spectral_conv2d_n9_m3_relu_3d",
    ],
)
def test_a_spectral_layer_is_the_published_one(name: str, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    case, plane = golden(name), "2d" in name
    layer = SpectralConv(
        case.config["in_dim"],
        case.config["out_dim"],
        case.config["modes"],
        2 if plane else 1,
        activation=case.config["activation"],
    )
    if name.endswith("3d"):  # the same field, its points in a row
        for part, key in ((case.inputs, "x"), (case.inputs, "cotangent"), (case.outputs, "y"), (case.gradients, "x")):
            part[key] = part[key].unflatten(1, (9, 9))
    inputs = {"x": channels_first(case, "x", dtype)}
    parts = ("regressor.spectral_conv.0.", "decoder.spectral.0.")
    assert_exact(layer, case, inputs, parts, PLANE if plane else LINE)


@PRECISIONS
@pytest.mark.parametrize("name", ["scale", "size_relu", "size_silu"])
def test_the_downscaler_is_the_published_one(name: str, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    case = golden(f"downscaler_interp_{name}")
    features, middle = case.config["out_dim"], 21 if name == "scale" else 20
    layer = Downscaler(
        1, features, features, middle, 15, bias=False, activation=case.config["activation_type"], reactivate=True
    )
    inputs = {"x": channels_first(case, "x", dtype)}
    assert_exact(layer, case, inputs, ("downscaler.", "downscaler."), PLANE)


@PRECISIONS
@pytest.mark.parametrize("name", ["upscaler_interp", "upscaler_interp_identity"])
def test_the_upscaler_is_the_published_one(name: str, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    case = golden(name)
    middle, side = (tuple(size) for size in case.config["interp_size"])
    layer = Upscaler(6, 6, middle, side, bias=False, reactivate=True)
    assert_exact(layer, case, {"x": channels_first(case, "x", dtype)}, ("upscaler.", "upscaler."), PLANE)


@PRECISIONS
@pytest.mark.parametrize(
    "name",
    [
        "spectral_regressor_1d",
        "spectral_regressor_2d_lastact0",
        "spectral_regressor_2d_lastact1",
        "pointwise_regressor_1_silu",
        "pointwise_regressor_2_relu",
    ],
)
def test_a_decoder_is_the_published_one(name: str, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    case = golden(name)
    axes = 2 if case.config["spacial_dim"] == 2 else 1
    x = channels_first(case, "x", dtype)
    where = grid_coordinates([torch.arange(side) for side in x.shape[2:]], dtype, reverse=True)
    decoder = build_decoder(decoder_config(case.config, name.partition("_")[0]), case.config["in_dim"], axes)
    inputs = {"x": x, "coordinates": where}
    assert_exact(decoder, case, inputs, ("regressor.", "decoder."), PLANE if axes == 2 else LINE)


def decoder_config(reference: dict[str, Any], kind: str) -> SpectralDecoderConfig | PointwiseDecoderConfig:
    common = {
        "coordinates": reference["spacial_fc"],
        "joined": reference["n_hidden"],
        "activation": reference["activation"],
    }
    if kind == "pointwise":
        return PointwiseDecoderConfig(**common, layers=reference["num_layers"])
    return SpectralDecoderConfig(
        **common,
        channels=reference["freq_dim"],
        modes=reference["modes"],
        layers=reference["num_spectral_layers"],
        hidden=reference.get("dim_feedforward") or 2 * reference["spacial_dim"] * reference["freq_dim"],
        last_activation=reference["last_activation"],
    )


@PRECISIONS
@pytest.mark.parametrize(
    "name", ["fourier", "linear", "galerkin_pointwise", "galerkin_spacialfc", "galerkin_spacialresidual"]
)
def test_the_line_transformer_is_the_published_one(name: str, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    case = golden(f"simple_transformer_{name}")
    decoder: SpectralDecoderConfig | PointwiseDecoderConfig = PointwiseDecoderConfig(layers=2, activation="relu")
    if case.config["decoder_type"] == "ifft":
        decoder = SpectralDecoderConfig(coordinates=case.config["spacial_fc"], channels=6, modes=4, hidden=6)
    config = LineTransformerConfig(
        **encoder(case.config), feature_residual=case.config["spacial_residual"], decoder=decoder
    )
    assert_exact(build(config), case, {"node": field(case, dtype)}, ("", ""), config)


def encoder(reference: dict[str, Any]) -> dict[str, Any]:
    return {
        "attention": reference["attention_type"],
        "attention_norm": "layer" if reference["attn_norm"] else "none",
        "norm": "post" if reference["layer_norm"] else "none",
        "eps": reference.get("norm_eps", 1e-5),
        "channels": reference["n_hidden"],
        "heads": reference["n_head"],
        "layers": reference["num_encoder_layers"],
        "feedforward": reference["dim_feedforward"],
        "activation": "relu",
    }


def field(case: Any, dtype: torch.dtype) -> Tensor:
    nodes = channels_first(case, "node", dtype).detach()
    return (nodes[:, 0] if nodes.shape[1] == 1 else nodes).clone().requires_grad_()


@PRECISIONS
@pytest.mark.parametrize(
    "name",
    ["darcy", "darcy_softmax_layernorm", "darcy_boundary_value", "darcy_nonorm_free", "no_scalers", "inverse"],
)
def test_the_plane_transformer_is_the_published_one(
    name: str, dtype: torch.dtype, golden: Callable[[str], Any]
) -> None:
    case = golden(f"fourier_transformer_2d_{name}")
    config = plane_config(case, name)
    network = build(config)
    restore_statistics(network, case)
    inputs = {"node": field(case, dtype)}
    if "boundary_value" in case.inputs:
        inputs["boundary_value"] = case.inputs["boundary_value"][..., 0].to(dtype)
    assert_exact(network, case, inputs, ("", ""), config)


def plane_config(case: Any, name: str) -> PlaneTransformerConfig:
    sizes: dict[str, dict[str, Any]] = {
        "inverse": {"grid": (29, 29), "down_middle": (14, 14), "tokens": (8, 8), "up_middle": (8, 8), "output": (8, 8)},
        "no_scalers": {"grid": (13, 13), "tokens": (13, 13), "output": (13, 13)},
    }
    darcy = {"grid": (29, 29), "down_middle": (21, 21), "tokens": (15, 15), "up_middle": (20, 20), "output": (29, 29)}
    decoder = (
        PointwiseDecoderConfig(layers=1)
        if name == "inverse"
        else SpectralDecoderConfig(joined=6, channels=6, modes=3, hidden=24)
    )
    return PlaneTransformerConfig(
        **encoder(case.config),
        **sizes.get(name, darcy),
        boundary=case.config["boundary_condition"],
        down_activation=case.config.get("downscaler_activation", "silu"),
        decoder=decoder,
    )


def restore_statistics(network: nn.Module, case: Any) -> None:
    assert isinstance(network, PlaneTransformer)
    network.double()
    if "normalizer/mean" in case.arrays:
        network.output_normaliser.mean.copy_(case.arrays["normalizer/mean"][..., 0])
        network.output_normaliser.deviation.copy_(
            (case.arrays["normalizer/std"] + case.arrays["normalizer/eps"])[..., 0]
        )


@PRECISIONS
def test_the_grid_transformer_is_the_published_one(dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    case = golden("fourier_transformer_2d_lite")
    decoder = SpectralDecoderConfig(coordinates=False, channels=4, modes=3, hidden=4)
    config = GridTransformerConfig(**encoder(case.config), inputs=3, decoder=decoder)
    assert_exact(build(config), case, {"node": field(case, dtype)}, ("", ""), config)


@pytest.mark.parametrize(
    "row", json.loads((Path(__file__).parents[2] / "golden" / "scaler_sizes.json").read_text()), ids=str
)
def test_the_scalers_sizes_are_the_published_ones(row: dict[str, Any]) -> None:
    factor, middle, scaled = scaler_sizes(row["n_f"], row["n_c"])
    assert factor == pytest.approx(row["factor"])
    assert middle == row["mid"]
    assert scaled == (row["actual_mid_by_scale"], row["actual_coarse_by_scale"])
    assert (scaled[1] == row["n_c"]) == row["matches"]


def test_a_tensor_that_the_reference_does_not_have_is_named() -> None:
    with pytest.raises(KeyError, match=r"encoder\.0\.local\.weight"):
        reference_views(LINE, {"encoder.0.local.weight": torch.zeros(3, 4)})


SMALL: dict[str, Any] = {"layers": 1, "channels": 8, "heads": 2, "feedforward": 12, "gain": 0.5}
SPECTRAL = SpectralDecoderConfig(channels=4, modes=3, hidden=6)
RECTANGLES: dict[str, Any] = {
    "grid": (15, 11),
    "down_middle": (11, 9),
    "tokens": (7, 6),
    "up_middle": (10, 9),
    "output": (15, 11),
}
ANY_GRID = [
    (LineTransformerConfig(decoder=SPECTRAL, normalise=True, **SMALL), (40,)),
    (LineTransformerConfig(inputs=2, decoder=SPECTRAL, normalise=True, **SMALL), (2, 33)),
    (PlaneTransformerConfig(decoder=SPECTRAL, **RECTANGLES, **SMALL), (15, 11)),
    (PlaneTransformerConfig(boundary="free", local=3, decoder=SPECTRAL, **RECTANGLES, **SMALL), (31, 12)),
    (PlaneTransformerConfig(inputs=3, decoder=SPECTRAL, **RECTANGLES, **SMALL), (3, 9, 20)),
    (GridTransformerConfig(decoder=SPECTRAL, **SMALL), (12, 9)),
    (GridTransformerConfig(dimensions=1, inputs=2, decoder=SPECTRAL, **SMALL), (2, 31)),
    (GridTransformerConfig(dimensions=3, decoder=SPECTRAL, **SMALL), (6, 7, 9)),
    (GridTransformerConfig(dimensions=3, inputs=4, decoder=PointwiseDecoderConfig(), **SMALL), (4, 5, 4, 6)),
]


@pytest.mark.parametrize(("config", "sides"), ANY_GRID, ids=lambda one: getattr(one, "kind", one))
def test_any_grid_in_physical_units_reaches_every_parameter(config: EncoderConfig, sides: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network, fields = build(config), 5 + 3 * torch.randn(4, *sides)
    outputs = 1e3 + 10 * torch.randn(4, *(sides[1:] if getattr(config, "inputs", 1) > 1 else sides))
    network.fit_normalisers(fields, outputs)
    output = network(fields)
    assert output.shape == outputs.shape
    inner = output[(slice(None), *[slice(1, -1)] * (output.ndim - 1))]
    assert (inner - 1e3).abs().max() < 500
    output.square().mean().backward()
    without_gradient = [name for name, one in network.named_parameters() if one.grad is None or not one.grad.any()]
    assert without_gradient == []


def test_a_plane_transformer_interpolates_other_grids() -> None:
    network = build(PlaneTransformerConfig(decoder=SPECTRAL, **RECTANGLES, **SMALL)).double().eval()
    native = torch.randn(2, 15, 11, dtype=torch.float64)
    finer = interpolate(native[:, None], (29, 41))[:, 0]  # holds the native points
    torch.testing.assert_close(network(finer)[:, ::2, ::4], network(native))


def test_the_walls_are_zero_and_a_boundary_is_added() -> None:
    network = build(PlaneTransformerConfig(decoder=SPECTRAL, **RECTANGLES, **SMALL))
    field, boundary = torch.randn(2, 20, 16), torch.rand(2, 20, 16)
    output = network(field)
    assert not torch.cat([output[:, [0, -1]].flatten(), output[:, :, [0, -1]].flatten()]).any()
    assert isinstance(network, PlaneTransformer)
    torch.testing.assert_close(network(field, boundary), output + boundary)


@pytest.mark.parametrize("sides", [(29, 29), (15, 11), (8, 8)])
def test_an_output_with_a_fixed_grid_keeps_it(sides: tuple[int, int]) -> None:
    sizes = RECTANGLES | {"up_middle": (7, 6), "output": (7, 6)}
    decoder = PointwiseDecoderConfig()
    network = build(PlaneTransformerConfig(boundary="free", decoder=decoder, **sizes, **SMALL))
    assert network(torch.randn(2, *sides)).shape == (2, 7, 6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"decoder": SpectralDecoderConfig(modes=7)}, r"at most 6 modes on the grid \(15, 11\) but got 7"),
        ({"down_middle": None}, r"expected tokens to be the grid \(15, 11\) but got \(7, 6\)"),
        ({"up_middle": None}, r"expected output to be tokens \(7, 6\) but got \(15, 11\)"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PlaneTransformerConfig(**{"decoder": SPECTRAL, **RECTANGLES, **SMALL, **wrong})
