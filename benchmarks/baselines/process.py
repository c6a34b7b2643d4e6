"""A worker process in an environment of its own, controlled over pipes, one line of JSON at a time."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from benchmarks.baselines.environment import OWN, interpreter

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class BaselineError(RuntimeError):
    """A worker failed; the message is its error, or its exit status and last output."""


class Times(NamedTuple):
    """The seconds of some runs, by both clocks."""

    wall: list[float]
    processor: list[float]


class Baseline:
    """A worker's process, as a context.

    Args:
        subject: `MODULE:CLASS` of what it measures, see `worker`.
        environment: The name of its environment.
        python: Its interpreter; by default that of `environment`.
    """

    def __init__(self, subject: str, environment: str = OWN, python: Path | None = None) -> None:
        self.subject = subject
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed with the process
        self.process = subprocess.Popen(  # noqa: S603 -- our own command
            [python or interpreter(environment), "-m", "benchmarks.baselines.worker", subject],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=os.environ | ONE_THREAD,
        )
        self.replies = cast("IO[str]", self.process.stdout)  # a pipe, as ordered above

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()
        self.errors.close()

    def prepare(self, **arguments: Any) -> dict[str, Any]:
        """Wait for its imports, build its subject, and return the subject's facts."""
        self.read()
        facts: dict[str, Any] = self.request(do="prepare", arguments=arguments)["facts"]
        return facts

    def run(self, times: int) -> Times:
        """Run the subject, and return the times."""
        return Times(**self.request(do="run", times=times))

    def write_output(self, file: Path) -> None:
        """Write the subject's output to a file."""
        self.request(do="write_output", file=str(file))

    def peak_bytes(self) -> tuple[int, int]:
        """Return its resident bytes: the peak since the preparation, and the value before it."""
        found = self.request(do="report")
        return found["peak"], found["before"]

    def request(self, **request: Any) -> dict[str, Any]:
        """Send a line, and return the reply."""
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return self.read()

    def read(self) -> dict[str, Any]:
        """Return the next reply.

        Raises:
            BaselineError: The reply holds an error, or the process has ended.
        """
        line = self.replies.readline()
        if not line:
            status = self.process.wait()
            self.errors.seek(0)
            raise BaselineError(
                f"{self.subject} ended with status {status} before it replied: {self.errors.read()[-800:]}"
            )
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise BaselineError(f"{self.subject}: {reply['error']}")
        return reply
