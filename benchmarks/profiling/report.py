"""The report of a profile: settings, rows, exponents and findings, and its JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from pydantic import BaseModel

from benchmarks.profiling.claims import Finding, findings
from benchmarks.profiling.growth import Growth, growth
from benchmarks.profiling.rows import FROZEN, Row, Settings


class Profile(BaseModel):
    """Everything that one run measured; `Profile.model_validate_json` reads the file of `write`."""

    model_config = FROZEN

    torch: str
    threads: int
    settings: Settings
    rows: tuple[Row, ...]
    growth: tuple[Growth, ...]
    claims: tuple[Finding, ...]


def report(settings: Settings, rows: Sequence[Row]) -> Profile:
    """Return the profile of the rows."""
    return Profile(
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        settings=settings,
        rows=tuple(rows),
        growth=tuple(growth(rows)),
        claims=tuple(findings(rows)),
    )


def write(profile: Profile, target: Path) -> None:
    """Write a profile as JSON."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(profile.model_dump_json(indent=1) + "\n")
