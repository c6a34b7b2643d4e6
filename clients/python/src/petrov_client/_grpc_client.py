"""The two gRPC clients, synchronous and asynchronous. They need the extra `[grpc]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from tritonclient.grpc import InferenceServerClient
from tritonclient.grpc.aio import InferenceServerClient as AsyncInferenceServerClient
from tritonclient.utils import InferenceServerException

from petrov_client._async_client import AsyncPredictor
from petrov_client._client import SyncPredictor
from petrov_client._wire import over_grpc
from petrov_client._wire.key import bearer, shown
from petrov_client._wire.retry import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from petrov_client._wire.over_grpc import GrpcRequest

#: The gateway's gRPC port. Triton's own port, 8001, checks neither keys nor values.
ADDRESS = "127.0.0.1:8081"


class GrpcClient(SyncPredictor):
    """A client over gRPC (Open Inference Protocol) of the gateway, or of a Triton server.

    Args:
        address: `HOST:PORT` of the server; the gateway's gRPC port on this machine by default.
        api_key: Sent as a bearer token in the metadata, never shown.
        timeout: Seconds for each request, its repetitions included.
        tls: Whether to encrypt, with the certificates that the system trusts.

    Raises:
        ValueError: `address` is not HOST:PORT, or no header can carry the key.
    """

    def __init__(
        self,
        address: str = ADDRESS,
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        tls: bool = False,
    ) -> None:
        super().__init__(over_grpc.GrpcWire(), timeout)
        self._address = over_grpc.checked_address(address)
        self._key, self._tls = bearer(api_key), tls
        self._stub = InferenceServerClient(self._address, ssl=tls, channel_args=over_grpc.CHANNEL)

    def __repr__(self) -> str:
        return shown("GrpcClient", self._address, self._key)

    def close(self) -> None:
        """Close the connection."""
        self._stub.close()

    def _send(self, request: GrpcRequest, remaining: float) -> Any:
        try:
            return getattr(self._stub, request.method)(**over_grpc.arguments(request, self._key, remaining))
        except InferenceServerException as error:
            raise over_grpc.fault(error, self._address) from error

    def _receive(self, request: GrpcRequest, seconds: float) -> Generator[Any]:
        with _channel(grpc, self._address, tls=self._tls) as channel:
            call = over_grpc.stream(channel, request, self._key, seconds)
            try:
                for response in call:
                    yield over_grpc.frame(response)
            except grpc.RpcError as error:
                raise over_grpc.broken(error, self._address) from error
            finally:
                call.cancel()


class AsyncGrpcClient(AsyncPredictor):
    """An asynchronous client over gRPC; arguments as `GrpcClient`."""

    def __init__(
        self,
        address: str = ADDRESS,
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        tls: bool = False,
    ) -> None:
        super().__init__(over_grpc.GrpcWire(), timeout)
        self._address = over_grpc.checked_address(address)
        self._key, self._tls = bearer(api_key), tls
        self._stub = AsyncInferenceServerClient(self._address, ssl=tls, channel_args=over_grpc.CHANNEL)

    def __repr__(self) -> str:
        return shown("AsyncGrpcClient", self._address, self._key)

    async def close(self) -> None:
        """Close the connection."""
        await self._stub.close()

    async def _send(self, request: GrpcRequest, remaining: float) -> Any:
        try:
            return await getattr(self._stub, request.method)(**over_grpc.arguments(request, self._key, remaining))
        except InferenceServerException as error:
            raise over_grpc.fault(error, self._address) from error

    async def _receive(self, request: GrpcRequest, seconds: float) -> AsyncGenerator[Any]:
        async with _channel(grpc.aio, self._address, tls=self._tls) as channel:
            call = over_grpc.stream(channel, request, self._key, seconds)
            try:
                async for response in call:
                    yield over_grpc.frame(response)
            except grpc.RpcError as error:
                raise over_grpc.broken(error, self._address) from error
            finally:
                call.cancel()


def _channel(library: Any, address: str, *, tls: bool) -> Any:
    """Return a channel of its own for a stream: `tritonclient` has one stream per client, and no pace of the reader."""
    if tls:
        return library.secure_channel(address, grpc.ssl_channel_credentials(), options=over_grpc.CHANNEL)
    return library.insecure_channel(address, options=over_grpc.CHANNEL)
