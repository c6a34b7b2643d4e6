"""An installed package adds an operator and an attention by entry point, which recipes then name, build and save."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from training.nn.encoder import EncoderConfig
from training.operators import OPERATORS, OperatorConfig, build
from training.operators.burgers import BurgersConfig

PACKAGE = """
from typing import Literal

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
USE = """
import json, sys, torch
from training.nn.encoder import EncoderConfig
from training.operators import OPERATORS, build
from training import recipes

darcy = recipes.read(recipes.find("darcy-tiny")).model_dump(mode="json")
read = recipes.validate(darcy | {"operator": {"kind": "sum", "scale": 3.0}}, "test")
operator = build(read.operator)
operator.fit_normalisers(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 3))
found = operator(torch.ones(1, 2), torch.ones(1, 2))
saved = type(read).model_validate_json(read.model_dump_json())
mean = recipes.read(recipes.find("darcy-tiny"), ["operator.attention=mean"])
kind = type(build(mean.operator).encoder[0].attention).__name__
print(json.dumps([kind, list(OPERATORS)[-1], found.tolist(), read.model_dump(mode="json")["operator"], saved == read]))
"""


def test_an_operator_and_an_attention_of_another_package_are_named_in_recipes(tmp_path: Path) -> None:
    """The two inputs of the operator are two tensors."""
    (tmp_path / "outside.py").write_text(f"import torch\n{PACKAGE}")
    info = tmp_path / "outside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[petrov.operators]\nsum = outside:OPERATOR\n[petrov.attention]\nmean = outside:MeanAttention\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])
    done = subprocess.run(
        [sys.executable, "-c", USE], capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["MeanAttention", "sum", [[6.0, 6.0]], {"kind": "sum", "scale": 3.0}, True]


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
