"""A Python client for a Petrov service: NumPy arrays in physical units, or texts, in; predictions out.

    import numpy as np
    from petrov_client import Client

    with Client("http://127.0.0.1:8080") as petrov:
        pressure = petrov.predict("darcy", np.load("permeability.npy"))
        temperature = petrov.predict("heat", conductivity=k, source=f, wind=0.3)

`Client` and `AsyncClient` use the gateway's HTTP routes. `GrpcClient` and `AsyncGrpcClient` use its gRPC port and need
the extra `[grpc]`. All four have the methods `models`, `model`, `predict`, `stream`, `rollout`, `rollout_stream`, `vjp`
and `jvp`, and raise the same exceptions (`petrov_client._errors` draws the tree). Over HTTP, `example` returns test
samples and `reference` classical solutions, and `invert` infers an input from measurements at sensors. xarray inputs
give xarray outputs with the same dimensions and coordinates. `ModelInfo.encode` converts texts to tokens for a sequence
model; `ModelInfo.decode` converts its logits to labels. `score` computes a whole file of any length, through several
gateways, and resumes after an interruption.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from petrov_client._client import AsyncClient, Client
from petrov_client._errors import (
    ConnectionFailed,
    DeadlineExceeded,
    InvalidInput,
    InvalidResponse,
    PetrovError,
    RateLimited,
    RequestError,
    ServerFault,
    ServiceError,
    TooLarge,
    TransportError,
    Unauthorised,
    Unavailable,
    UnknownModel,
    Where,
)
from petrov_client._inversion import Inversion
from petrov_client._models import Example, ModelInfo
from petrov_client._quality import IncompleteRolloutWarning, OutsideTrainingWarning, Quality
from petrov_client._schema import GridInfo, ParameterInfo, TensorInfo
from petrov_client._score import Scored, score
from petrov_client._vocabulary import Choice, Vocabulary

if TYPE_CHECKING:
    from petrov_client._grpc_client import AsyncGrpcClient, GrpcClient

    __version__: str

__all__ = [
    "AsyncClient",
    "AsyncGrpcClient",
    "Choice",
    "Client",
    "ConnectionFailed",
    "DeadlineExceeded",
    "Example",
    "GridInfo",
    "GrpcClient",
    "IncompleteRolloutWarning",
    "InvalidInput",
    "InvalidResponse",
    "Inversion",
    "ModelInfo",
    "OutsideTrainingWarning",
    "ParameterInfo",
    "PetrovError",
    "Quality",
    "RateLimited",
    "RequestError",
    "Scored",
    "ServerFault",
    "ServiceError",
    "TensorInfo",
    "TooLarge",
    "TransportError",
    "Unauthorised",
    "Unavailable",
    "UnknownModel",
    "Vocabulary",
    "Where",
    "score",
]


def __getattr__(name: str) -> Any:
    """Import the gRPC clients on first use: users of HTTP need not install gRPC, nor wait for its import.

    `__version__` is looked up then, too.

    Raises:
        ModuleNotFoundError: A gRPC client is requested and the extra `[grpc]` is not installed.
        AttributeError: There is no such name.
    """
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  few ask for it

        return version("petrov-client")
    if name not in {"GrpcClient", "AsyncGrpcClient"}:
        raise AttributeError(f"module 'petrov_client' has no attribute {name!r}")
    try:
        from petrov_client import _grpc_client  # noqa: PLC0415  optional
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'{name} needs {error.name}, which is not installed: pip install "tritonclient[grpc]"', name=error.name
        ) from error
    return getattr(_grpc_client, name)
