"""The general operator of this project, with the sizes and settings that its preset takes from the data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from training.data.own_samples import OwnSamples
from training.fit.own.preset import PRESETS, fitting, network
from training.operators.field import FieldOperator
from training.problems.own.problem_file import read_problem_file

if TYPE_CHECKING:
    from benchmarks.own_data.loop import Samples
    from benchmarks.own_data.samples import Prepared

PRESET = PRESETS["quick"]
STATISTICS_SAMPLES = 512  # as in a training by `make train`


class NoAttention(nn.Module):
    """Add nothing instead of an attention, for the ablation."""

    def forward(self, tokens: Tensor, **_: Any) -> Tensor:
        return tokens.new_zeros(())


def build(prepared: Prepared, samples: Samples, *, attention: bool = True) -> FieldOperator:
    """Return the network of the preset.

    Args:
        prepared: Where the samples are.
        samples: The training samples.
        attention: Keep the attention of the encoder layers; their stencils and feed-forward networks are always kept.
    """
    chosen = network(open_samples(prepared), PRESET)
    operator = FieldOperator(chosen)
    operator.fit_normalisers(*(each[:STATISTICS_SAMPLES] for each in (*samples.inputs, samples.output)))
    if not attention:
        for layer in operator.encoder:
            layer.attention = NoAttention()
    return operator


def settings(prepared: Prepared) -> dict[str, Any]:
    """Return the settings of the loop that the preset takes from the data."""
    chosen = fitting(open_samples(prepared), PRESET)
    return chosen.model_dump(include={"batch", "learning_rate", "weight_decay"})


def open_samples(prepared: Prepared) -> OwnSamples:
    """Return the prepared samples as the preset reads them."""
    return OwnSamples(Path(prepared.file), read_problem_file(Path(prepared.problem)))
