"""Takes an operator's config, gives the network: one complete network per file, physical units in and out."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from training.operators.burgers import BurgersConfig, BurgersOperator
from training.operators.darcy import DarcyConfig, DarcyOperator

OperatorConfig = Annotated[BurgersConfig | DarcyConfig, Field(discriminator="kind")]
Operator = BurgersOperator | DarcyOperator


def build(config: BurgersConfig | DarcyConfig) -> Operator:
    """Build the network that `config` describes, with fresh weights."""
    return BurgersOperator(config) if isinstance(config, BurgersConfig) else DarcyOperator(config)


__all__ = ["BurgersConfig", "BurgersOperator", "DarcyConfig", "DarcyOperator", "Operator", "OperatorConfig", "build"]
