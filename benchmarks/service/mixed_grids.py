"""The batch size and throughput of requests on one grid and on four, with 16 in flight.

Triton merges only requests of equal shape. The four grids have nearly equal numbers of points, so that only their
shapes differ. The batch is the mean size that Triton executed, by its own statistics. Blocks of one grid and of four
are interleaved, as in `latency`.
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

from benchmarks.service import identity
from benchmarks.service.running import Addresses, running

if TYPE_CHECKING:
    from numpy.typing import NDArray

ONE, FOUR = ((85, 85),), ((85, 85), (84, 86), (83, 87), (86, 84))
IN_FLIGHT, ROUNDS, SECONDS, WARM_UP = 16, 3, 3.0, 0.5
MODELS = {identity.MODEL: (identity.INPUT,), "darcy": ("coefficient", "source")}
HEADER = (
    "model",
    "route",
    "batch, one grid",
    "batch, four grids",
    "batch, share",
    "fields/s, one grid",
    "fields/s, four grids",
    "fields/s, share",
)


class Count(NamedTuple):
    """Triton's statistics: fields, executions, and the time in seconds."""

    fields: float
    executions: float
    seconds: float


def rows(repository: Path) -> list[tuple[str, ...]]:
    """Return a row per model and route: through the gateway and without it."""
    with tempfile.TemporaryDirectory() as folder:
        both = identity.write(Path(folder))
        shutil.copytree(repository / "darcy", both / "darcy")
        with running(both) as service:
            return [asyncio.run(row(service, model, route)) for model in MODELS for route in routes(service)]


def routes(service: Addresses) -> dict[str, str]:
    """Return the addresses by the names of the routes."""
    return {"gateway": service.gateway_grpc, "Triton alone": service.triton_grpc}


async def row(service: Addresses, model: str, route: str) -> tuple[str, ...]:
    """Return batch and throughput of one model by one route."""
    counts: dict[int, list[Count]] = {len(ONE): [], len(FOUR): []}
    async with (
        InferenceServerClient(routes(service)[route]) as client,
        InferenceServerClient(service.triton_grpc) as triton,
    ):
        for grids in (ONE, FOUR) * ROUNDS:
            counts[len(grids)].append(await block(client, triton, model, grids))
    one, four = (Count(*map(sum, zip(*each, strict=True))) for each in counts.values())
    return model, route, *shares(one.fields / one.executions, four.fields / four.executions), *rates(one, four)


def rates(one: Count, four: Count) -> tuple[str, ...]:
    """Return the fields per second of both, and the second's share of the first."""
    return shares(one.fields / one.seconds, four.fields / four.seconds)


def shares(one: float, four: float) -> tuple[str, ...]:
    """Return both figures, and the second's share of the first."""
    return f"{one:.1f}", f"{four:.1f}", f"{four / one:.0%}"


async def block(
    client: InferenceServerClient, triton: InferenceServerClient, model: str, grids: tuple[tuple[int, int], ...]
) -> Count:
    """Keep 16 requests in flight, and return what Triton counted after the warm-up.

    Args:
        client: The route that is measured.
        triton: Triton itself, for its statistics.
        model: The model's name.
        grids: The grids, in rotation.
    """
    grid = itertools.cycle(grids)
    tasks = [asyncio.create_task(repeat(client, model, tensors(model, next(grid)))) for _ in range(IN_FLIGHT)]
    await asyncio.sleep(WARM_UP)
    before = await statistics(triton, model)
    await asyncio.sleep(SECONDS)
    after = await statistics(triton, model)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return Count(*(late - early for early, late in zip(before, after, strict=True)))


async def repeat(client: InferenceServerClient, model: str, tensors: list[InferInput]) -> None:
    """Send the same request again and again."""
    while True:
        await client.infer(model, tensors)


def tensors(model: str, grid: tuple[int, int]) -> list[InferInput]:
    """Return one field of a grid for every input of a model."""
    field: NDArray[np.float32] = np.random.default_rng(0).uniform(3, 12, (1, *grid)).astype(np.float32)
    return [InferInput(name, list(field.shape), "FP32").set_data_from_numpy(field) for name in MODELS[model]]


async def statistics(triton: InferenceServerClient, model: str) -> Count:
    """Return Triton's statistics so far."""
    [found] = (await triton.get_inference_statistics(model)).model_stats
    return Count(found.inference_count, found.execution_count, time.perf_counter())
