"""Takes an operator's config, gives the network: one complete network per file, physical units in and out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from training.nn.encoder import EncoderConfig
from training.operators.burgers import BurgersConfig, BurgersOperator
from training.operators.darcy import DarcyConfig, DarcyOperator
from training.operators.darcy_inverse import DarcyInverseConfig, DarcyInverseOperator
from training.operators.grid_transformer import GridTransformer, GridTransformerConfig
from training.operators.line_transformer import LineTransformer, LineTransformerConfig
from training.operators.plane_transformer import PlaneTransformer, PlaneTransformerConfig

OperatorConfig = Annotated[
    BurgersConfig
    | DarcyConfig
    | DarcyInverseConfig
    | LineTransformerConfig
    | PlaneTransformerConfig
    | GridTransformerConfig,
    Field(discriminator="kind"),
]
Operator = BurgersOperator | DarcyOperator | DarcyInverseOperator | LineTransformer | PlaneTransformer | GridTransformer

#: The one registry that turns a config into a network.
OPERATORS: dict[type[EncoderConfig], Callable[[Any], Operator]] = {
    BurgersConfig: BurgersOperator,
    DarcyConfig: DarcyOperator,
    DarcyInverseConfig: DarcyInverseOperator,
    LineTransformerConfig: LineTransformer,
    PlaneTransformerConfig: PlaneTransformer,
    GridTransformerConfig: GridTransformer,
}


def build(config: EncoderConfig) -> Operator:
    """Build the network that `config` describes, with fresh weights."""
    return OPERATORS[type(config)](config)


__all__ = [
    "OPERATORS",
    "BurgersConfig",
    "BurgersOperator",
    "DarcyConfig",
    "DarcyInverseConfig",
    "DarcyInverseOperator",
    "DarcyOperator",
    "GridTransformer",
    "GridTransformerConfig",
    "LineTransformer",
    "LineTransformerConfig",
    "Operator",
    "OperatorConfig",
    "PlaneTransformer",
    "PlaneTransformerConfig",
    "build",
]
