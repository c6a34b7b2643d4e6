"""The pieces of a bulk prediction, sent by the machines of the Ray cluster that RAY_ADDRESS names.

A task is a run of pieces. Its machine reads the input, sends the requests, and writes each output as a record into the
folder of what has been computed, which all machines see under one path, as they do the input. When a machine dies, Ray
repeats its tasks at other ones; these leave out the pieces whose records are whole. This process checks the input
before, and puts the records together in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petrov_client import _files as files
from petrov_client._client import AsyncClient
from petrov_client._flow import Advance
from petrov_client._inputs import check_input
from petrov_client._kept import Kept, Records
from petrov_client._libraries import library
from petrov_client._models import ModelInfo
from petrov_client._quality import Options

if TYPE_CHECKING:
    from petrov_client._score import Bulk

PIECES = 32  # of a task
RETRIES = 20  # of a task whose machine dies
WAITING = 2  # tasks per processor that the cluster knows of at a time


@dataclass(frozen=True)
class Job:
    """What every task needs: the arguments of `petrov_client.score`, and where records are kept."""

    info: ModelInfo
    source: str
    dataset: str | None
    parameters: Mapping[str, float]
    options: Options
    patience: float
    urls: tuple[str, ...]
    api_key: str | None = field(repr=False)
    root_certificates: str | None
    in_flight: int
    folder: str


def run(job: Job, bulk: Bulk, kept: Kept, advance: Advance) -> int:
    """Compute all pieces that are not kept on the cluster, and return their number of fields."""
    ray = _started()
    missing = bulk.missing(kept)
    advance(len(bulk.batch) - bulk.count(missing))
    kept.begin()
    remote = ray.remote(num_cpus=1, max_retries=RETRIES)(compute)
    shared, running = ray.put(job), dict[Any, list[int]]()
    most = WAITING * max(1, int(ray.cluster_resources().get("CPU", 1)))
    tasks = iter([missing[start : start + PIECES] for start in range(0, len(missing), PIECES)])
    try:
        while True:
            for numbers in tasks:
                running[remote.remote(shared, numbers)] = numbers
                if len(running) >= most:
                    break
            if not running:
                return bulk.count(missing)
            [done], _ = ray.wait([*running], num_returns=1)
            try:
                ray.get(done)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            numbers = running.pop(done)
            kept.find(numbers)
            advance(bulk.count(numbers))
    finally:
        for each in running:
            ray.cancel(each)


def compute(job: Job, numbers: Sequence[int]) -> None:
    """Compute some pieces, except those whose records are there."""
    from petrov_client._score import Bulk  # noqa: PLC0415  it imports this module

    records = Records(Path(job.folder))
    records.find(numbers)

    async def computed() -> None:
        async with AsyncExitStack() as stack:
            timeout, roots = job.options.timeout, job.root_certificates
            opened = partial(AsyncClient, api_key=job.api_key, timeout=timeout, root_certificates=roots)
            clients = [await stack.enter_async_context(opened(url)) for url in job.urls]
            await bulk.run(clients, job.in_flight, records, lambda _: None, numbers)

    with files.opened(Path(job.source), job.info, job.dataset, job.parameters) as found:
        arrays = files.with_numbers(found.arrays, job.parameters)
        bulk = Bulk(check_input(job.info, arrays, read=False), job.options, job.patience)
        asyncio.run(computed())


def _started() -> Any:
    """Return Ray, connected to its cluster, whose machines get this package."""
    ray = library("ray", "RAY_ADDRESS is set but Ray is not installed: pip install ray")
    if not ray.is_initialized():
        ray.init(log_to_driver=False, runtime_env={"py_modules": [str(Path(__file__).parent)]})
    return ray
