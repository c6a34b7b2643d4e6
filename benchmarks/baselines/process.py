"""Takes a subject and its environment, gives a running worker that is asked over pipes, one line at a time."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.baselines.environment import OURS, interpreter

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class RivalError(RuntimeError):
    """A worker could not do what it was asked: the message is what it said, or how it ended."""


class Times(NamedTuple):
    """Seconds of some runs, by both clocks."""

    wall: list[float]
    processor: list[float]


class Rival:
    """A worker's process, from its import to its end; use it as a context.

    Args:
        subject: `MODULE:CLASS` of what it measures, see `worker`.
        environment: Whose packages it runs with.
        python: Its interpreter; by default that of `environment`.
    """

    def __init__(self, subject: str, environment: str = OURS, python: Path | None = None) -> None:
        self.subject = subject
        self.said = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed with the process
        self.process = subprocess.Popen(  # noqa: S603 -- our own command
            [python or interpreter(environment), "-m", "benchmarks.baselines.worker", subject],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
            env=os.environ | ONE_THREAD,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()
        self.said.close()

    def prepare(self, **arguments: Any) -> dict[str, Any]:
        """Wait for its imports, let it build what it measures, and give what it says of it."""
        self.read()
        facts: dict[str, Any] = self.ask(do="prepare", arguments=arguments)["facts"]
        return facts

    def run(self, times: int) -> Times:
        """Let it work, and give its times."""
        return Times(**self.ask(do="run", times=times))

    def answer(self, file: Path) -> None:
        """Let it write its answer."""
        self.ask(do="answer", file=str(file))

    def peak_bytes(self) -> tuple[int, int]:
        """Give its resident bytes: the peak since the preparation, and what was there before."""
        found = self.ask(do="report")
        return found["peak"], found["before"]

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a line and read one."""
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return self.read()

    def read(self) -> dict[str, Any]:
        """Read a line.

        Raises:
            RivalError: it holds an error, or there is none because the process ended.
        """
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.said.seek(0)
            raise RivalError(f"{self.subject} ended with status {status} before it answered: {self.said.read()[-800:]}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise RivalError(f"{self.subject}: {reply['error']}")
        return reply
