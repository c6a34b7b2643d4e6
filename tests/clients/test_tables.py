"""The measurements of a model on narrow terminals."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, Group

from petrov_client._commands.show import measured

CHECKPOINTS = Path(__file__).parents[2] / "checkpoints"


def card(model: str) -> dict[str, Any]:
    """Return the card of a released model."""
    return json.loads((CHECKPOINTS / model / "published" / model / "card.json").read_text())  # type: ignore[no-any-return]


def shown(found: dict[str, Any], width: int = 80) -> list[str]:
    """Return the lines that a terminal shows of a card."""
    text = io.StringIO()
    Console(file=text, width=width).print(Group(*measured(found)))
    return text.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("model", ["darcy", "darcy_inverse", "burgers", "navier_stokes"])
def test_every_measured_number_is_readable(model: str, width: int) -> None:
    rows = card(model)["errors"]
    lines = shown({"errors": rows}, width)
    assert max(map(len, lines)) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in "".join(lines)
    for row in rows:
        parts = [line for line in lines if line.strip().startswith(" x ".join(map(str, row["grid"])))]
        cells = " ".join(parts).split()
        assert all(f"{value:.3g}" in cells for value in row.values() if isinstance(value, float))
    assert sum(line.strip() == "Errors" for line in lines) == 1


def test_each_line_says_at_which_noise_it_was_measured() -> None:
    rows = card("darcy_inverse")["errors"]
    lines = [line.split() for line in shown({"errors": rows})]
    for row in rows:
        lead = [*" x ".join(map(str, row["grid"])).split(), *([f"{row['noise']:g}"] if "noise" in row else [])]
        found = [line for line in lines if line[: len(lead)] == lead and f"{row['relative_l2']:.3g}" in line]
        assert len(found) == 1
        assert len([line for line in lines if line[: len(lead) + 1] == [*lead, f"{row['relative_h1']:.3g}"]]) == 1


def test_conditions_have_tables_of_their_own() -> None:
    rows = card("burgers")["errors"]
    conditions = {row["conditions"] for row in rows if "conditions" in row}
    lines = [line.strip() for line in shown({"errors": rows})]
    assert conditions
    assert [line for line in lines if line.startswith("Errors")] == [
        "Errors",
        *(f"Errors, {one}" for one in conditions),
    ]


def test_trajectories_have_errors_at_doubling_frames() -> None:
    frames = card("kuramoto_sivashinsky")["rollout"]
    lines = [line.split() for line in shown({"rollout": frames}, 200)]
    errors = {line[0]: line[2] for line in lines if line and line[0].isdigit()}
    assert list(errors) == ["1", "2", "4", "8", "16", "32", "40"]
    assert errors == {
        f"{row['frame']:g}": f"{row['relative_l2']:.3g}" for row in frames if f"{row['frame']:g}" in errors
    }


def test_a_card_without_measurements_has_no_table() -> None:
    assert shown({"classical": [], "errors": []}) == []
