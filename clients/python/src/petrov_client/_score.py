"""Predictions for a file of any length, through several gateways, resumed after an interruption.

Each gateway has a few pieces of the batch in flight and receives the next one with each response, so the least busy
gateway computes the most. A piece that fails for now returns to the queue, and the gateway is used again after a pause.
Before its first piece, and after every fault, a gateway must serve the same model as the others.

Where RAY_ADDRESS names a cluster of Ray, its machines send the pieces: see `petrov_client._score_on_ray`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from petrov_client import _files as files
from petrov_client._arrays import Arrays, PredictionInput, PredictionOutput
from petrov_client._client import AsyncClient
from petrov_client._environment import RootCertificates
from petrov_client._errors import (
    ConnectionFailed,
    DeadlineExceeded,
    InvalidInput,
    PetrovError,
    RateLimited,
    Unavailable,
)
from petrov_client._flow import FIRST_PAUSE, TIMEOUT_SECONDS, Advance, Progress, checked_timeout, reporting
from petrov_client._inputs import check_input
from petrov_client._kept import Description, Kept, Records, check_same, kept_path, outputs_of
from petrov_client._models import ModelInfo
from petrov_client._quality import Options, Outside, Response, columns, is_quality
from petrov_client._schema import TensorInfo

#: Seconds without a response from any gateway before the job fails.
PATIENCE_SECONDS = 300.0
LONGEST_PAUSE = 15.0
CHUNK_BYTES = 2**20  # of the outputs in a folder of zarr
TEMPORARY = (ConnectionFailed, DeadlineExceeded, RateLimited, Unavailable)


@dataclass(frozen=True)
class Scored:
    """A complete file of outputs.

    Attributes:
        path: The file.
        shapes: The shapes of its datasets by output name, and by the names of the numbers that the model reports.
        computed: Fields that this call computed; earlier calls computed the others.
        coverage: As of `Quality`: the share of test fields for which the model's error estimate held.
    """

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    computed: int
    coverage: float | None = None

    @property
    def quality(self) -> dict[str, npt.NDArray[np.float32]]:
        """What the file says about the errors of its outputs, `[fields]` or `[fields, component]`."""
        with files.group(self.path, "r") as file:
            return {name: file[name][...] for name in file if is_quality(name)}

    @property
    def count(self) -> int:
        """The number of fields in the file."""
        return next(iter(self.shapes.values()))[0]


def score(
    model: str,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    urls: Sequence[str] = ("http://127.0.0.1:8080",),
    *,
    dataset: str | None = None,
    parameters: Mapping[str, float] | None = None,
    tolerance: float | None = None,
    outside: Outside = "answer",
    version: int | None = None,
    in_flight: int = AsyncClient.in_flight,
    api_key: str | None = None,
    timeout: float = TIMEOUT_SECONDS,
    root_certificates: RootCertificates | None = None,
    patience: float = PATIENCE_SECONDS,
    progress: Progress = False,
) -> Scored:
    """Predict the outputs for all fields of a file, and write them to another file.

    Memory holds `in_flight` pieces per gateway. The batch is checked as a whole before anything is sent. After a fault,
    a kill or a power cut the same call resumes, and the complete file has the same bytes. Until it is complete, what
    has been computed is in the folder `target.partial`, and the disk holds it twice for a moment at the end. Where an
    event loop runs already (in a notebook), use `await asyncio.to_thread(score, …)`. Where RAY_ADDRESS names a cluster
    of Ray, its machines read `source`, send the requests and write what they receive. They see the files by the same
    paths.

    Args:
        model: The model's name.
        source: Batches `[batch, …]` in physical units, `.h5`, `.zarr`, `.npz` or `.npy`. Arrays have the names of the
            model's inputs and parameters; others are ignored. A model that requires one input reads the only array of
            a file under any name.
        target: An HDF5 file, or a folder of zarr, for the outputs and for what the model reports about their errors;
            its attributes describe the job.
        urls: The gateways.
        dataset: An array of `source`, for a model that requires one input, or a group that holds the datasets.
        parameters: Parameters by name, the same for all fields.
        tolerance: As for `Client.predict`.
        outside: As for `Client.predict`.
        version: A version of the model; the newest at the start if None.
        in_flight: Pieces in flight per gateway; on a Ray cluster, of every task that runs.
        api_key: Sent to every gateway as a bearer token.
        timeout: Seconds for each request; a piece that takes longer returns to the queue.
        root_certificates: As for `Client`; the machines of a cluster see the file by the same path, too.
        patience: Seconds without a response from any gateway before the last fault is raised.
        progress: True for a progress bar, or a function of (fields done, fields in all).

    Returns:
        The complete file.

    Raises:
        ValueError: `target` or `target.partial` belongs to another job, the gateways serve different models, or an
            argument is out of range.
        OSError: A file cannot be read or written.
        InvalidInput: The batch does not fit the model; `.where` names the location.
        PetrovError: Any other fault that is not temporary.
    """
    target = Path(target)
    paths = str(Path(source).resolve()), str(kept_path(target).resolve())
    roots = None if root_certificates is None else str(Path(root_certificates).resolve())
    files.check_output(target, files.HDF5 | {files.ZARR}, resumed=True)
    if in_flight < 1 or not urls:
        raise ValueError(f"expected gateways and requests in flight but got {len(urls)} and {in_flight}")
    timeout, patience = checked_timeout(timeout), checked_timeout(patience)

    def checked(info: ModelInfo, arrays: Mapping[str, object], options: Options) -> Bulk:
        batch = check_input(info, arrays)
        if batch.single:
            axes = ", ".join(info.inputs[0].axes)
            raise InvalidInput(f"expected a batch ({axes}) but got one field: use predict")
        return Bulk(batch, options, patience)

    async def scored() -> Scored:
        async with AsyncExitStack() as stack:
            opened = partial(AsyncClient, api_key=api_key, timeout=timeout, root_certificates=root_certificates)
            clients = [await stack.enter_async_context(opened(url)) for url in urls]
            info = await _described(clients, model)
            options = Options(
                version or info.version, timeout, quality=bool(info.quality), tolerance=tolerance, outside=outside
            )
            tensors = (*info.outputs, *columns(info))
            with files.opened(Path(source), info, dataset, parameters or {}) as found:
                arrays = files.with_numbers(found.arrays, parameters or {})
                bulk = await asyncio.to_thread(checked, info, arrays, options)
                job, coverage = await asyncio.to_thread(bulk.job), bulk.batch.coverage({options.version})
                if target.exists():
                    with files.group(target, "r") as file:
                        check_same(target, dict(file.attrs), job)
                        return Scored(target, shapes_of(file, tensors), 0, coverage)
                with Kept(target, job) as kept, reporting(progress, info.name, len(bulk.batch)) as advance:
                    if os.environ.get("RAY_ADDRESS"):
                        from petrov_client import _score_on_ray  # noqa: PLC0415  where Ray is used

                        shared = _score_on_ray.Job(
                            info=info,
                            source=paths[0],
                            dataset=dataset,
                            parameters=parameters or {},
                            options=options,
                            patience=patience,
                            urls=tuple(urls),
                            api_key=api_key,
                            root_certificates=roots,
                            in_flight=in_flight,
                            folder=paths[1],
                        )
                        computed = await asyncio.to_thread(_score_on_ray.run, shared, bulk, kept, advance)
                    else:
                        computed = await bulk.run(clients, in_flight, kept, advance)
                    shapes = await asyncio.to_thread(write, kept, bulk.pieces, tensors, job)
                    return Scored(target, shapes, computed, coverage)

    return asyncio.run(scored())


class Bulk:
    """The pieces of a batch: a queue of those that are missing, which several gateways compute."""

    def __init__(self, batch: PredictionInput, options: Options, patience: float) -> None:
        # HTTP takes larger requests than gRPC, and a job is resumed by the pieces that it was begun with: those of
        # earlier versions of this package are as large as their largest input allows.
        self.batch, self.pieces = batch, batch.pieces(weigh=max)
        self._version, self._options, self._patience = options.version or batch.info.version, options, patience
        self._verified: set[AsyncClient] = set()
        self._output = PredictionOutput(batch)
        self._last_response = time.monotonic()

    def job(self) -> Description:
        """Return the description of the job; jobs that differ in any part of it share no file."""
        digest = hashlib.sha256()
        for piece in self.pieces:
            for array in self.batch.arrays(piece).values():
                digest.update(array.data)
        arrays = {each.tensor.name: each.array for each in self.batch.inputs} | dict(self.batch.numbers)
        shapes = {name: " x ".join(map(str, array.shape)) for name, array in arrays.items()}
        named = shapes.values() if len(shapes) == 1 else (f"{name} {shape}" for name, shape in shapes.items())
        return {
            "model": self.batch.info.name,
            "version": self._version,
            "artefact_sha256": artefact(self.batch.info, self._version),
            "tolerance": str(self._options.tolerance),
            "outside": self._options.outside,
            "input_shape": ", ".join(named),
            "input_sha256": digest.hexdigest(),
            "fields_per_request": self._count(0),
        }

    def missing(self, kept: Records, numbers: Iterable[int] | None = None) -> list[int]:
        """Return which of these pieces, by default of all, are not kept."""
        return [number for number in numbers or range(len(self.pieces)) if number not in kept.done]

    def count(self, numbers: Iterable[int]) -> int:
        """Return the number of fields in pieces."""
        return sum(map(self._count, numbers))

    async def run(
        self,
        clients: Sequence[AsyncClient],
        in_flight: int,
        kept: Records,
        advance: Advance,
        numbers: Sequence[int] | None = None,
    ) -> int:
        """Compute all pieces that are not kept, of these or of all, and return their number of fields."""
        if kept.done:
            number = min(kept.done)
            self._output.check(self.pieces[number], Response(outputs_of(kept.read(number), self.batch.info)))
        waiting: asyncio.Queue[int] = asyncio.Queue()
        missing = self.missing(kept, numbers)
        for number in missing:
            waiting.put_nowait(number)
        fields = self.count(missing)
        advance(len(self.batch) - fields)

        async def work(client: AsyncClient) -> None:
            """Send piece after piece to a gateway; after a temporary fault, return the piece to the queue and pause."""
            faults = 0
            while True:
                number, pause = await waiting.get(), 0.0
                try:
                    found = await self._compute(client, number)
                except TEMPORARY as fault:
                    pause, faults = self._pause_after(fault, faults), faults + 1
                    waiting.put_nowait(number)
                else:
                    faults = 0
                    await asyncio.to_thread(kept.add, number, found)
                    advance(self._count(number))
                waiting.task_done()
                await asyncio.sleep(pause)

        try:
            async with asyncio.TaskGroup() as group:
                workers = [group.create_task(work(client)) for client in clients for _ in range(in_flight)]
                await waiting.join()
                for worker in workers:
                    worker.cancel()
        except BaseExceptionGroup as faults:
            raise faults.exceptions[0] from None
        return fields

    async def _compute(self, client: AsyncClient, number: int) -> Arrays:
        """Return the outputs and columns of one piece, requested once: any free gateway repeats it."""
        info = self.batch.info
        try:
            if client not in self._verified:
                found = await client.model(info.name)
                if self._version not in found.versions:
                    raise ValueError(f'{client} serves no version {self._version} of "{found.name}"')
                served, wanted = artefact(found, self._version), artefact(info, self._version)
                if served and wanted and served != wanted:
                    raise ValueError(
                        f'{client} serves another version {self._version} of "{found.name}" than the other gateways: '
                        f"expected artefact {wanted[:12]} but found {served[:12]}"
                    )
            arrays = self.batch.arrays(self.pieces[number])
            operations = client._operations  # noqa: SLF001  `predict` would repeat the request itself
            call = operations.wire.prediction(info, arrays, self._options)
            response = await operations.once(call, self._options.timeout)
        except PetrovError:
            self._verified.discard(client)  # after the fault it may serve another model
            raise
        self._verified.add(client)
        self._last_response = time.monotonic()
        self._output.check(self.pieces[number], response)
        return {**response.outputs, **response.numbers}

    def _count(self, number: int) -> int:
        return int(self.pieces[number].stop - self.pieces[number].start)

    def _pause_after(self, fault: PetrovError, faults: int) -> float:
        """Return the seconds before a gateway is used again; raise the fault itself if it is not temporary."""
        never = isinstance(fault, RateLimited) and fault.retry_after is None
        if never or time.monotonic() - self._last_response > self._patience:
            raise fault
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**faults)
        pause = max(fault.retry_after or 0.0, random.uniform(longest / 2, longest))  # noqa: S311  spreads load
        return min(pause, self._patience)  # a server may name an hour


async def _described(clients: Sequence[AsyncClient], model: str) -> ModelInfo:
    """Return the model as the first gateway that responds describes it."""
    responses = await asyncio.gather(*(client.model(model) for client in clients), return_exceptions=True)
    lasting = [each for each in responses if isinstance(each, BaseException) and not isinstance(each, TEMPORARY)]
    infos = [each for each in responses if not isinstance(each, BaseException)]
    if infos and not lasting:
        return infos[0]
    raise next(each for each in (*lasting, *responses) if isinstance(each, BaseException))


def write(
    kept: Kept, pieces: Sequence[slice], tensors: Sequence[TensorInfo], job: Description
) -> dict[str, tuple[int, ...]]:
    """Make the file of the pieces, and return the shapes of its arrays; no byte of it depends on the time."""
    whole_chunks = kept.target.suffix.lower() == files.ZARR  # written at once; HDF5 is not chunked
    record_bytes = sum(array.nbytes for array in kept.read(0).values()) if whole_chunks else CHUNK_BYTES
    together = max(1, CHUNK_BYTES // max(1, record_bytes))
    rows = together * (pieces[0].stop - pieces[0].start)
    with kept.finishing() as whole, files.group(whole, "w") as file:
        file.attrs.update(job)
        for first in range(0, len(pieces), together):
            numbers = range(first, min(first + together, len(pieces)))
            parts = [(pieces[number], kept.read(number)) for number in numbers]
            span = slice(parts[0][0].start, parts[-1][0].stop)
            for tensor in tensors:
                # A number may be known of some pieces alone, or of the newest version.
                known = [(piece, arrays[tensor.name]) for piece, arrays in parts if tensor.name in arrays]
                if known and tensor.name not in file:
                    create(file, tensor, (pieces[-1].stop, *known[0][1].shape[1:]), rows)
                if known:
                    values = np.full((span.stop - span.start, *known[0][1].shape[1:]), np.nan, np.float32)
                    for piece, array in known:
                        values[piece.start - span.start : piece.stop - span.start] = array
                    file[tensor.name][span] = values
        shapes = shapes_of(file, tensors)
    kept.remove()
    return shapes


def create(file: Any, tensor: TensorInfo, shape: tuple[int, ...], rows: int) -> None:
    """Make an array of a file of outputs, whose chunks have so many rows where it has chunks."""
    fill = np.nan if tensor.axes == ("batch",) else None
    if not hasattr(file, "create_array"):  # HDF5
        made = file.create_dataset(tensor.name, shape, "<f4", fillvalue=fill)
    else:
        chunks = (min(rows, shape[0]), *shape[1:])
        made = file.create_array(tensor.name, shape=shape, dtype="float32", chunks=chunks, fill_value=fill or 0.0)
    made.attrs.update(files.attributes(tensor))


def shapes_of(file: Any, tensors: Sequence[TensorInfo]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the datasets in a file, in the order of the tensors."""
    return {tensor.name: file[tensor.name].shape for tensor in tensors if tensor.name in file}


def artefact(info: ModelInfo, version: int) -> str:
    """Return the checksum of the served graph; the gateway has it for the newest version only."""
    artefact = info.certificate.get("artefact", {}) if version == info.version else {}
    return str(artefact.get("sha256", ""))
