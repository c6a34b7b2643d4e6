"""Environment variables in (`PETROV_*`), one frozen `Settings` out; its descriptions make the README's table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]
MEBIBYTE = 2**20


class Settings(BaseSettings):
    """Everything about the service that an operator may choose.

    Read once, at the start of a command, and passed on: nothing else looks at the environment.
    """

    model_config = SettingsConfigDict(env_prefix="PETROV_", frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address on which the gateway listens.")
    port: Port = Field(8080, description="Port of the gateway.")
    grpc_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        8081, description="Port of the gateway's gRPC (Open Inference Protocol); 0: none."
    )
    repository: Path = Field(
        Path("model_repository"), description="Model repository: read by Triton, and for its cards."
    )
    keys: Path | None = Field(
        None, description="File of hashed API keys, scopes and rates, re-read when it changes; none: open to everybody."
    )
    triton: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="HTTP addresses `HOST:PORT[,HOST:PORT…]` of a Triton that runs elsewhere; empty: start one here.",
    )
    triton_http_port: Port = Field(8000, description="HTTP port of the local Triton (127.0.0.1 only).")
    triton_grpc_port: Port = Field(8001, description="gRPC port of the local Triton (127.0.0.1 only).")
    triton_metrics_port: Port = Field(8002, description="Metrics port of the local Triton (127.0.0.1 only).")
    triton_runtime: Path = Field(Path(".runtime/triton"), description="Folder for the local Triton's backends and log.")
    triton_environment: Path = Field(
        Path(".runtime/triton-env"), description="Python environment of the local Triton; built where it is missing."
    )
    triton_start_seconds: Seconds = Field(120.0, description="How long the local Triton may take to load every model.")
    triton_poll_seconds: Annotated[int, Field(ge=1)] = Field(
        2, description="How often the local Triton looks for new models and versions."
    )
    max_body_bytes: Bytes = Field(64 * MEBIBYTE, description="Largest request body, counted while it streams in (413).")
    max_bytes_in_flight: Bytes = Field(
        512 * MEBIBYTE, description="Request bytes held at one time over all requests; beyond it 503."
    )
    max_requests_in_flight: Annotated[int, Field(gt=0)] = Field(
        256, description="Requests answered at one time; beyond it 503 with Retry-After."
    )
    receive_seconds: Seconds = Field(30.0, description="How long a client may take to send its body (408).")
    request_seconds: Seconds = Field(60.0, description="How long an answer may take once the body is read (504).")
    drain_seconds: Seconds = Field(20.0, description="How long requests in flight may finish after SIGTERM.")
    notice_seconds: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="How long readiness is false after SIGTERM before the gateway stops listening: for load balancers.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe log line written."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Log lines as sentences for people, or as JSON for machines."
    )
    traces: Annotated[str, Field(pattern=r"^(https?://[^\s/]+/\S*)?$")] = Field(
        "",
        description="Where OpenTelemetry traces are sent, such as `http://127.0.0.1:4318/v1/traces`; empty: none.",
    )
    triton_traces: bool = Field(
        default=False,
        description="Whether the local Triton sends spans, too: for a look at single requests, since it dies of many.",
    )

    @field_validator("triton", mode="before")
    @classmethod
    def _split(cls, addresses: object) -> object:
        if not isinstance(addresses, str):
            return addresses
        return tuple(part for part in (piece.strip() for piece in addresses.split(",")) if part)

    @field_validator("triton")
    @classmethod
    def _check(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for address in addresses:
            host, _, port = address.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError(f'expected HOST:PORT but got "{address}"')
        return addresses

    @property
    def embedded(self) -> bool:
        """Whether a local Triton is started."""
        return not self.triton

    @property
    def triton_addresses(self) -> tuple[str, ...]:
        """The HTTP addresses to send work to, of whichever Triton is in use."""
        return self.triton or (f"127.0.0.1:{self.triton_http_port}",)
