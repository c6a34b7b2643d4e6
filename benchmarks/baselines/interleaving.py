"""An interleaved measurement of sides that do the same work: medians, ratios and memory.

Other load on the machine slows all sides alike, so ratios of medians hold where times do not. Processor time counts,
since it excludes other programs; the wall clock is kept beside it.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.baselines.environment import OWN, interpreter
from benchmarks.baselines.process import Baseline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        name: Its name in the table.
        subject: `MODULE:CLASS` of what its worker runs.
        environment: The environment of its worker.
        arguments: The arguments of the class.
        keep_output: Whether its output is written to a file.
    """

    name: str
    subject: str
    environment: str = OWN
    arguments: dict[str, Any] = field(default_factory=dict)
    keep_output: bool = False


@dataclass(frozen=True)
class Measured:
    """The results of one side: seconds per round by both clocks, resident bytes, and its own facts."""

    name: str
    wall: tuple[float, ...]
    processor: tuple[float, ...]
    peak: int
    before: int
    facts: dict[str, Any]

    @property
    def seconds(self) -> float:
        """The median of the processor time."""
        return statistics.median(self.processor)

    @property
    def memory(self) -> float:
        """The peak of the resident memory beyond the imported libraries', in MiB."""
        return (self.peak - self.before) / MEBIBYTE

    def times(self, other: Measured) -> float:
        """Return the other side's time divided by this one's."""
        return other.seconds / self.seconds

    def document(self) -> dict[str, Any]:
        """Return everything that was measured, with the medians."""
        return asdict(self) | {"seconds": self.seconds, "wall_seconds": statistics.median(self.wall)}


def interleave(sides: Sequence[Side], rounds: int, outputs: Path, *, warm: bool = True) -> list[Measured]:
    """Prepare all sides, then measure one after the other, round by round.

    Args:
        sides: The sides.
        rounds: The number of measurements of each.
        outputs: The folder of the outputs `<number of the side>.npy` that are kept.
        warm: Whether each works once before, unmeasured.
    """
    for side in sides:
        interpreter(side.environment)  # made before the clock runs
    with ExitStack() as stack:
        baselines = [stack.enter_context(Baseline(side.subject, side.environment)) for side in sides]
        facts = [baseline.prepare(**side.arguments) for baseline, side in zip(baselines, sides, strict=True)]
        for baseline in baselines:
            baseline.run(1 if warm else 0)
        times = [[baseline.run(1) for baseline in baselines] for _ in range(rounds)]
        memory = [baseline.peak_bytes() for baseline in baselines]
        for number, (baseline, side) in enumerate(zip(baselines, sides, strict=True)):
            if side.keep_output:
                baseline.write_output(outputs / f"{number}.npy")
    return [
        Measured(
            side.name,
            tuple(each[number].wall[0] for each in times),
            tuple(each[number].processor[0] for each in times),
            *memory[number],
            facts[number],
        )
        for number, side in enumerate(sides)
    ]
