"""A catalogue in front of a Triton whose replies a test decides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from serving.catalogue.catalogue import Catalogue
from serving.observe import Metrics
from serving.settings import Settings
from serving.triton import Triton

INDEX = json.dumps([{"name": name, "version": "1", "state": "READY"} for name in ("good", "bad")])
CONFIGURATION = json.dumps({"input": [{"name": "coefficient"}]})
OUTPUT = json.dumps({"outputs": []})


class FakeTriton:
    """A socket server that lists two loaded models.

    Attributes:
        wrong: The reply to an inference of `bad`, as it goes over the wire.
        index: The reply to a request for the loaded models.
        hangs: Whether an inference of `bad` never gets its reply.
        late: The end of the path of a request for the loaded models that never gets its reply.
        loads: The paths of the requests to load a model.
    """

    def __init__(self) -> None:
        self.wrong = reply("")
        self.index = reply(INDEX, tensors=False)
        self.hangs, self.late = False, ""
        self.loads = list[str]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path, _, fields = head.split(" ", 1)[1].partition(" ")
                length = [line for line in fields.lower().splitlines() if line.startswith("content-length")]
                await reader.readexactly(int(length[0].split()[1]) if length else 0)
                if (self.hangs and "/bad/" in path) or (self.late and path.endswith(self.late)):
                    await reader.read()
                self.loads.extend([path] if path.endswith("/load") else [])
                writer.write(response := self.respond(path))
                await writer.drain()
                if not response.startswith(b"HTTP") or response.endswith(b"half"):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def respond(self, path: str) -> bytes:
        if path.endswith("index"):
            return self.index
        if path.endswith("infer"):
            return self.wrong if "/bad/" in path else reply(OUTPUT)
        return reply(CONFIGURATION, tensors=False)


def reply(text: str, *, tensors: bool = True, status: str = "200 OK") -> bytes:
    """Return a reply in HTTP; with tensors, it says where its JSON ends."""
    split = f"Inference-Header-Content-Length: {len(text)}\r\n" if tensors else ""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n{split}\r\n{text}".encode()


def change(repository: Path, name: str, **changes: object) -> None:
    card = repository / name / "1" / "card.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | changes))


def change_grid(repository: Path, **changes: object) -> None:
    """Change the grid in the card of `bad`."""
    grid = json.loads((repository / "bad" / "1" / "card.json").read_text())["grid"]
    change(repository, "bad", grid=grid | changes)


@asynccontextmanager
async def looking(repository: Path, warm_bytes: int = 2**26) -> AsyncIterator[tuple[Catalogue, FakeTriton]]:
    """Yield a catalogue in front of a fake Triton."""
    fake = FakeTriton()
    async with await asyncio.start_server(fake.serve, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        inference = Triton(f"{host}:{port}", 2**20)
        metrics = Metrics("test")
        async with inference:
            settings = Settings(repository=repository, request_seconds=5.0, companion_idle_seconds=60.0)
            settings = settings.model_copy(update={"max_body_bytes": warm_bytes})
            catalogue = Catalogue(settings, inference, metrics.catalogue)
            yield catalogue, fake
            await catalogue.close()


async def look_until(catalogue: Catalogue, condition: Callable[[], bool]) -> None:
    """Look again and again: a version whose warming has failed slowly is not tried at every look."""
    async with asyncio.timeout(60):
        while not condition():
            await catalogue.look()
            await asyncio.sleep(0.02)


def served(catalogue: Catalogue) -> list[str]:
    return [model.name for model in catalogue.models()]


def newest_served(catalogue: Catalogue) -> dict[str, float]:
    """Return the values of the gauge by model."""
    [family] = catalogue._newest_served.collect()
    return {sample.labels["model"]: sample.value for sample in family.samples}
