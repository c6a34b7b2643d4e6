"""The processes of a training run: one, or several that torchrun started, which share every batch equally.

.. code-block:: sh

    python -m training fit heat.toml --devices 2                       # starts torchrun itself
    torchrun --nproc-per-node 2 -m training fit heat.toml              # the same
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import distributed

T = TypeVar("T")

TIMEOUT = timedelta(days=2)
"""How long the processes wait for one another, such as for the first one that prepares samples."""


def count() -> int:
    """Return the number of processes of the run on all machines."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_count() -> int:
    """Return the number of processes of the run on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def rank() -> int:
    """Return the number of this process, from 0 on."""
    return int(os.environ.get("RANK", "0"))


def first() -> bool:
    """Return whether this process is the one that writes files and messages."""
    return rank() == 0


@contextmanager
def joined() -> Iterator[None]:
    """Connect the processes of the run; nothing happens where there is one."""
    if count() == 1:
        yield
        return
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
    yield
    distributed.barrier()  # the last messages have arrived when the group ends
    distributed.destroy_process_group()


def from_first(make: Callable[[], T]) -> T:
    """Return, in every process, what the first one makes."""
    if count() == 1:
        return make()
    made: list[Any] = [make() if first() else None]
    distributed.broadcast_object_list(made)
    return cast("T", made[0])


def launch(devices: int) -> None:
    """Run this program's command once more in several processes, and wait for them."""
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={devices}")
    threads = str(max(1, (os.cpu_count() or 1) // devices))
    environment = {"OMP_NUM_THREADS": threads} | os.environ
    command = [*torchrun, "-m", "training", *sys.argv[1:]]
    status = subprocess.call(command, env=environment)  # noqa: S603 -- the command that the user typed
    if status:
        raise SystemExit(status)
