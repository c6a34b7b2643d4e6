"""Table 4, the paper's headlines: takes `training profile attention`, gives its answers to the claims."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.profiling.report import Profile

if TYPE_CHECKING:
    from benchmarks.page import Table
    from training.profiling.headlines import Headline

LENGTHS, QUICK_LENGTHS = "1024,2048,4096,8192", "1024,2048"
HEADER = ("claim", "tokens", "ours", "against", "found", "published")
GROWTH = ("attention", "forward grows as", "backward", "memory")


def measure(*, quick: bool) -> Profile:
    """Profile every form of attention, one layer, one sample, one thread, by the processor's time."""
    size = ["--lengths", QUICK_LENGTHS if quick else LENGTHS, "--repeats", "2" if quick else "5"]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "profile.json"
        command = [sys.executable, "-m", "training", "profile", "attention", "--batch", "1", *size]
        subprocess.run(  # noqa: S603 -- our own command
            [*command, "--clock", "processor", "--json", str(target)],
            check=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        return Profile.model_validate_json(target.read_text())


def document(found: Profile) -> dict[str, Any]:
    """Give everything that was measured."""
    return {"profile": found.model_dump(mode="json")}


def tables(found: Profile) -> dict[str, Table]:
    """Lay out claims and growth."""
    grown = [
        (each.form, *(f"n^{power:.2f}" for power in (each.forward, each.backward, each.memory)))
        for each in found.growth
    ]
    return {"headlines": (HEADER, [row(each) for each in found.headlines]), "headlines-growth": (GROWTH, grown)}


def row(headline: Headline) -> tuple[str, ...]:
    """Give both sides' costs and what was found."""
    scale, unit = (1e-6, "MB") if headline.unit == "less" else (1e3, "ms")
    return (
        headline.title,
        f"{headline.length:,}",
        f"{headline.ours}: {scale * headline.our_cost:.0f} {unit}",
        f"{headline.other}: {scale * headline.other_cost:.0f} {unit}",
        f"{headline.found:.0%} {headline.unit}",
        headline.published,
    )
