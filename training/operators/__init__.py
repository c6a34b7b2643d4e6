"""Operators: complete networks between fields in physical units, one per file, found by their kind.

An installed package adds one by an entry point of the group `petrov.operators` whose object is an `OperatorKind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, SerializeAsAny

from training.operators.operator import Operator, OperatorKind
from training.registry import Registry

OPERATORS = Registry("kind of operator", OperatorKind, "training.operators", "OPERATOR", "petrov.operators")


def parse(value: Any) -> BaseModel:
    """Return the config that a table such as `{"kind": "darcy", "layers": 4}` describes; configs are kept as they are.

    Raises:
        ValueError: It is no table, or it has no `kind`.
        UnknownNameError: There is no such kind; the message lists the known kinds.
        ValidationError: The config of that kind refuses a key or a value.
    """
    if isinstance(value, BaseModel):
        return value
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise ValueError(f"expected a table with a kind among {', '.join(OPERATORS)}")  # noqa: TRY004 - for pydantic
    return OPERATORS[value["kind"]].config.model_validate(value)


#: The config of any operator, as a field of a pydantic model.
OperatorConfig = Annotated[SerializeAsAny[BaseModel], BeforeValidator(parse)]


def build(config: BaseModel) -> Operator:
    """Return the network that a config describes, with fresh weights.

    Raises:
        TypeError: The config is of no known operator.

    Example:
        >>> from training.operators.burgers import BurgersConfig
        >>> operator = build(BurgersConfig(attention="galerkin", tokens=32, channels=8, layers=1))
        >>> operator(torch.randn(2, 100)).shape
        torch.Size([2, 100])
    """
    kind = getattr(config, "kind", "")
    if kind not in OPERATORS or type(config) is not OPERATORS[kind].config:
        raise TypeError(f"expected the config of an operator but got {type(config).__name__}")
    return OPERATORS[kind].build(config)


__all__ = ["OPERATORS", "Operator", "OperatorConfig", "OperatorKind", "build", "parse"]
