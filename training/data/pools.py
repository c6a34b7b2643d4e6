"""Processes that compute independent jobs: this one, those of all cores of this machine, or a Ray cluster.

`RAY_ADDRESS` chooses the cluster, and is all that a user sets. Without it Ray is not imported.
"""

from __future__ import annotations

import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar

from training.messages import UserError

Job = TypeVar("Job")
Result = TypeVar("Result")

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment of a worker: one thread each, so that they do not compete."""
WAITING = 4  # jobs per core that a Ray cluster knows of at a time
RETRIES = 20  # of a job whose machine or process dies; one that ends its process every time fails in the end
IMPORTED = ["training.data.generate"]
"""What the process that forks local workers imports: once for all of them, and for those of later sets."""
PACKAGES = ("schema", "physics", "training")
"""What Ray's workers import of this project; it is sent to the machines of the cluster."""


class Pool(ABC):
    """Processes that compute independent jobs."""

    @abstractmethod
    def completed(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        """Compute jobs and yield each with its result as soon as it is done, in any order."""


class ThisProcess(Pool):
    """This process alone, for jobs that use all of its cores themselves or are few and short."""

    def completed(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        for job in jobs:
            yield job, work(job)


@dataclass(frozen=True)
class LocalPool(Pool):
    """Processes on this machine.

    Each starts by importing the program's main module, which therefore has to be guarded by
    `if __name__ == "__main__"`.
    """

    workers: int | None = None  # their number; by default one per core

    def completed(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        with _executor(min(self.workers or os.cpu_count() or 1, len(jobs))) as executor:
            futures = {executor.submit(work, job): job for job in jobs}
            for future in as_completed(futures):
                yield futures.pop(future), future.result()


ALL_CORES = LocalPool()  # a process per core of this machine


@dataclass(frozen=True)
class RayPool(Pool):
    """Workers of the Ray cluster that RAY_ADDRESS names, or of one on this machine.

    The machines need the packages of the dependency group `train`; the project's own are sent to them. When one dies,
    Ray repeats at another one the jobs that it had, and no others: a result is here as soon as it is yielded.
    """

    def completed(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        ray = _started_ray()
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_call)
        function, left, running = ray.put(work), iter(jobs), {}
        most = WAITING * max(1, int(ray.cluster_resources().get("CPU", 1)))
        while True:
            for job in left:
                running[remote.remote(function, job)] = job
                if len(running) >= most:
                    break
            if not running:
                return
            done, _ = ray.wait([*running], num_returns=1)
            for reference in done:
                yield running.pop(reference), ray.get(reference)


def chosen(local: Pool) -> Pool:
    """Return the pool of a Ray cluster where RAY_ADDRESS names one, else the local one."""
    return RayPool() if os.environ.get("RAY_ADDRESS") else local


def _call(work: Callable[[Job], Result], job: Job) -> Result:
    return work(job)


def _started_ray() -> Any:
    """Return Ray, connected to its cluster."""
    try:
        import ray  # noqa: PLC0415 -- it is optional
    except ModuleNotFoundError as error:
        raise UserError("expected ray but it is not installed: pip install --group bulk -c constraints.txt") from error
    if not ray.is_initialized():
        root = Path(__file__).parents[2]
        modules = [str(root / package) for package in PACKAGES]
        ray.init(log_to_driver=False, runtime_env={"env_vars": ONE_THREAD, "py_modules": modules})
    return ray


@contextmanager
def _executor(workers: int) -> Iterator[ProcessPoolExecutor]:
    # Forked from a process without threads: those of this one may hold locks.
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_follow_parent) as pool:
            try:
                yield pool
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _follow_parent() -> None:
    """End this worker when its parent does, which may be killed, and at Ctrl-C without a traceback of its own."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
