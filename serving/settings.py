"""The service's settings, read from environment variables (`PETROV_*`); their descriptions make the settings table."""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from serving.system import is_loopback

DAY = 86_400.0
MEBIBYTE = 2**20
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=DAY, allow_inf_nan=False)]
Bytes = Annotated[int, Field(gt=0, le=2**40)]


def _amount(size: ByteSize) -> ByteSize:
    """Refuse the amount that `PETROV_GPU_MEMORY=7` is, which would have every request load its model anew."""
    if 0 < size < MEBIBYTE:
        raise ValueError(f"expected 0, or an amount with its unit, such as 6GiB, but got {int(size)} bytes")
    return size


def _named(given: object) -> object:
    if given == "":  # which would be the working folder
        raise ValueError("expected a folder but got nothing: unset the variable for the default")
    return given


Memory = Annotated[
    Annotated[ByteSize, Field(ge=0, le=2**50), AfterValidator(_amount)] | None,
    BeforeValidator(lambda given: None if given == "" else given),
]
Folder = Annotated[Path, BeforeValidator(_named)]
#: Variables of earlier releases, and what replaces them.
GONE = {
    "PETROV_WORKERS": "run more replicas of the gateway behind a load balancer (deploy/kubernetes)",
    "PETROV_TRITON_POLL_SECONDS": "the gateway looks for new models and versions every second",
}
#: Variables with our prefix that other programs of the project read: the client and the notebooks.
OTHERS = {"PETROV_URL", "PETROV_API_KEY", "PETROV_GRPC", "PETROV_STEPS"}

ANY = "*"
ENCODINGS = ("zstd", "gzip")  # of compressed bodies, the preferred one first
_NAME = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.ASCII | re.IGNORECASE)
_ADDRESS = re.compile(r"([^\s:/@\[\]]+|\[[^\s/@\[\]]+\]):(?P<port>\d{1,5})", re.ASCII)
_ORIGIN = re.compile(r"https?://[^/\s*]+")
_COLLECTOR = re.compile(r"https?://[^\s/]+/\S*")


def listed(text: str) -> list[str]:
    """Return the parts of a list with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def is_prefix(text: str) -> bool:
    """Tell whether a text is empty or a path of plain segments, which begins with a slash and does not end with one."""
    first, *segments = text.split("/")
    plain = all(re.fullmatch(r"[\w.~-]+", each, re.ASCII) and each.strip(".") for each in segments)
    return not first and plain


class Settings(BaseSettings):
    """Everything about the service that an operator may choose.

    Settings are read once, at the start of a command, and passed on: nothing else reads the environment.
    """

    model_config = SettingsConfigDict(env_prefix="PETROV_", frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", min_length=1, description="Address on which the gateway listens.")
    port: Port = Field(8080, description="Port of the gateway.")
    grpc_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        8081, description="Port of the gateway's gRPC (Open Inference Protocol); 0 switches gRPC off."
    )
    allowed_hosts: str = Field(
        "",
        description="Names by which clients may call the service, such as `petrov.lab.example,*.cluster.local`; "
        "`localhost`, names without a dot and IP addresses always may. "
        "Empty: no others if `PETROV_HOST` is a loopback address, else any; "
        "`*`: any.",
    )
    allowed_origins: str = Field(
        "",
        description="Origins whose pages may call the service from a browser (CORS), such as `https://lab.example`; "
        "`*`: any; empty: none.",
    )
    path_prefix: str = Field(
        "",
        description="Path under which a reverse proxy publishes the service, such as `/petrov`; the proxy may remove "
        "it from requests or keep it.",
    )
    trusted_proxies: str = Field(
        "127.0.0.1,::1",
        description="Addresses and networks of the reverse proxies whose `X-Forwarded-For`, `X-Forwarded-Proto` and "
        "`X-Forwarded-Prefix` count; `*`: all; empty: none.",
    )
    repository: Folder = Field(
        Path("model_repository"), description="Model repository; Triton reads the models, the gateway their cards."
    )
    keys: Path | None = Field(
        None, description="File of hashed API keys, scopes and rates, re-read when it changes; unset: no keys needed."
    )
    triton: str = Field(
        "", description="HTTP address `HOST:PORT` of a Triton that runs elsewhere; empty: start one here."
    )
    triton_grpc: str = Field(
        "",
        description="gRPC address `HOST:PORT` of that Triton, by which it loads models; empty: by its HTTP, which "
        "answers little else until a model is loaded.",
    )
    triton_key: Annotated[str, Field(pattern=r"^[\w-]*$")] = Field(
        "",
        repr=False,
        description="Key of Triton's restricted APIs (header `petrov-key`), for further gateways before one Triton; "
        "empty: a local Triton has one that no other process knows, and a Triton elsewhere needs none.",
    )
    triton_http_port: Port = Field(8000, description="HTTP port of the local Triton (127.0.0.1 only).")
    triton_grpc_port: Port = Field(8001, description="gRPC port of the local Triton (127.0.0.1 only).")
    triton_metrics_port: Port = Field(8002, description="Metrics port of the local Triton (127.0.0.1 only).")
    triton_runtime: Folder = Field(
        Path(".runtime/triton"), description="Folder for the local Triton's backends and log."
    )
    triton_environment: Folder = Field(
        Path(".runtime/triton-env"), description="Python environment of the local Triton; built if it is missing."
    )
    device: Literal["auto", "gpu", "cpu"] = Field(
        "auto",
        description="What the local Triton computes on; `auto` takes a GPU that works, and logs the reason.",
    )
    triton_start_seconds: Seconds = Field(
        300.0, description="How long the local Triton may take to respond at its start."
    )
    gpu_memory: Memory = Field(
        None,
        description="Memory of the card for all models together, such as `6GiB`: each is loaded at its first use, and "
        "unloaded when it is idle or others need room. Empty: that of the card less a tenth, or 1 GiB; 0: no limit.",
    )
    model_memory: Memory = Field(
        None,
        description="The same for the machine's memory where models compute on the processor. Empty: no limit.",
    )
    companion_idle_seconds: Seconds = Field(
        600.0,
        description="How long a derivative, a refinement, a further format or, where memory has a limit, any model "
        "stays loaded after its last use.",
    )
    max_body_bytes: Bytes = Field(
        64 * MEBIBYTE,
        description="Largest request body, counted while it is received (413); a quarter of it in JSON and over gRPC.",
    )
    max_bytes_in_flight: Bytes = Field(
        512 * MEBIBYTE, description="Memory of all requests, with their arrays and responses; beyond it 503."
    )
    max_requests_in_flight: Annotated[int, Field(gt=0, le=2**20)] = Field(
        256, description="Predictions in flight at one time; beyond it 503 with Retry-After."
    )
    max_rollout_bytes: Bytes = Field(
        2**30,
        description="Largest size of all frames of a streamed rollout as float32 (422); memory holds a few of them.",
    )
    receive_seconds: Seconds = Field(
        30.0, description="How long a client may take to send its body (408), and may read nothing of its response."
    )
    compression: str = Field(
        "",
        description="Encodings of compressed bodies that are read, and written where clients accept them: `gzip`, "
        "`zstd` or both; empty: none. Sizes count as they are without it.",
    )
    request_seconds: Seconds = Field(60.0, description="How long a response may take once the body is read (504).")
    shadow_share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        0.01,
        description="Share of predictions that are also solved classically in the background, to measure true errors.",
    )
    max_inversions: Annotated[int, Field(gt=0, le=2**10)] = Field(
        16, description="Inversions that wait or run at one time (beyond it 503), and results that are kept."
    )
    inversion_seconds: Seconds = Field(600.0, description="How long one inversion may run.")
    inversion_kept_seconds: Seconds = Field(3600.0, description="How long the result of an inversion is kept.")
    drain_seconds: Seconds = Field(20.0, description="How long requests in flight may finish after SIGTERM.")
    notice_seconds: Annotated[float, Field(ge=0, le=DAY, allow_inf_nan=False)] = Field(
        0.0,
        description="How long readiness is false after SIGTERM before the gateway stops listening: for load balancers.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is logged.")
    log_format: Literal["text", "json"] = Field("text", description="Log lines as plain text, or as JSON for programs.")
    traces: str = Field(
        "",
        description="Where OpenTelemetry traces are sent, such as `http://127.0.0.1:4318/v1/traces`; empty: none.",
    )
    triton_traces: bool = Field(
        default=False,
        description="Whether the local Triton sends spans, too; only for single requests, since it crashes under load.",
    )

    @field_validator("triton", "triton_grpc")
    @classmethod
    def _check(cls, address: str) -> str:
        if "," in address:
            raise ValueError(
                "expected one HOST:PORT; for several Tritons name a load balancer, such as a Kubernetes service"
            )
        found = _ADDRESS.fullmatch(address)
        if address and (found is None or not 0 < int(found["port"]) < 65536):
            raise ValueError(f'expected HOST:PORT but got "{address}"')
        return address

    @field_validator("allowed_hosts", "allowed_origins", "compression", "trusted_proxies")
    @classmethod
    def _check_list(cls, text: str, info: ValidationInfo) -> str:
        for part in listed(text):
            if info.field_name == "compression":
                if part not in ENCODINGS:
                    raise ValueError(f'expected {" or ".join(ENCODINGS)} but got "{part}"')
            elif part == ANY:
                continue
            elif info.field_name == "trusted_proxies":
                ip_network(part)  # its ValueError says what is wrong
            elif info.field_name == "allowed_hosts" and not _NAME.fullmatch(part):
                raise ValueError(f'expected names without port, such as lab.example or *.lab.example, but got "{part}"')
            elif info.field_name == "allowed_origins" and not _ORIGIN.fullmatch(part):
                raise ValueError(f'expected origins such as https://lab.example but got "{part}"')
        return text

    @field_validator("path_prefix")
    @classmethod
    def _check_prefix(cls, text: str) -> str:
        prefix = text.rstrip("/")
        if not is_prefix(prefix):
            raise ValueError(f'expected a path such as /petrov but got "{text}"')
        return prefix

    @field_validator("traces")
    @classmethod
    def _check_traces(cls, url: str) -> str:
        if url and not _COLLECTOR.fullmatch(url):
            raise ValueError(f'expected an address such as http://127.0.0.1:4318/v1/traces but got "{url}"')
        return url

    @property
    def known_hosts(self) -> list[str] | None:
        """The names by which clients may call the service, beside `localhost` and IP addresses; None for any."""
        names = listed(self.allowed_hosts.lower())
        return None if ANY in names or not (names or is_loopback(self.host)) else names

    @property
    def url(self) -> str:
        """Where a client on this machine finds the gateway."""
        host = "127.0.0.1" if self.host in {"0.0.0.0", "::"} else self.host  # noqa: S104 - compared alone
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def max_json_bytes(self) -> int:
        """The largest body in JSON, whose numbers take many times their text in memory."""
        return self.max_body_bytes // 4

    @property
    def max_message_bytes(self) -> int:
        """The largest tensors of a gRPC message, which gRPC copies three times while nothing else runs."""
        return self.max_body_bytes // 4

    @property
    def embedded(self) -> bool:
        return not self.triton

    @property
    def triton_address(self) -> str:
        """The HTTP address of the Triton in use, local or remote."""
        return self.triton or f"127.0.0.1:{self.triton_http_port}"

    @property
    def triton_grpc_address(self) -> str:
        """The gRPC address of the Triton in use; empty where it is not known."""
        return self.triton_grpc if self.triton else f"127.0.0.1:{self.triton_grpc_port}"
