"""The processes of a run, which share every batch equally.

.. code-block:: sh

    python -m training fit heat.toml --devices 2                       # two processes on one machine
    torchrun --nproc-per-node 2 -m training fit heat.toml              # the same; on several machines, too
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import distributed

T = TypeVar("T")

TIMEOUT = timedelta(days=2)
"""How long the processes wait for one another, such as for the first one that prepares samples."""
PAUSE_SECONDS = 0.2  # between two looks at the processes
END_SECONDS = 10.0  # that they have to end where one has failed, or at Ctrl-C


def process_count() -> int:
    """Return the number of processes of the run on all machines."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_process_count() -> int:
    """Return the number of processes of the run on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def process_rank() -> int:
    """Return the number of this process, from 0 on."""
    return int(os.environ.get("RANK", "0"))


def is_first() -> bool:
    """Return whether this process is the one that writes files and messages."""
    return process_rank() == 0


@contextmanager
def joined() -> Iterator[None]:
    """Connect the processes of the run; nothing happens where there is one."""
    if process_count() == 1:
        yield
        return
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
    yield
    distributed.barrier()  # the last messages have arrived when the group ends
    distributed.destroy_process_group()


def from_first(make: Callable[[], T]) -> T:
    """Return, in every process, what the first one makes."""
    if process_count() == 1:
        return make()
    made: list[Any] = [make() if is_first() else None]
    distributed.broadcast_object_list(made)
    return cast("T", made[0])


def launch(devices: int) -> None:
    """Run this program's command once more in several processes, and wait for them; if one fails, all end.

    torchrun would do, but reports every end at length: an error of the user's, too, and Ctrl-C.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Those of torchrun by which Lightning knows that it is not to start processes.
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": port}
    shared |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), devices)
    environment = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // devices))} | os.environ
    command, group = [sys.executable, "-m", "training", *sys.argv[1:]], []
    try:
        for number in range(devices):
            own = shared | {"RANK": number, "LOCAL_RANK": number}
            variables = environment | {name: str(value) for name, value in own.items()}
            group.append(subprocess.Popen(command, env=variables))  # noqa: S603 -- the command that the user typed
        statuses: list[int | None] = [None]
        while None in statuses:
            time.sleep(PAUSE_SECONDS)
            statuses = [process.poll() for process in group]
            if any(statuses):
                raise SystemExit(1)
    finally:
        end_processes(group)


def end_processes(group: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for processes that are about to end, as at Ctrl-C, which reaches them too; kill those that do not."""
    limit = time.monotonic() + END_SECONDS
    for process in group:
        try:
            process.wait(max(limit - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
