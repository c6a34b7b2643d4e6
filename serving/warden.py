"""A command in; its exit status out, and nothing of it left behind: no process, no shared memory.

    python -I warden.py SHARED_MEMORY_PREFIX COMMAND...

Triton's Python backend starts a process for every model instance and maps shared memory for each. Killed, Triton leaves
both. So it runs under this small warden, which outlives it and cleans up whichever way it ends:

- SIGTERM is passed on, and Triton drains;
- standard input closes: our parent is gone, even by SIGKILL, and everything is killed at once. (A pipe closes with its
  process; Linux's parent-death signal would come with the end of the *thread* that started us.)
- an instance dies (killed for memory, say): Triton would neither replace nor miss it, and requests would hang. So
  Triton is killed, and whoever watches us starts it anew;
- should the warden itself be killed, the kernel kills Triton (parent-death signal), and its stubs end within seconds.

It runs as a script, alone, so that it starts in milliseconds and holds nothing that could fail.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LOOK_SECONDS = 1.0
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory lives on Linux; nothing is created here


def main(prefix: str, command: list[str]) -> int:
    """Runs the command to its end, or to the end of our parent.

    Args:
        prefix: What the names of its shared memory begin with.
        command: Program and arguments.

    Returns:
        Its exit status; 128 + n after signal n, as a shell has it.
    """
    process_control = ctypes.CDLL(None, use_errno=True).prctl
    process_control(PR_SET_CHILD_SUBREAPER, 1)  # stubs that Triton leaves become ours to reap
    # Between fork and exec runs only the one call: this process has a single thread, so the fork is safe.
    child = subprocess.Popen(  # noqa: S603 - the command is our caller's own
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=lambda: process_control(PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 - see above
    )
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    _wait(child)
    _end(child)
    _forget(prefix)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _wait(child: subprocess.Popen[bytes]) -> None:
    """Until the child ends, standard input closes, or a process that the child started has died unnoticed."""
    ended, dead = os.pidfd_open(child.pid), set[str]()
    while not select.select([ended, sys.stdin.fileno()], [], [], LOOK_SECONDS)[0]:
        before, dead = dead, _unreaped(child.pid)
        if lost := dead & before:  # seen twice: the dead of an ordinary unload are reaped at once
            sys.stderr.write(f"E instances died, so Triton is ended: processes {', '.join(sorted(lost))}\n")
            return


def _unreaped(parent: int) -> set[str]:
    """The children of a process that are dead while it has not taken notice."""
    dead = set()
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # threads and processes come and go while we look
            dead |= {pid for pid in children.read_text().split() if _state(pid) == "Z"}
    return dead


def _state(pid: str) -> str:
    """One letter: the field after the program's name, which may itself hold spaces and parentheses."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kills what is left of the child's process group, and waits for every process in it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _forget(prefix: str) -> None:
    for region in SHARED_MEMORY.glob(f"{prefix}*"):
        region.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
