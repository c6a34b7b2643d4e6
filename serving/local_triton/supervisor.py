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

The arguments of a process can be read by every user of the machine, its environment by its own user alone. An argument
`$NAME` is therefore replaced by the value of that environment variable in the memory of the new process, before its
first instruction: /proc shows `$NAME` at all times. Files and shared memory are for our user alone, by a umask and a
filter of system calls: the library that makes the shared memory opens it to all readers by `fchmod`, despite a umask.

It runs as a script, alone, so that it starts in milliseconds and has few ways to fail.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
PTRACE_TRACEME, PTRACE_PEEKDATA, PTRACE_PEEKUSER, PTRACE_POKEDATA, PTRACE_DETACH = 0, 2, 3, 5, 17
STACK_POINTER, WORD = 19 * 8, 8  # of x86_64, the only processor that the wheel has a binary for; offset in `user`
SYS_SECCOMP, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW = 317, 1, 4
FCHMOD_DOES_NOTHING = (  # as a program for the kernel, which returns what becomes of each system call of Triton
    (0x20, 0, 0, 4),  # the kind of processor
    (0x15, 0, 3, 0xC000003E),  # go on if it is x86_64
    (0x20, 0, 0, 0),  # the number of the call
    (0x15, 0, 1, 91),  # go on if it is that of fchmod
    (0x06, 0, 0, 0x00050000),  # do nothing and return 0
    (0x06, 0, 0, 0x7FFF0000),  # execute it
)
OPEN_TO_OTHERS = (
    "this system cannot keep Triton's key and shared memory from other users, for which a process has to trace its "
    "child (ptrace; kernel.yama.ptrace_scope below 2) and to filter its system calls (seccomp): allow both, or use a "
    "Triton that runs elsewhere"
)
SCAN_SECONDS = 5.0  # between two scans for new and for stopped instances
STOPPED_SECONDS = 15.0  # until a stopped instance counts as dead
REAPING_SECONDS = 2.0
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - POSIX shared memory on Linux; nothing is created here


def main(prefix: str, command: list[str]) -> int:
    """Run the command to its end, or to the end of our parent, and remove the shared memory of that prefix.

    Returns its exit status; 128 + n after signal n, as in a shell; 1 where it cannot be hidden from other users.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # stubs that Triton leaves become ours to reap
    # A SIGTERM that comes before there is a child to pass it on to waits until there is.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        child = _start(command)
    except subprocess.SubprocessError:
        sys.stderr.write(f"E {OPEN_TO_OTHERS}\n")
        return 1
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


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    """Start a command that no other user can look into; a SubprocessError where the system cannot do that."""
    library = ctypes.CDLL(None)
    library.ptrace.argtypes, library.ptrace.restype = [ctypes.c_long] * 4, ctypes.c_long
    variables = dict(os.environ)  # whose order is that of the new process
    secrets = {index: text[1:] for index, text in enumerate(command) if text[:1] == "$" and text[1:] in variables}
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in FCHMOD_DOES_NOTHING))
    filters = struct.pack("HxxxxxxN", len(FCHMOD_DOES_NOTHING), ctypes.addressof(instructions))

    def prepare() -> None:
        os.umask(0o077)
        library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if library.syscall(SYS_SECCOMP, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, filters) or (
            secrets and library.ptrace(PTRACE_TRACEME, 0, 0, 0)  # so that it stops behind its exec
        ):
            raise OSError

    # Between fork and exec run only these calls: this process has a single thread, so the fork is safe.
    child = subprocess.Popen(  # noqa: S603 - the command is our caller's own
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=prepare,  # noqa: PLW1509 - see above
    )
    if secrets:
        _replace(library.ptrace, child.pid, len(command), secrets, list(variables))
    return child


def _replace(ptrace: Any, pid: int, count: int, secrets: Mapping[int, str], names: list[str]) -> None:
    """Point arguments of a process that stands behind its exec to values of its environment, and let it go.

    Its stack begins with the number of its arguments, their addresses, a zero, and those of its variables.
    """
    os.waitpid(pid, 0)
    arguments = ptrace(PTRACE_PEEKUSER, pid, STACK_POINTER, 0) + WORD
    variables = arguments + WORD * (count + 1)
    for index, name in secrets.items():
        variable = ptrace(PTRACE_PEEKDATA, pid, variables + WORD * names.index(name), 0)
        ptrace(PTRACE_POKEDATA, pid, arguments + WORD * index, variable + len(f"{name}="))
    ptrace(PTRACE_DETACH, pid, 0, 0)


def _wait(child: subprocess.Popen[bytes]) -> None:
    """Wait until the child ends, standard input closes, or a process that the child started has died unnoticed.

    One that is stopped for a while counts as dead.
    """
    ends, watched = [os.pidfd_open(child.pid), sys.stdin.fileno()], dict[int, str]()
    seen, stopped = set[str](), dict[str, float]()
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
        seen = _watch_children(child.pid, watched, seen)


def _watch_children(parent: int, watched: dict[int, str], seen: set[str]) -> set[str]:
    """Add the new children of a process, by descriptors that become readable when they die; return all processes.

    Of those that were seen before no parent is looked up, since none becomes a child of Triton's later, and a number is
    given again after all others. Triton's own lists of children, one of each of hundreds of threads, took tens of
    milliseconds.
    """
    found = {each.name for each in Path("/proc").iterdir() if each.name.isdecimal()}
    for pid in found - seen:
        with contextlib.suppress(OSError):  # processes come and go during the scan
            if _status(pid)[1:2] == [str(parent)]:
                watched[os.pidfd_open(int(pid))] = pid
    return found


def _stopped(pids: Iterable[str], since: dict[str, float]) -> list[str]:
    """Return the processes that have been stopped for long; `since` keeps when each of them was first seen so."""
    now, found = time.monotonic(), {pid for pid in pids if _state(pid) == "T"}
    for pid in since.keys() - found:
        del since[pid]
    return [pid for pid in found if now - since.setdefault(pid, now) > STOPPED_SECONDS]


def _state(pid: str) -> str:
    """Return the state letter of a process, empty if there is none."""
    return "".join(_status(pid)[:1])


def _status(pid: str) -> list[str]:
    """Return the fields after the name of a process, which may hold spaces and parentheses; none if there is none.

    They begin with the letter of its state and the number of its parent.
    """
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
