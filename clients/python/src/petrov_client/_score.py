"""A long batch on disk in, its answers on disk out: through several gateways, and on from where it was broken off.

A gateway has a few pieces of the batch under way and takes the next when it has answered one, so the least busy takes
the most. What a gateway cannot answer now goes back to the rest and is taken by whichever is free first; the gateway is
asked again after a pause. Before its first piece, and after every fault, it has to serve the very model that the others
serve.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from petrov_client import _files, _partial
from petrov_client._arrays import ask
from petrov_client._async_client import IN_FLIGHT, AsyncClient
from petrov_client._exceptions import (
    ConnectionFailed,
    DeadlineExceeded,
    InvalidInput,
    PetrovError,
    RateLimited,
    Unavailable,
)
from petrov_client._http import HttpWire
from petrov_client._progress import Progress, reporting
from petrov_client._retry import FIRST_PAUSE, TIMEOUT_SECONDS, checked_timeout

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from petrov_client._arrays import Fields, Question
    from petrov_client._models import ModelInfo
    from petrov_client._partial import Job, Partial
    from petrov_client._progress import Advance

#: Seconds without an answer from any gateway after which there is none to be had.
PATIENCE_SECONDS = 300.0
LONGEST_PAUSE = 15.0
PASSING = (ConnectionFailed, DeadlineExceeded, RateLimited, Unavailable)


@dataclass(frozen=True)
class Scored:
    """A file of answers that is whole.

    Attributes:
        path: The file.
        name: The dataset in it: the model's output.
        shape: The dataset's.
        asked: Fields that were asked about this time; the others had their answers.
    """

    path: Path
    name: str
    shape: tuple[int, ...]
    asked: int


def score(
    model: str,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    urls: Sequence[str] = ("http://127.0.0.1:8080",),
    *,
    dataset: str | None = None,
    version: int | None = None,
    in_flight: int = IN_FLIGHT,
    api_key: str | None = None,
    timeout: float = TIMEOUT_SECONDS,
    patience: float = PATIENCE_SECONDS,
    progress: Progress = False,
) -> Scored:
    """Ask about every field of a file, however many, and write the answers to another.

    Memory holds `in_flight` pieces for each gateway. The batch is checked as a whole before anything is sent. Broken
    off by a fault, a kill or a power cut, the same call goes on where it was, and the file of the end has the same
    bytes. Where an event loop runs already (a notebook), call it by `await asyncio.to_thread(score, …)`.

    Args:
        model: The model's name.
        source: A batch `[batch, …]` in physical units, `.h5` or `.npy`.
        target: An HDF5 file for the answers. It is called `target.partial` until it is whole; its attributes say what
            was asked.
        urls: The gateways.
        dataset: The dataset of `source`; the one with the name of the model's input, or the only one, if None.
        version: A version of the model; the newest at the beginning if None.
        in_flight: Pieces under way at each gateway.
        api_key: Sent to every gateway as a bearer token.
        timeout: Seconds for each request; one that takes longer goes to another gateway.
        patience: Seconds without an answer from any gateway before the last fault is raised.
        progress: True for a progress bar, or a function of (fields done, fields in all).

    Returns:
        Where the answers are.

    Raises:
        ValueError: `target` or what was left of it belongs to another question, gateways serve different models, or an
            argument is none.
        OSError: A file cannot be read or written.
        InvalidInput: The batch does not fit the model; `.where` names the place.
        PetrovError: Any other that does not pass.
    """
    target = Path(target)
    _files.check_output(target, _files.HDF5)
    if in_flight < 1 or not urls:
        raise ValueError(f"expected gateways and requests in flight but got {len(urls)} and {in_flight}")
    limits = Limits(in_flight, checked_timeout(timeout), checked_timeout(patience))

    async def scored() -> Scored:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(AsyncClient(url, api_key, timeout)) for url in urls]
            info = await _described(clients, model)
            with _files.reading(Path(source), info.inputs[0], dataset) as array:
                question = await asyncio.to_thread(_batch, info, array)
                return await _answered(clients, question, version or info.version, target, limits, progress)

    return asyncio.run(scored())


@dataclass(frozen=True)
class Limits:
    """Pieces under way at each gateway, seconds for each request, seconds without any answer."""

    in_flight: int
    timeout: float
    patience: float


@dataclass
class Gateway:
    """One gateway, which is asked only while it serves the model that the others serve.

    Args:
        client: Its client.
        info: The model as it was first described.
        version: The version to ask.
    """

    client: AsyncClient
    info: ModelInfo
    version: int
    known: bool = False

    async def solve(self, fields: Fields, timeout: float) -> Fields:  # noqa: ASYNC109  it goes with the request
        """The answer to one piece, asked for once.

        Raises:
            ValueError: The gateway serves another model.
            PetrovError: Any.
        """
        try:
            if not self.known:
                self._compare(await self.client.model(self.info.name))
            call = HttpWire().prediction(self.info, self.version, fields)
            solution = await self.client._once(call, timeout)  # noqa: SLF001  a repetition belongs to whoever is free
        except PetrovError:
            self.known = False  # what comes back may be something else
            raise
        self.known = True
        return solution

    def _compare(self, found: ModelInfo) -> None:
        if self.version not in found.versions:
            raise ValueError(f'{self.client} serves no version {self.version} of "{found.name}"')
        served, wanted = _artefact(found, self.version), _artefact(self.info, self.version)
        if served and wanted and served != wanted:
            raise ValueError(
                f'{self.client} serves another version {self.version} of "{found.name}" than the gateway before it: '
                f"artefact {served[:12]}, expected {wanted[:12]}"
            )


class Bulk:
    """The pieces of a batch on their way to the gateways, and their answers on the way to the file.

    Args:
        question: The batch.
        partial: The file.
        limits: Seconds.
        advance: Called with numbers of fields as their answers reach the disk.
    """

    def __init__(self, question: Question, partial: Partial, limits: Limits, advance: Advance) -> None:
        self._question, self._partial, self._limits, self._advance = question, partial, limits, advance
        self._pieces = question.pieces()
        self._waiting: asyncio.Queue[int] = asyncio.Queue()
        self._written: list[int] = []
        self._syncing = asyncio.Lock()
        self._heard = time.monotonic()

    async def run(self, gateways: Sequence[Gateway]) -> int:
        """Ask for all that is missing, and return the number of fields asked about.

        Raises:
            PetrovError: The first fault that does not pass.
            OSError, ValueError: As `score`.
        """
        missing = [number for number, done in enumerate(self._partial.done) if not done]
        for number in missing:
            self._waiting.put_nowait(number)
        asked = self._count(missing)
        self._advance(len(self._question) - asked)
        try:
            async with asyncio.TaskGroup() as group:
                workers = [group.create_task(self._work(gateway)) for gateway in gateways for _ in self._in_flight]
                await self._waiting.join()
                for worker in workers:
                    worker.cancel()
        except BaseExceptionGroup as faults:
            raise faults.exceptions[0] from None
        return asked

    @property
    def _in_flight(self) -> range:
        return range(self._limits.in_flight)

    def _count(self, numbers: list[int]) -> int:
        return sum(self._pieces[number].stop - self._pieces[number].start for number in numbers)

    async def _work(self, gateway: Gateway) -> None:
        """Take piece after piece to a gateway; give back what it cannot answer now, and let it rest."""
        faults = 0
        while True:
            number, pause = await self._waiting.get(), 0.0
            try:
                fields = await gateway.solve(self._question.fields(self._pieces[number]), self._limits.timeout)
            except PASSING as fault:
                pause, faults = self._pause_after(fault, faults), faults + 1
                self._waiting.put_nowait(number)
            else:
                self._heard, faults = time.monotonic(), 0
                await self._keep(number, fields)
            self._waiting.task_done()
            await asyncio.sleep(pause)

    def _pause_after(self, fault: PetrovError, faults: int) -> float:
        """Seconds before a gateway is asked again.

        Raises:
            PetrovError: The fault itself, if it does not pass.
        """
        never = isinstance(fault, RateLimited) and fault.retry_after is None
        if never or time.monotonic() - self._heard > self._limits.patience:
            raise fault
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**faults)
        return max(fault.retry_after or 0.0, random.uniform(longest / 2, longest))  # noqa: S311  spreads load

    async def _keep(self, number: int, fields: Fields) -> None:
        """Bring an answer to the disk; those that come while others are on the way go together."""
        self._partial.write(number, fields)
        self._written.append(number)
        async with self._syncing:
            written, self._written = self._written, []
            if written:
                await asyncio.to_thread(self._partial.sync)
                self._partial.tally(written)
                self._advance(self._count(written))


async def _described(clients: Sequence[AsyncClient], model: str) -> ModelInfo:
    """The model, by the first gateway that answers."""
    answers = await asyncio.gather(*(client.model(model) for client in clients), return_exceptions=True)
    lasting = [answer for answer in answers if isinstance(answer, BaseException) and not isinstance(answer, PASSING)]
    infos = [answer for answer in answers if not isinstance(answer, BaseException)]
    if infos and not lasting:
        return infos[0]
    raise next(answer for answer in (*lasting, *answers) if isinstance(answer, BaseException))


def _batch(info: ModelInfo, array: object) -> Question:
    question = ask(info, array)
    if question.single:
        raise InvalidInput(
            f"expected a batch ({', '.join(info.inputs[0].axes)}) but got one field: that is for predict"
        )
    return question


async def _answered(
    clients: Sequence[AsyncClient],
    question: Question,
    version: int,
    target: Path,
    limits: Limits,
    progress: Progress,
) -> Scored:
    """The file of answers, made or found."""
    info, job = question.info, await asyncio.to_thread(_job, question, version)
    tensor, gateways = info.outputs[0], [Gateway(client, info, version) for client in clients]
    if finished := _finished(target, tensor.name, job):
        return finished
    with (
        _partial.Partial(target, job, tensor, question.pieces()) as partial,
        reporting(progress, info.name, len(question)) as advance,
    ):
        asked = await Bulk(question, partial, limits, advance).run(gateways)
        return Scored(target, tensor.name, partial.finish(), asked)


def _finished(target: Path, name: str, job: Job) -> Scored | None:
    """The file of answers if it is there."""
    if not target.exists():
        return None
    found = _partial.read(target) or _partial.Contents({}, (), 0)
    _partial.check_same(target, found.job, job)
    return Scored(target, name, found.shape, 0)


def _job(question: Question, version: int) -> Job:
    """What is asked: a job that differs in any of it is another one."""
    digest, pieces = hashlib.sha256(), question.pieces()
    for piece in pieces:
        digest.update(question.fields(piece).data)
    return {
        "model": question.info.name,
        "version": version,
        "artefact_sha256": _artefact(question.info, version),
        "input_shape": " x ".join(map(str, question.array.shape)),
        "input_sha256": digest.hexdigest(),
        "fields_per_request": pieces[0].stop,
    }


def _artefact(info: ModelInfo, version: int) -> str:
    """The checksum of the served graph, where the gateway tells it: of the newest version."""
    artefact = info.certificate.get("artefact", {}) if version == info.version else {}
    return str(artefact.get("sha256", ""))
