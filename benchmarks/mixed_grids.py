"""Requests of one grid and of four, 16 at a time: takes the exported `darcy`, gives batch size and fields per second.

Triton merges requests of one shape only. The four grids have as many points, so that only their shapes differ. The
batch is the mean of what Triton has executed, by its own statistics. The rows take turns, as in `latency`.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tritonclient.grpc import InferInput
from tritonclient.grpc.aio import InferenceServerClient

from benchmarks import identity
from benchmarks.service import Addresses, running

if TYPE_CHECKING:
    from numpy.typing import NDArray

ONE, FOUR = ((85, 85),), ((85, 85), (84, 86), (83, 87), (86, 84))
IN_FLIGHT, TURNS, SECONDS, WARM_UP = 16, 3, 3.0, 0.5
MODELS = {identity.MODEL: identity.QUESTION, "darcy": "coefficient"}
HEADER = (
    "model",
    "road",
    "batch of one grid",
    "of four",
    "of it",
    "fields/s of one grid",
    "fields/s of four",
    "of them",
)


class Count(NamedTuple):
    """What Triton has done: fields, executions, and how long that took."""

    fields: float
    executions: float
    seconds: float


def rows(repository: Path) -> list[tuple[str, ...]]:
    """Give a row for every model, by the gateway and without it."""
    with tempfile.TemporaryDirectory() as folder:
        both = identity.write(Path(folder))
        shutil.copytree(repository / "darcy", both / "darcy")
        with running(both) as service:
            return [asyncio.run(row(service, model, road)) for model in MODELS for road in roads(service)]


def roads(service: Addresses) -> dict[str, str]:
    """Give the addresses by the names of the roads."""
    return {"gateway": service.gateway_grpc, "Triton alone": service.triton_grpc}


async def row(service: Addresses, model: str, road: str) -> tuple[str, ...]:
    """Give batch and throughput of one road to one model."""
    counts: dict[int, list[Count]] = {len(ONE): [], len(FOUR): []}
    async with (
        InferenceServerClient(roads(service)[road]) as client,
        InferenceServerClient(service.triton_grpc) as triton,
    ):
        for grids in (ONE, FOUR) * TURNS:
            counts[len(grids)].append(await block(client, triton, model, grids))
    one, four = (Count(*map(sum, zip(*each, strict=True))) for each in counts.values())
    return model, road, *shares(one.fields / one.executions, four.fields / four.executions), *rates(one, four)


def rates(one: Count, four: Count) -> tuple[str, ...]:
    """Give the fields per second of both and the second's share of the first."""
    return shares(one.fields / one.seconds, four.fields / four.seconds)


def shares(one: float, four: float) -> tuple[str, ...]:
    """Give both figures and the second's share of the first."""
    return f"{one:.1f}", f"{four:.1f}", f"{four / one:.0%}"


async def block(
    client: InferenceServerClient, triton: InferenceServerClient, model: str, grids: tuple[tuple[int, int], ...]
) -> Count:
    """Keep 16 requests in flight for a while, and give what Triton counted after the warm-up."""
    turns = itertools.cycle(grids)
    asking = [asyncio.create_task(ask(client, model, question(model, next(turns)))) for _ in range(IN_FLIGHT)]
    await asyncio.sleep(WARM_UP)
    before = await statistics(triton, model)
    await asyncio.sleep(SECONDS)
    after = await statistics(triton, model)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    return Count(*(late - early for early, late in zip(before, after, strict=True)))


async def ask(client: InferenceServerClient, model: str, given: InferInput) -> None:
    """Ask the same again and again."""
    while True:
        await client.infer(model, [given])


def question(model: str, grid: tuple[int, int]) -> InferInput:
    """Give one field of the grid."""
    field: NDArray[np.float32] = np.random.default_rng(0).uniform(3, 12, (1, *grid)).astype(np.float32)
    return InferInput(MODELS[model], list(field.shape), "FP32").set_data_from_numpy(field)


async def statistics(triton: InferenceServerClient, model: str) -> Count:
    """Ask Triton what it has done so far."""
    [found] = (await triton.get_inference_statistics(model)).model_stats
    return Count(found.inference_count, found.execution_count, time.perf_counter())
