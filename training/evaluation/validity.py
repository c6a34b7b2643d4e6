"""The limits of a network's figures: what it was trained for, and what has not been measured."""

from __future__ import annotations

from training.problems.description import Description


def validity(description: Description, grids: tuple[int, ...], noise: tuple[float, ...]) -> dict[str, str]:
    """Return a card's limits of validity.

    Args:
        description: The problem.
        grids: Points per axis of the trained grids.
        noise: Trained levels of noise, 0 for none.

    Returns:
        What was trained, what was measured and what was not tried, in words.
    """
    levels = [f"{100 * level:g} %" for level in noise if level]
    points, trained_noise = " and ".join(map(str, grids)), " and ".join(levels) or "none"
    return {
        "trained": f"{description.distribution}; points per axis: {points}; noise: {trained_noise}",
        "measured": "on test fields of the same distribution, on the grids in `errors`; other grids are interpolated",
        "not tried": description.untested,
    }
