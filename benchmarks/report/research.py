"""The tables of docs/research.md, from the comparisons and the profile in docs/research/."""

from __future__ import annotations

from pathlib import Path

from benchmarks import comparison
from benchmarks.profiling.report import Profile
from benchmarks.report import learning, markdown

PAGE, FOLDER, CURVES = Path("docs/research.md"), Path("docs/research"), Path("docs/research/listops.png")
COMPARISONS = ("listops", "darcy")


def write_page() -> None:
    """Write every table, and the picture of the learning curves."""
    for name, (header, rows) in tables(FOLDER).items():
        markdown.write(PAGE, name, header, rows)
    learning.draw(comparison.complete(comparison.load(FOLDER / "listops.json")), CURVES)


def tables(folder: Path) -> dict[str, tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Return header and rows by the name of the table, for the files that exist."""
    found = {name: folder / f"{name}.json" for name in COMPARISONS if (folder / f"{name}.json").exists()}
    compared = {
        name: (comparison.HEADER, comparison.cells(comparison.complete(comparison.load(path))))
        for name, path in found.items()
    }
    profile = Profile.model_validate_json((folder / "lengths.json").read_text())
    return compared | {"lengths": lengths(profile)}


def lengths(profile: Profile) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return a row per attention type: time and peak memory of a step at every length, and the growth of both."""
    points = tuple(dict.fromkeys(row.length for row in profile.rows))
    steps = {(row.form, row.length): 1e3 * (row.forward + row.backward) for row in profile.rows}
    peaks = {(row.form, row.length): row.peak_bytes / 1e6 for row in profile.rows}
    header = (
        "attention",
        *(f"{n:,}" for n in points),
        "backward grows as",
        "peak in MB at 1,024",
        f"at {points[-1]:,}",
    )
    rows = [
        (
            each.form,
            *(f"{steps[each.form, n]:.0f} ms" for n in points),
            f"n^{each.backward:.1f}",
            f"{peaks[each.form, points[0]]:.0f}",
            f"{peaks[each.form, points[-1]]:.0f}",
        )
        for each in profile.growth
    ]
    return header, rows
