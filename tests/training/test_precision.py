"""Less than float32 is asked for by name, for the products of a network that is trained, and certified by itself."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional
from tritonclient.grpc import model_config_pb2 as pb

from export import parity, triton_config
from export.signature import Signature
from training import optimisation, recipe, recipes
from training.optimisation import Rounded, exact, rounded, train_in
from training.problems.problem import PROBLEMS

FINE = 1 + 2.0**-9  # more than bfloat16 keeps, and no more than TF32 does
FINEST = 1 + 2.0**-14


class Product(nn.Module):
    """One product; it notes whether it ran in TF32, and fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4, 4), FINE))
        self.tf32, self.fails = False, False

    def forward(self, x: Tensor) -> Tensor:
        self.tf32 = torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32
        if self.fails:
            raise RuntimeError("as it was told")
        return x @ self.weight


def test_a_recipe_names_a_known_precision_and_float32_is_not_written() -> None:
    document = recipes.read(recipes.find("darcy-tiny")).model_dump(mode="json")
    assert "precision" not in document
    named = recipes.validate(document | {"precision": "bfloat16"}, "recipe")
    assert (named.precision, named.model_dump(mode="json")["precision"]) == ("bfloat16", "bfloat16")
    with pytest.raises(recipe.RecipeError, match="precision"):
        recipes.validate(document | {"precision": "float16"}, "recipe")
    with pytest.raises(ValidationError, match="precision"):
        recipe.Recipe.model_validate(document | {"precision": ""})


def test_a_trained_network_multiplies_in_bfloat16_and_a_measured_one_in_float32() -> None:
    network, x = Product(), torch.eye(4)
    train_in(network, "bfloat16")
    for each in (network, copy.deepcopy(network)):
        rough = each(x)
        assert (rough.dtype, rough[0, 0].item()) == (torch.float32, 1.0)
        assert (x @ each.weight)[0, 0].item() == pytest.approx(FINE)  # a loss, behind the network
        assert each.eval()(x)[0, 0].item() == pytest.approx(FINE)


def test_a_network_that_fails_leaves_nothing_rounded() -> None:
    network = Product()
    train_in(network, "bfloat16")
    network.fails = True
    with pytest.raises(RuntimeError, match="told"):
        network(torch.eye(4))
    assert not torch.is_autocast_enabled("cpu")


def test_tf32_is_for_the_network_alone() -> None:
    network = Product()
    train_in(network, "tf32")
    network(torch.eye(4))
    assert network.tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    network.eval()(torch.eye(4))
    assert not network.tf32
    other = Product()
    torch.backends.cudnn.allow_tf32 = True
    train_in(other, "float32")
    other(torch.eye(4))
    assert not torch.backends.cudnn.allow_tf32
    exact()


@pytest.mark.parametrize(
    ("bits", "kept"), [("float32", (FINE, FINEST)), ("tf32", (FINE, 1.0)), ("bfloat16", (1.0, 1.0))]
)
def test_a_product_is_rounded_as_on_a_gpu(bits: Any, kept: tuple[float, float]) -> None:
    x = torch.tensor([[FINE, FINEST], [FINE, FINEST]])
    assert rounded(x, optimisation.BITS[bits])[0].tolist() == pytest.approx(kept, rel=1e-7)
    one = torch.eye(2)
    with torch.no_grad(), Rounded(bits):
        found = [
            x @ one,
            nn.functional.linear(x, one),
            torch.einsum("ij,jk->ik", x, one),
            torch.bmm(x[None], one[None])[0],
        ]
    for each in found:
        assert each[0].tolist() == pytest.approx(kept, rel=1e-7)


def test_what_is_added_to_a_product_is_not_rounded() -> None:
    with torch.no_grad(), Rounded("bfloat16"):
        found = torch.addmm(torch.full((2, 2), FINE), torch.eye(2), torch.zeros(2, 2))
    assert found[0, 0].item() == pytest.approx(FINE)


def test_products_of_softmax_attention_are_rounded() -> None:
    query, key, value = torch.randn(3, 2, 2, 30, 8)
    with torch.no_grad():
        exact = functional.scaled_dot_product_attention(query, key, value)
        with Rounded("bfloat16"):
            rough = functional.scaled_dot_product_attention(query, key, value)
        assert 1e-4 < (rough - exact).abs().max() < 0.1
        assert torch.equal(functional.scaled_dot_product_attention(query, key, value), exact)  # behind it


def test_the_config_of_less_precision_allows_tf32_and_any_other_does_not() -> None:
    signature = Signature.of(PROBLEMS["burgers"].description)
    allowed = {}
    for name in optimisation.BITS:
        config = triton_config.parse(triton_config.text("burgers", signature, "onnx", name))
        assert isinstance(config, pb.ModelConfig)
        [accelerator] = config.optimization.execution_accelerators.gpu_execution_accelerator
        allowed[name] = accelerator.parameters["use_tf32"]
    assert allowed == {"float32": "0", "tf32": "1", "bfloat16": "1"}


class Sensitive(nn.Module):
    """A network whose output is a small difference of products."""

    def __init__(self, difference: float) -> None:
        super().__init__()
        self.difference = difference

    def forward(self, initial: Tensor) -> Tensor:
        one = torch.ones(1, 1)
        return ((initial[..., None] @ one) - (1 - self.difference) * initial[..., None] @ one)[..., 0]


def test_less_precision_is_certified_at_its_own_tolerance() -> None:
    signature = Signature.of(PROBLEMS["burgers"].description)
    signature = signature.model_copy(update={"parameters": ()})
    found = parity.rounded(Sensitive(1.0), signature, {}, "tf32")["precision"]
    assert (found["name"], found["tolerance"]) == ("tf32", 5e-3)
    assert 1e-5 < found["worst"] < 5e-3
    with pytest.raises(parity.ParityError, match="products in tf32 to change outputs by at most"):
        parity.rounded(Sensitive(1e-3), signature, {}, "tf32")


def test_a_guaranteed_bound_takes_float32() -> None:
    signature = Signature.of(PROBLEMS["darcy"].description).model_copy(update={"quality": ("error_bound",)})
    with pytest.raises(parity.ParityError, match="expected float32 for a model that guarantees error_bound"):
        parity.rounded(Sensitive(1.0), signature, {}, "tf32")


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_precision_is_refused() -> None:
    for use in (lambda: train_in(nn.Linear(2, 2), "float8"), lambda: Rounded("float8")):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="expected a precision among float32, tf32, bfloat16 but got 'float8'"):
            use()
