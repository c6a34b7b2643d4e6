"""The table of the attention types: `python -m benchmarks profile attention` beside the paper's claims.

docs/layers.md shows the same run: the cost of every form at the largest number of tokens, and the chart of all of them.
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
    from benchmarks.profiling.claims import Finding
    from benchmarks.report.page import Table

LENGTHS, QUICK_LENGTHS = "1024,2048,4096,8192", "1024,2048"
HEADER = ("claim", "tokens", "form", "baseline", "measured", "published")
GROWTH = ("attention", "growth of forward", "of backward", "of memory")
LAYERS = ("attention", "forward ms", "backward ms", "peak MB", "time and memory grow like")
#: The names and the order of the forms in docs/layers.md.
FORMS = {
    "galerkin": "galerkin",
    "fourier": "fourier, as Q (K^T V)",
    "linear": "linear",
    "softmax": "softmax, fused kernel",
    "fourier-explicit": "fourier, n x n matrix as published",
    "softmax-explicit": "softmax, n x n matrix as published",
}


def measure(*, quick: bool) -> Profile:
    """Profile every form of attention: one layer, one sample, one thread, processor time."""
    size = ["--lengths", QUICK_LENGTHS if quick else LENGTHS, "--repeats", "2" if quick else "5"]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "profile.json"
        command = [sys.executable, "-m", "benchmarks", "profile", "attention", "--batch", "1", *size]
        subprocess.run(  # noqa: S603 -- our own command
            [*command, "--clock", "processor", "--json", str(target)],
            check=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        return Profile.model_validate_json(target.read_text())


def document(found: Profile) -> dict[str, Any]:
    """Return everything that was measured."""
    return {"profile": found.model_dump(mode="json")}


def tables(found: Profile) -> dict[str, Table]:
    """Return the tables of claims and growth."""
    grown = [
        (each.form, *(f"n^{power:.2f}" for power in (each.forward, each.backward, each.memory)))
        for each in found.growth
    ]
    return {"claims": (HEADER, [row(each) for each in found.claims]), "claims-growth": (GROWTH, grown)}


def row(finding: Finding) -> tuple[str, ...]:
    """Return both costs of a claim, and the difference."""
    scale, unit = (1e-6, "MB") if finding.unit == "less" else (1e3, "ms")
    return (
        finding.title,
        f"{finding.length:,}",
        f"{finding.form}: {scale * finding.cost:.0f} {unit}",
        f"{finding.baseline}: {scale * finding.baseline_cost:.0f} {unit}",
        f"{finding.found:.0%} {finding.unit}",
        finding.published,
    )


def layers(found: Profile) -> list[tuple[str, ...]]:
    """Return the rows of docs/layers.md: the cost of one layer at the largest number of tokens, and its growth."""
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
