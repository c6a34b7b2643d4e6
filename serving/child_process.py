"""A child process whose end can be awaited.

The event loop's own subprocesses run the fork handlers of Python and of gRPC in the child; while other threads are in
the middle of a call, those fail (seen) or wait for ever. The standard library's start nothing of ours in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class ChildProcess:
    """A running program, with a pipe as its standard input. Made while an event loop runs.

    Args:
        command: Program and arguments.
        options: Further arguments of `subprocess.Popen`.

    Attributes:
        pid: Its id.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0, **options)  # noqa: S603 - ours
        self.pid = self._process.pid
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._descriptor = os.pidfd_open(self.pid)
        self._loop.add_reader(self._descriptor, self._reap)

    @property
    def returncode(self) -> int | None:
        """Its exit status, negative after a signal; None while it runs."""
        return self._process.poll()

    async def wait(self) -> int:
        """Return its exit status once it has ended."""
        await self._ended.wait()
        return self._process.wait()

    async def ends_within(self, seconds: float) -> bool:
        """Return whether it ends within so many seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)
        return self._ended.is_set()

    def write(self, data: bytes) -> None:
        """Write to its standard input what fits into a pipe; a process that has ended reads nothing."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.write(data)

    def hang_up(self) -> None:
        """Close its standard input; safe to call again."""
        self._pipe.close()

    def terminate(self) -> None:
        """Send it SIGTERM, unless it has ended."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self._process.kill()

    @property
    def _pipe(self) -> Any:
        return self._process.stdin

    def _reap(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._process.wait()
        self.hang_up()
        self._ended.set()
