"""Takes rivals that do the same work, lets them do it in turns, and gives medians, ratios and memory.

Whatever else the machine does meanwhile slows all sides alike, so ratios of medians hold where times do not. Processor
time counts, for it leaves out what other programs take; the wall clock is kept beside it.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.baselines.environment import OURS, interpreter
from benchmarks.baselines.process import Rival

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        name: What it is called in the table.
        subject: `MODULE:CLASS` of its worker.
        environment: Whose packages it runs with.
        arguments: What it is built from.
        asked: Whether its answer is wanted.
    """

    name: str
    subject: str
    environment: str = OURS
    arguments: dict[str, Any] = field(default_factory=dict)
    asked: bool = False


@dataclass(frozen=True)
class Measured:
    """What one side took: seconds of each turn by both clocks, resident bytes, and what it says of itself."""

    name: str
    wall: tuple[float, ...]
    processor: tuple[float, ...]
    peak: int
    before: int
    facts: dict[str, Any]

    @property
    def seconds(self) -> float:
        """The median of the processor's time."""
        return statistics.median(self.processor)

    @property
    def memory(self) -> float:
        """The most resident memory beyond the imported libraries', in MiB."""
        return (self.peak - self.before) / MEBIBYTE

    def times(self, other: Measured) -> float:
        """Give how many times as long the other took."""
        return other.seconds / self.seconds

    def document(self) -> dict[str, Any]:
        """Give all that was measured, with the medians."""
        return asdict(self) | {"seconds": self.seconds, "wall_seconds": statistics.median(self.wall)}


def take_turns(sides: Sequence[Side], turns: int, answers: Path, *, warm: bool = True) -> list[Measured]:
    """Prepare all sides, let each work once unmeasured, then one after the other, again and again.

    Args:
        sides: Who takes part.
        turns: How often each is measured.
        answers: A folder for the answers, `<number of the side>.npy`, of those that are asked for theirs.
        warm: Let each work once before, unmeasured.
    """
    for side in sides:
        interpreter(side.environment)  # made before the clock runs
    with ExitStack() as stack:
        rivals = [stack.enter_context(Rival(side.subject, side.environment)) for side in sides]
        facts = [rival.prepare(**side.arguments) for rival, side in zip(rivals, sides, strict=True)]
        for rival in rivals:
            rival.run(1 if warm else 0)
        times = [[rival.run(1) for rival in rivals] for _ in range(turns)]
        memory = [rival.peak_bytes() for rival in rivals]
        for number, (rival, side) in enumerate(zip(rivals, sides, strict=True)):
            if side.asked:
                rival.answer(answers / f"{number}.npy")
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
