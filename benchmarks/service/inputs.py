"""Inputs of several sizes for each model of a gateway, and a sender for every format."""

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

    from benchmarks.service.running import Addresses

BATCHES = (1, 3)
LARGEST = 2**17  # points of an input: a few hundred milliseconds of a model, and many requests per minute
OK = "200"


@dataclass(frozen=True)
class ModelInput:
    """Fields or sequences for the input of a model that has one."""

    model: str
    input: str
    datatype: str
    array: NDArray[Any]

    @property
    def path(self) -> str:
        """The path of the gateway's route."""
        return f"/v1/models/{self.model}/predict"

    def npy(self) -> bytes:
        """Return the bytes of an .npy file."""
        file = io.BytesIO()
        np.save(file, self.array)
        return file.getvalue()


def model_inputs(gateway: str, seed: int = 0) -> list[ModelInput]:
    """Return an input per model, declared grid and batch, unless it has more than `LARGEST` points."""
    random = np.random.default_rng(seed)
    with httpx2.Client(base_url=gateway, timeout=60) as client:
        names = [model["name"] for model in client.get("/v1/models").json()["models"]]
        cards = [client.get(f"/v1/models/{name}").json()["card"] for name in names]
    return [
        model_input(card, (batch, *[points] * len(card["grid"]["axes"])), random)
        for card in cards
        for batch, points in itertools.product(BATCHES, card["grid"]["declared"])
        if batch * points ** len(card["grid"]["axes"]) <= LARGEST
    ]


def model_input(card: Mapping[str, Any], shape: tuple[int, ...], random: np.random.Generator) -> ModelInput:
    """Return random values that the card allows: tokens of the vocabulary, or positive numbers.

    Args:
        card: The model's card.
        shape: The shape of the array, the batch axis first.
        random: The source of the values.
    """
    [tensor] = card["inputs"]
    if tensor["dtype"] == "INT32":
        array = random.integers(1, len(card["vocabulary"]["words"]), shape).astype(np.int32)
    else:
        array = random.uniform(1, 2, shape).astype(np.float32)
    return ModelInput(card["model"], tensor["name"], tensor["dtype"], array)


class Sender:
    """A sender of requests to a gateway, in every format and with many in flight.

    Args:
        service: The addresses of the service.
    """

    def __init__(self, service: Addresses) -> None:
        unlimited = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
        self.http = httpx2.AsyncClient(base_url=service.gateway, timeout=None, limits=unlimited)
        self._grpc = InferenceServerClient(service.gateway_grpc)
        self.formats: dict[str, Callable[[ModelInput], Awaitable[str]]] = {
            "npy": self.send_npy,
            "JSON": self.send_json,
            "gRPC": self.send_grpc,
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.aclose()
        await self._grpc.close()

    async def send_npy(self, sample: ModelInput) -> str:
        """Return the status of a request as .npy."""
        return await self.post(sample, sample.npy(), "application/x-npy")

    async def send_json(self, sample: ModelInput) -> str:
        """Return the status of a request as JSON."""
        body = orjson.dumps({"inputs": {sample.input: sample.array}}, option=orjson.OPT_SERIALIZE_NUMPY)
        return await self.post(sample, body, "application/json")

    async def send_grpc(self, sample: ModelInput) -> str:
        """Return the status of a request over gRPC: 200, or the name of gRPC's status."""
        tensor = InferInput(sample.input, list(sample.array.shape), sample.datatype).set_data_from_numpy(sample.array)
        try:
            await self._grpc.infer(sample.model, [tensor])
        except InferenceServerException as error:
            return str(error.status())
        return OK

    async def send_truncated(self, sample: ModelInput) -> str:
        """Return the status of a request whose body ends in the middle."""
        body = sample.npy()
        return await self.post(sample, body[: math.ceil(len(body) / 2)], "application/x-npy")

    async def post(self, sample: ModelInput, body: bytes, media_type: str) -> str:
        """Return the status of the response, after all of it has arrived."""
        response = await self.http.post(sample.path, content=body, headers={"Content-Type": media_type})
        return str(response.status_code)
