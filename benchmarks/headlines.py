"""Table 4, the paper's headlines: takes `training profile attention`, gives its answers to the claims.

The README shows the same run: every form's cost at the longest line, and the picture over all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.profiling.report import Profile

if TYPE_CHECKING:
    from benchmarks.page import Table
    from benchmarks.profiling.headlines import Headline

LENGTHS, QUICK_LENGTHS = "1024,2048,4096,8192", "1024,2048"
HEADER = ("claim", "tokens", "ours", "against", "found", "published")
GROWTH = ("attention", "forward grows as", "backward", "memory")
LAYERS = ("attention", "forward ms", "backward ms", "peak MB", "time and memory grow like")
#: How the README names the forms, in its order.
FORMS = {
    "galerkin": "galerkin",
    "fourier": "fourier, as Q (K^T V)",
    "linear": "linear",
    "softmax": "softmax, fused kernel",
    "fourier-explicit": "fourier, n x n matrix as published",
    "softmax-explicit": "softmax, n x n matrix as published",
}


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


def layers(found: Profile) -> list[tuple[str, ...]]:
    """Lay out the README's table: what one layer costs at the longest line, and how it grows."""
    longest = max(row.length for row in found.rows)
    rows = {row.form: row for row in found.rows if row.length == longest}
    powers = {each.form: (each.forward, each.backward, each.memory) for each in found.growth}
    return [
        (
            name,
            f"{1e3 * rows[form].forward:.0f}",
            f"{1e3 * rows[form].backward:.0f}",
            f"{1e-6 * rows[form].peak_bytes:.0f}",
            ", ".join(f"n^{power:.2f}" for power in powers[form]),
        )
        for form, name in FORMS.items()
    ]
