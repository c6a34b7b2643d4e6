"""The description of a model on narrow terminals."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, Group

from petrov_client._commands import tables

CARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "checkpoints/darcy/published/darcy/card.json").read_text()
)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_measured_number_is_readable(width: int) -> None:
    rows = CARD["errors"]
    text = io.StringIO()
    Console(file=text, width=width).print(Group(*tables._measurements("Errors", rows)))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in text.getvalue()
    for row in rows:
        [*parts] = [line for line in lines if line.strip().startswith(" x ".join(map(str, row["grid"])))]
        cells = " ".join(parts).split()
        assert all(f"{value:.3g}" in cells for value in row.values() if isinstance(value, float))
    assert sum(line.strip() == "Errors" for line in lines) == 1
