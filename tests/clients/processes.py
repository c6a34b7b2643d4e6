"""A program that uses one client in several processes; it prints what went wrong, and nothing if all is right.

It is a program of its own since a fork of a test's process would copy the threads of the services in it.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from petrov_client import AsyncClient, AsyncGrpcClient, Client, GrpcClient
from petrov_client._client import SyncPredictor
from petrov_client._files import opened
from petrov_client._models import ModelInfo
from petrov_client._schema import TensorInfo


def ask(client: SyncPredictor, constant: float) -> float:
    """Return the middle of a constant field that `blur` has smoothed, which is the constant."""
    return float(client.predict("blur", np.full((8, 8), constant), timeout=20)[4, 4])


async def ask_aio(client: Any, constant: float) -> float:
    return float((await client.predict("blur", np.full((8, 8), constant), timeout=20))[4, 4])


def ask_from_loop(client: Any, constant: float) -> float:
    return asyncio.run(ask_aio(client, constant))


def expect(found: object, expected: object, what: str) -> None:
    if found != expected:
        print(f"{what}: expected {expected} but got {found}", flush=True)  # noqa: T201


def forked(function: Callable[[], object]) -> int | None:
    """Call a function in a forked process, and return its exit code."""
    process = multiprocessing.get_context("fork").Process(target=function)
    process.start()
    process.join()
    return process.exitcode


def responses_are_not_swapped(client: Client) -> None:
    """Ask from a pool of forked processes per round, from their parent, and from a thread of it, at a time."""
    constants = [4.5 + number for number in range(12)]
    running = True

    def ask_on() -> None:
        while running:
            expect(ask(client, 3.0), 3.0, "thread")

    expect(ask(client, 3.0), 3.0, "before the forks")
    thread = threading.Thread(target=ask_on)
    thread.start()
    for _ in range(3):
        with multiprocessing.get_context("fork").Pool(4) as pool:
            asked = pool.starmap_async(ask, [(client, constant) for constant in constants], chunksize=1)
            inherited = pool.map_async(Inherited(), constants, chunksize=1)
            expect([ask(client, constant) for constant in constants], constants, "parent")
            expect(asked.get(60), constants, "pickled")
            expect(inherited.get(60), constants, "inherited")
    running = False
    thread.join()


class Inherited:
    """A task for the client that a forked process has inherited."""

    client: SyncPredictor

    def __call__(self, constant: float) -> float:
        return ask(self.client, constant)


def an_open_response_stays_with_its_process(client: Client) -> None:
    """Go on with a rollout in two processes, the first of which closes its copy of the client."""
    state = np.linspace(1, 2, 16)
    expected = [frame.tolist() for frame in client.rollout_stream("growth", state, 6)]
    frames = client.rollout_stream("growth", state, 6)
    first = next(frames).tolist()

    def go_on() -> None:
        expect([first, *(frame.tolist() for frame in frames)], expected, "rollout of the child")
        client.close()

    expect(forked(go_on), 0, "exit code of the child")
    expect([first, *(frame.tolist() for frame in frames)], expected, "rollout of the parent")


def asynchronous_clients(http: str, grpc: str) -> None:
    """Use them in one event loop after another, and in forked processes: over gRPC that is refused in words."""
    for kind, address in ((AsyncClient, http), (AsyncGrpcClient, grpc)):
        client = kind(address)
        for constant in (4.0, 5.0):
            expect(ask_from_loop(client, constant), constant, kind.__name__)

        def child(kind: type = kind, client: Any = client) -> None:
            try:
                found: object = ask_from_loop(client, 6.0)
            except RuntimeError as error:
                found = str(error).partition(":")[0]
            refusal = "asynchronous gRPC was in use when this process was forked, and does not survive that"
            expect(found, 6.0 if kind is AsyncClient else refusal, f"{kind.__name__} in a child")

        expect(forked(child), 0, "exit code of the child")
        expect(ask_from_loop(client, 7.0), 7.0, kind.__name__)
        copies = [kind(address)]
        ask_from_loop(copies[0], 8.0)
        del client, child
        if os.fork() == 0:  # a process of no library, which frees what it has inherited
            copies.clear()
            gc.collect()
            sys.exit()
        expect(os.wait()[1], 0, f"end of a child that frees its {kind.__name__}")


class Served:
    """A dataset whose items a model of a service computes, in the processes that load them."""

    def __init__(self, client: Client) -> None:
        from petrov_client.torch import Operator  # noqa: PLC0415  other processes need no torch, which takes seconds

        self._blur = Operator(client, "blur")

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        import torch  # noqa: PLC0415  as above

        return self._blur(torch.full((8, 8), index + 1.0))[4, 4]


def workers_of_torch(client: Client) -> None:
    """Load items in forked and in spawned workers, after the parent has used the client."""
    from torch.utils.data import DataLoader  # noqa: PLC0415  as above

    served = Served(client)
    expect(served[2].item(), 3.0, "parent of the workers")
    for method in ("fork", "spawn"):
        loader = DataLoader[Any](served, 3, num_workers=1, multiprocessing_context=method)  # type: ignore[arg-type]
        expect([batch.tolist() for batch in loader], [[1, 2, 3], [4, 5, 6]], f"workers by {method}")


def a_fork_reads_netcdf() -> None:
    """Read a file in a process that was forked while a thread read another."""
    import xarray  # noqa: PLC0415 -- the processes that are spawned do without
    from xarray.backends.locks import HDF5_LOCK  # noqa: PLC0415

    held, axes = threading.Event(), ("batch", "row")
    info = ModelInfo("toy", 1, (1,), (TensorInfo("u", axes),), (TensorInfo("v", axes),), 4)

    def hold() -> None:
        with HDF5_LOCK:
            held.set()
            time.sleep(0.5)

    with TemporaryDirectory() as folder:
        path = Path(folder, "u.nc")
        xarray.Dataset({"u": (axes, np.ones((2, 3)))}).to_netcdf(path, engine="h5netcdf")

        def read() -> None:
            with opened(path, info) as source:
                expect(float(np.sum(source.arrays["u"])), 6.0, "netCDF")

        read()
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        expect(forked(read), 0, "exit code of the child that reads netCDF")
        thread.join()


def main(http: str, grpc: str) -> None:
    a_fork_reads_netcdf()
    over_http = Inherited.client = Client(http)
    responses_are_not_swapped(over_http)
    an_open_response_stays_with_its_process(over_http)
    with multiprocessing.get_context("forkserver").Pool(1) as pool:  # a worker of torch is spawned
        expect(pool.apply(ask, (over_http, 5.0)), 5.0, "forkserver")
    workers_of_torch(over_http)
    over_grpc = GrpcClient(grpc)
    expect(ask(over_grpc, 4.0), 4.0, "gRPC")
    expect(forked(lambda: expect(ask(over_grpc, 5.0), 5.0, "gRPC in a child")), 0, "exit code of the child")
    expect(ask(over_grpc, 6.0), 6.0, "gRPC after a fork")
    asynchronous_clients(http, grpc)


if __name__ == "__main__":
    main(*sys.argv[1:])
