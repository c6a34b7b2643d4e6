"""Complete networks: any grid, physical units, and a gradient for every parameter."""

from __future__ import annotations

import tomllib

import pytest
import torch

from physics.numerics.grid import WALL
from schema.parts import Axis, Parameter
from training import recipes
from training.messages import UserError
from training.nn.encoder import EncoderLayer, LocalMixing
from training.nn.grids import square_positions
from training.nn.lines import antiderivative
from training.nn.pointwise import Normaliser
from training.operators import Operator, build
from training.operators.burgers import BurgersConfig, BurgersOperator
from training.operators.darcy import wall_factor
from training.operators.grid_transformer import GridTransformer, GridTransformerConfig, sized
from training.problems.problem import PROBLEMS
from training.recipes import folders

RECIPES = sorted(
    f"{path.parent.name}-{path.stem}"
    for folder in folders()
    for path in folder.glob("*/*.toml")
    if tomllib.loads(path.read_text()).get("kind", "fields") == "fields"
)


def tiny(model: str) -> Operator:
    torch.manual_seed(0)
    return build(recipes.read(recipes.find(f"{model}-tiny")).operator)


@pytest.mark.parametrize(
    ("model", "grid"),
    [("darcy", (15, 15)), ("darcy", (37, 53)), ("darcy", (141, 85)), ("burgers", (64,)), ("burgers", (301,))],
)
def test_the_output_has_the_grid_of_the_input(model: str, grid: tuple[int, ...]) -> None:
    assert tiny(model)(torch.rand(3, *grid) + 1).shape == (3, *grid)


@pytest.mark.parametrize("grid", [(15, 15), (37, 53), (211, 141)])
def test_the_inverse_operator_returns_its_own_grid_within_its_bounds(grid: tuple[int, ...]) -> None:
    operator = tiny("darcy_inverse")
    operator.fit_normalisers(torch.rand(4, *grid), 3 + 9 * torch.rand(4, 36, 36))
    output = operator(torch.rand(3, *grid))
    assert output.shape == (3, 36, 36)
    assert (output >= operator.low).all()
    assert (output <= operator.high).all()


def test_a_vector_of_one_component_is_a_field() -> None:
    operator, field = GridTransformer(GridTransformerConfig(channels=8, heads=1, layers=1)), torch.randn(3, 9, 8)
    torch.testing.assert_close(operator(field[:, None]), operator(field))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": (Parameter(name="wind", components=("x", "y")),)}, "one number .* but wind has components"),
        ({"inputs": ()}, "expected an input field on a grid"),
        ({"axes": (Axis(name="point", points="scattered"),)}, "expected an input field on a grid"),
    ],
)
def test_a_grid_transformer_refuses_what_it_would_take_for_fields(changes: dict[str, object], message: str) -> None:
    """A number per component was a field where the grid had as many points."""
    with pytest.raises(UserError, match=message):
        sized(PROBLEMS["burgers"].description.model_copy(update=changes), (2,))


@pytest.mark.parametrize("model", ["darcy", "darcy_inverse", "burgers"])
def test_a_gradient_reaches_every_parameter(model: str) -> None:
    operator, grid = tiny(model), (64,) if model == "burgers" else (29, 29)
    operator(torch.where(torch.rand(2, *grid) < 0.5, 3.0, 12.0)).square().mean().backward()
    without_gradient = [
        name for name, parameter in operator.named_parameters() if parameter.grad is None or not parameter.grad.any()
    ]
    assert without_gradient == []


def test_a_smooth_coefficient_gives_similar_outputs_on_every_grid() -> None:
    operator = tiny("darcy")

    def coefficient(points: int) -> torch.Tensor:
        x = torch.linspace(0, 1, points, dtype=torch.float64)
        return (5 + 4 * torch.sin(3 * x[:, None]) * torch.cos(2 * x[None]))[None]

    coarse, fine = (operator.double()(coefficient(n)) for n in (57, 113))
    assert (fine[:, ::2, ::2] - coarse).norm() / coarse.norm() < 5e-3


def test_a_smooth_pressure_is_inverted_similarly_on_every_grid() -> None:
    operator = tiny("darcy_inverse").double()

    def pressure(points: int) -> torch.Tensor:
        x = WALL + (1 - 2 * WALL) * torch.linspace(0, 1, points, dtype=torch.float64)
        return (torch.sin(torch.pi * x[:, None]) * torch.sin(2 * torch.pi * x[None]))[None] / 100

    operator.fit_normalisers(pressure(141) * torch.rand(8, 1, 1, dtype=torch.float64), torch.rand(8, 36, 36))
    coarse, fine = (operator(pressure(n)) for n in (141, 281))
    assert (fine - coarse).norm() / coarse.norm() < 5e-3


def test_a_band_limited_velocity_gives_equal_outputs_on_every_grid() -> None:
    operator = tiny("burgers").double()

    def initial(points: int) -> torch.Tensor:
        x = 2 * torch.pi * torch.arange(points, dtype=torch.float64) / points
        return (torch.sin(x) + 0.3 * torch.cos(5 * x))[None]

    torch.testing.assert_close(operator(initial(128))[:, ::2], operator(initial(64)))


@pytest.mark.parametrize("points", [16, 61])
def test_the_potential_is_the_antiderivative(points: int) -> None:
    x = 2 * torch.pi * torch.arange(points) / points
    velocity, potential = 0.7 + torch.sin(x) - 3 * torch.cos(5 * x), -torch.cos(x) - 3 / 5 * torch.sin(5 * x)
    torch.testing.assert_close(velocity[None] @ antiderivative(points), potential[None], rtol=0, atol=1e-5)


def test_a_mean_velocity_translates_the_output() -> None:
    torch.manual_seed(0)
    operator = BurgersOperator(BurgersConfig(attention="galerkin", tokens=32, channels=8, layers=1, decoder=4)).double()
    operator.fit_normalisers(torch.randn(8, 64).double(), torch.randn(8, 64).double())
    initial = torch.randn(2, 64, dtype=torch.float64)
    drifting = operator(initial + torch.tensor([[0.25], [-1.5]]))
    still = operator(initial)
    torch.testing.assert_close(drifting[0], still[0].roll(16) + 0.25)
    torch.testing.assert_close(drifting[1], still[1].roll(32) - 1.5)


def test_an_odd_operator_maps_mirrored_inputs_to_mirrored_outputs() -> None:
    def mirrored(values: torch.Tensor) -> torch.Tensor:
        return -values.flip(1).roll(1, 1)

    torch.manual_seed(0)
    sizes = {"tokens": 32, "patch": 2, "channels": 8, "layers": 1, "feedforward": 8, "decoder": 4, "odd": True}
    operator = BurgersOperator(BurgersConfig(attention="fourier", **sizes)).double()
    initial = torch.randn(2, 48, dtype=torch.float64)
    assert (operator(mirrored(initial)) - mirrored(operator(initial))).abs().max() > 1e-3
    operator.eval()
    torch.testing.assert_close(operator(mirrored(initial)), mirrored(operator(initial)))


def test_the_solution_vanishes_on_the_walls() -> None:
    factor = wall_factor(torch.arange(421), torch.arange(421), torch.float64)[0]
    slope = (factor[1] - factor[0]) * 421
    torch.testing.assert_close(factor[0] - slope * WALL, torch.zeros(421, dtype=torch.float64), rtol=0, atol=1e-4)
    assert factor.max() == pytest.approx(1)


@pytest.mark.parametrize("grid", [(), (29, 29)])
def test_normalising_and_back(grid: tuple[int, ...]) -> None:
    fields, normaliser = 3 + 2 * torch.randn(50, 29, 29), Normaliser(grid)
    normaliser.fit(fields)
    assert normaliser(fields).mean().abs() < 1e-5
    assert normaliser(fields).std().item() == pytest.approx(1, abs=0.02)
    torch.testing.assert_close(normaliser.inverse(normaliser(fields)), fields)


def test_statistics_of_channels_and_the_published_floor() -> None:
    fields = torch.randn(50, 3, 8, 8) * torch.tensor([1.0, 10.0, 0.0])[:, None, None] + 7
    channels, points = Normaliser((3, 1, 1)), Normaliser((3, 8, 8), relative=False)
    channels.fit(fields)
    points.fit(fields)
    assert channels(fields).std(dim=(0, 2, 3)).tolist() == pytest.approx([1, 1, 0], abs=1e-2)
    torch.testing.assert_close(points.deviation, fields.std(dim=0, correction=0) + 1e-5)


def test_local_mixing_is_a_shift_invariant_stencil() -> None:
    mixing, x = LocalMixing(4, (16,), 5, periodic=True), torch.randn(2, 16, 4)
    torch.testing.assert_close(mixing(x.roll(3, dims=1)), mixing(x).roll(3, dims=1))


def test_an_encoder_layer_keeps_the_shape() -> None:
    class Mean(torch.nn.Module):
        def forward(self, tokens: torch.Tensor, **options: torch.Tensor | None) -> torch.Tensor:
            del options
            return tokens.mean(dim=1, keepdim=True).expand_as(tokens)

    layer = EncoderLayer(Mean(), 8, 16, local=LocalMixing(8, (5, 5), 3))
    assert layer(torch.randn(2, 25, 8), square_positions(5)).shape == (2, 25, 8)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_describes_a_network(name: str) -> None:
    recipe = recipes.read(recipes.find(name))
    assert recipe.name == name
    assert recipe.problem in PROBLEMS
    with torch.device("meta"):
        build(recipe.operator)
