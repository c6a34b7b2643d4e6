"""Takes arrays in physical units or texts, gives solution grids or labels: clients of a Petrov service.

    import numpy as np
    from petrov_client import Client

    with Client("http://127.0.0.1:8080") as petrov:
        pressure = petrov.predict("darcy", np.load("permeability.npy"))

`Client` and `AsyncClient` speak to the gateway, `GrpcClient` and `AsyncGrpcClient` to a Triton; all four have `models`,
`model` and `predict`, and raise the same exceptions (the tree is drawn in `petrov_client._exceptions`). What `model`
tells of a model of sequences turns texts into its tokens (`encode`) and its answers into labels (`decode`). `score`
answers a file of any length with a file, through several gateways and on from where it was broken off.
"""

from petrov_client._async_client import AsyncClient, AsyncGrpcClient
from petrov_client._client import Client, GrpcClient
from petrov_client._exceptions import (
    ConnectionFailed,
    DeadlineExceeded,
    InvalidInput,
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
    UnreadableAnswer,
    Where,
)
from petrov_client._models import GridInfo, ModelInfo, TensorInfo
from petrov_client._score import Scored, score
from petrov_client._vocabulary import Choice, Vocabulary

__all__ = [
    "AsyncClient",
    "AsyncGrpcClient",
    "Choice",
    "Client",
    "ConnectionFailed",
    "DeadlineExceeded",
    "GridInfo",
    "GrpcClient",
    "InvalidInput",
    "ModelInfo",
    "PetrovError",
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
    "UnreadableAnswer",
    "Vocabulary",
    "Where",
    "score",
]
