"""The README's table of errors and times, from the cards and from the results of `forward` and `solvers`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchmarks.tables import breakeven, forward
from training.evaluation import beside, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

HEADER = ("model", "input", "network error", "network ms", "baseline error", "baseline ms")
#: The grids and noise levels that the README shows, as the cards write them, with the name the timings have for each.
SHOWN = {
    "darcy": {each: each for each in ("85 x 85", "141 x 141", "211 x 211", "421 x 421")},
    "darcy_inverse": {
        "141 x 141": "141 x 141, 0% noise",
        "141 x 141, 1 % noise": "141 x 141, 1% noise",
        "141 x 141, 10 % noise": "141 x 141, 10% noise",
    },
    "burgers": {"512": "512 points", "8192": "8192 points"},
}


def rows(checkpoints: Path, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return one row per shown model and input.

    Args:
        checkpoints: Folder of the released models; their cards hold the errors.
        first: The results of `forward`: times of `darcy` and of its solvers.
        second: The results of `solvers`: times of the other models and of their solvers.

    Returns:
        Cells in the order of `HEADER`: mean relative L2 errors, and milliseconds per field.
    """
    pairs = [each for each in breakeven.darcy_pairs(first) if each.solver_name == forward.GRADIENTS]
    times = {(each.model, each.input): each for each in (*pairs, *breakeven.other_pairs(second))}
    return [
        (model, name, network, milliseconds(pair.network), baseline, milliseconds(pair.solver))
        for model, shown in SHOWN.items()
        for name, network, baseline in errors(checkpoints / model / "card.json")
        if (pair := times.get((model, shown.get(name, ""))))
    ]


def errors(card: Path) -> Iterator[tuple[str, str, str]]:
    """Yield every measured input of a card with the network's error and the baseline's, where it was measured."""
    figures = {name: part for name, part in json.loads(card.read_text()).items() if name in {"errors", "classical"}}
    for network, baseline in beside(figures):
        solver = "" if baseline is None else table.scientific(baseline["relative_l2"])
        yield table.case_name(network), table.scientific(network["relative_l2"]), solver


def milliseconds(seconds: float) -> str:
    """Return milliseconds without decimals, with a separator of thousands."""
    return f"{1e3 * seconds:,.0f}"
