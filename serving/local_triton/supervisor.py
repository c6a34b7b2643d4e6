"""Run a command and return its exit status, and leave nothing of it behind: no process, no shared memory.

    python -I supervisor.py SHARED_MEMORY_PREFIX COMMAND...

Triton's Python backend starts a process for every model instance and maps shared memory for each. A killed Triton
leaves both behind. It therefore runs under this small supervisor, which outlives it and cleans up however it ends:

- SIGTERM is passed on, and Triton drains;
- standard input closes: our parent has ended, even by SIGKILL, and everything is killed at once. (A pipe closes with
  its process; Linux's parent-death signal would come with the end of the *thread* that started us.)
- an instance dies (killed for memory, say): Triton would neither replace nor notice it, and requests would hang. So
  Triton is killed, and its watcher starts it anew;
- an instance is stopped (SIGSTOP) for a while: Triton would refuse the requests of its model for ever. As above;
- should the supervisor itself be killed, the kernel kills Triton (parent-death signal), and its stubs end in seconds.

It runs as a script, alone, so that it starts in milliseconds and has few ways to fail.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SCAN_SECONDS = 5.0  # between two scans for new and for stopped instances
STOPPED_SECONDS = 15.0  # until a stopped instance counts as dead
REAPING_SECONDS = 2.0
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - POSIX shared memory on Linux; nothing is created here


def main(prefix: str, command: list[str]) -> int:
    """Run the command to its end, or to the end of our parent, and remove the shared memory of that prefix.

    Returns its exit status; 128 + n after signal n, as in a shell.
    """
    process_control = ctypes.CDLL(None, use_errno=True).prctl
    process_control(PR_SET_CHILD_SUBREAPER, 1)  # stubs that Triton leaves become ours to reap

    def prepare() -> None:
        process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    # Between fork and exec run only these two calls: this process has a single thread, so the fork is safe. A SIGTERM
    # that comes before there is a child to pass it on to waits until there is.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    child = subprocess.Popen(  # noqa: S603 - the command is our caller's own
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=prepare,  # noqa: PLW1509 - see above
    )
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _wait(child)
    with contextlib.suppress(ProcessLookupError):  # what is left of its process group
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    for region in SHARED_MEMORY.glob(f"{prefix}*"):
        region.unlink(missing_ok=True)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _wait(child: subprocess.Popen[bytes]) -> None:
    """Wait until the child ends, standard input closes, or a process that the child started has died unnoticed.

    One that is stopped for a while counts as dead.
    """
    ends, watched = [os.pidfd_open(child.pid), sys.stdin.fileno()], dict[int, str]()
    stopped = dict[str, float]()
    while not (ready := set(select.select([*ends, *watched], [], [], SCAN_SECONDS)[0])) & set(ends):
        died = {watched.pop(descriptor) for descriptor in ready}
        for descriptor in ready:
            os.close(descriptor)
        if died:
            select.select(ends, [], [], REAPING_SECONDS)  # an ordinary unload reaps its processes at once
        unreaped = {pid for pid in died if _state(pid) == "Z"}
        if lost := sorted([*unreaped, *_stopped(watched.values(), stopped)]):
            sys.stderr.write(f"E instances died or are stopped, so Triton is ended: processes {', '.join(lost)}\n")
            return
        _watch_children(child.pid, watched)


def _watch_children(parent: int, watched: dict[int, str]) -> None:
    """Add the new children of a process, by descriptors that become readable when they die.

    With hundreds of threads, each of which may have children, a scan takes tens of milliseconds: hence the descriptors.
    """
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # threads and processes come and go during the scan
            for pid in set(children.read_text().split()) - set(watched.values()):
                watched[os.pidfd_open(int(pid))] = pid


def _stopped(pids: Iterable[str], since: dict[str, float]) -> list[str]:
    """Return the processes that have been stopped for long; `since` keeps when each of them was first seen so."""
    now, found = time.monotonic(), {pid for pid in pids if _state(pid) == "T"}
    for pid in since.keys() - found:
        del since[pid]
    return [pid for pid in found if now - since.setdefault(pid, now) > STOPPED_SECONDS]


def _state(pid: str) -> str:
    """Return the state letter of a process, empty if there is none.

    It is the field after the program's name, which may itself hold spaces and parentheses.
    """
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
