"""Takes a gateway, gives questions of every size to each of its models, and the ways to ask them."""

from __future__ import annotations

import io
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import orjson
from tritonclient.grpc import InferInput
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from benchmarks.service import Addresses

BATCHES = (1, 3)
LARGEST = 2**17  # points of a question: a few hundred milliseconds of a model, and many questions a minute
OK = "200"


@dataclass(frozen=True)
class Question:
    """Fields or sequences for the only input of a model."""

    model: str
    input: str
    datatype: str
    array: NDArray[Any]

    @property
    def path(self) -> str:
        """Where the gateway is asked it."""
        return f"/v1/models/{self.model}/predict"

    def npy(self) -> bytes:
        """The body of an .npy file."""
        file = io.BytesIO()
        np.save(file, self.array)
        return file.getvalue()


def questions(gateway: str, seed: int = 0) -> list[Question]:
    """Give a question for every model, declared grid and batch, as far as it is no larger than `LARGEST`."""
    random = np.random.default_rng(seed)
    with httpx2.Client(base_url=gateway, timeout=60) as client:
        names = [model["name"] for model in client.get("/v1/models").json()["models"]]
        cards = [client.get(f"/v1/models/{name}").json()["card"] for name in names]
    return [
        question(card, (batch, *[points] * len(card["grid"]["axes"])), random)
        for card in cards
        for batch, points in itertools.product(BATCHES, card["grid"]["declared"])
        if batch * points ** len(card["grid"]["axes"]) <= LARGEST
    ]


def question(card: Mapping[str, Any], shape: tuple[int, ...], random: np.random.Generator) -> Question:
    """Give numbers that the card allows: words of the vocabulary, or positive ones."""
    [tensor] = card["inputs"]
    if tensor["dtype"] == "INT32":
        array = random.integers(1, len(card["vocabulary"]["words"]), shape).astype(np.int32)
    else:
        array = random.uniform(1, 2, shape).astype(np.float32)
    return Question(card["model"], tensor["name"], tensor["dtype"], array)


class Asker:
    """Asks a gateway in every way it knows, many questions at one time.

    Args:
        service: Where it answers.
    """

    def __init__(self, service: Addresses) -> None:
        unlimited = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
        self.http = httpx2.AsyncClient(base_url=service.gateway, timeout=None, limits=unlimited)
        self._grpc = InferenceServerClient(service.gateway_grpc)
        self.ways: dict[str, Callable[[Question], Awaitable[str]]] = {
            "npy": self.ask_npy,
            "JSON": self.ask_json,
            "gRPC": self.ask_grpc,
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.aclose()
        await self._grpc.close()

    async def ask_npy(self, asked: Question) -> str:
        """Give the status."""
        return await self.post(asked, asked.npy(), "application/x-npy")

    async def ask_json(self, asked: Question) -> str:
        """Give the status."""
        body = orjson.dumps({"inputs": {asked.input: asked.array}}, option=orjson.OPT_SERIALIZE_NUMPY)
        return await self.post(asked, body, "application/json")

    async def ask_grpc(self, asked: Question) -> str:
        """Give the status: 200, or gRPC's word."""
        given = InferInput(asked.input, list(asked.array.shape), asked.datatype).set_data_from_numpy(asked.array)
        try:
            await self._grpc.infer(asked.model, [given])
        except InferenceServerException as error:
            return str(error.status())
        return OK

    async def ask_half(self, asked: Question) -> str:
        """Give the status of a question that breaks off in the middle."""
        body = asked.npy()
        return await self.post(asked, body[: math.ceil(len(body) / 2)], "application/x-npy")

    async def post(self, asked: Question, body: bytes, media_type: str) -> str:
        """Give the status of the answer, once all of it is here."""
        answer = await self.http.post(asked.path, content=body, headers={"Content-Type": media_type})
        return str(answer.status_code)
