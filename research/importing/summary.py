"""The table that lists the source of every argument of an import."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from research.importing.reference import Imported

#: Arguments of the file that are listed, under the reference's names.
INFERRED = (
    *("n_hidden", "n_head", "num_encoder_layers", "dim_feedforward", "attn_norm", "layer_norm", "batch_norm"),
    *("decoder_type", "freq_dim", "fourier_modes", "num_regressor_layers", "spacial_fc"),
)
#: Given arguments that are listed; the others concern the training or have no effect.
GIVEN = (
    *("attention_type", "norm_type", "norm_eps", "residual_type", "spacial_residual", "attn_activation"),
    *("regressor_activation", "downscaler_activation", "upscaler_activation", "last_activation"),
    *("boundary_condition", "downscaler_size", "upscaler_size", "subsample_nodes", "subsample_attn"),
)


def summary(imported: Imported) -> Table:
    """List every argument with its source; those that were assumed are highlighted."""
    inference, config = imported.inference, imported.operator.config.model_dump(mode="json")
    table = Table("", "argument", "value", title=f"{imported.recipe.problem}, {config['kind']}", title_justify="left")
    rows: list[tuple[str, dict[str, Any], str]] = [
        ("in the file", {name: inference.inferred[name] for name in INFERRED if name in inference.inferred}, ""),
        ("given", {name: inference.given[name] for name in GIVEN if inference.given.get(name) is not None}, ""),
        ("assumed", imported.assumed, "yellow"),
        ("grids", {name: config[name] for name in ("grid", "tokens", "output") if name in config}, ""),
    ]
    for word, values, style in rows:
        for name, value in values.items():
            table.add_row(word, name, str(value), style=style)
        table.add_section()
    table.add_row("in all", "parameters", f"{imported.card['checkpoint']['parameters']:,}")
    return table
