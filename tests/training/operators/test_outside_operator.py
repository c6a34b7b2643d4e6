"""An installed package adds an operator and an attention by entry point, which recipes then name, build and save."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import BaseModel, TypeAdapter, ValidationError

from tests.packages import installed
from training import recipes
from training.nn.encoder import EncoderConfig
from training.operators import OPERATORS, OperatorConfig, build
from training.operators.burgers import BurgersConfig
from training.recipe import Recipe

PACKAGE = """
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from training.nn import HeadAttention
from training.operators import Operator, OperatorKind


class SumConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["sum"] = "sum"
    scale: float = 1.0


class Sum(Operator):
    config: SumConfig

    def __init__(self, config: SumConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(config.scale * torch.ones(()))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.weight * (left + right)


OPERATOR = OperatorKind("sum", SumConfig, Sum)


class MeanAttention(HeadAttention):
    pairwise = False

    def mix(self, Q, K, V, mask):
        return V.mean(dim=-2, keepdim=True).expand_as(Q)
"""
ENTRY_POINTS = """
[petrov.operators]
sum = outside:OPERATOR
[petrov.attention]
mean = outside:MeanAttention
"""


def test_an_operator_and_an_attention_of_another_package_are_named_in_recipes(tmp_path: Path) -> None:
    """The two inputs of the operator are two tensors."""
    darcy = recipes.read(recipes.find("darcy-tiny")).model_dump(mode="json")
    with installed(tmp_path, PACKAGE, ENTRY_POINTS):
        read = recipes.validate(darcy | {"operator": {"kind": "sum", "scale": 3.0}}, "test")
        assert isinstance(read, Recipe)
        operator = build(read.operator)
        operator.fit_normalisers(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 3))
        assert operator(torch.ones(1, 2), torch.ones(1, 2)).tolist() == [[6.0, 6.0]]
        assert [*OPERATORS][-1] == "sum"
        assert read.model_dump(mode="json")["operator"] == {"kind": "sum", "scale": 3.0}
        assert type(read).model_validate_json(read.model_dump_json()) == read
        mean = recipes.read(recipes.find("darcy-tiny"), ["operator.attention=mean"])
        assert isinstance(mean, Recipe)
        assert type(build(mean.operator).encoder[0].attention).__name__ == "MeanAttention"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "fno"}, "expected a kind of operator among burgers, .*darcy, .* but got 'fno'"),
        ({"layers": 2}, "expected a table with a kind among burgers, .*darcy"),
        (3, "expected a table with a kind among burgers, .*darcy"),
        ({"kind": "darcy", "depth": 2}, "depth\n.*not permitted"),
    ],
)
def test_an_unknown_operator_is_refused(table: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TypeAdapter[BaseModel](OperatorConfig).validate_python(table)


def test_a_config_of_no_operator_is_refused() -> None:
    with pytest.raises(TypeError, match="expected the config of an operator but got EncoderConfig"):
        build(EncoderConfig())


def test_every_kind_is_the_default_of_its_config() -> None:
    for name, kind in OPERATORS.items.items():
        assert kind.config.model_fields["kind"].default == name


def test_a_config_keeps_all_keys_of_its_kind_in_json() -> None:
    adapter = TypeAdapter[BaseModel](OperatorConfig)
    config = BurgersConfig(tokens=32, odd=True)
    assert adapter.validate_json(adapter.dump_json(config)) == config
