"""The proxy that environment variables put before a service, for the messages of errors."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import httpx2


def over_http(url: httpx2.URL) -> str:
    """Return the words for an address over HTTP, where the variables may be in upper case; empty without a proxy."""
    variables = [name for each in (f"{url.scheme}_proxy", "all_proxy") for name in (each, each.upper())]
    return _words(url.host, variables, ["no_proxy", "NO_PROXY"])


def over_grpc(address: str) -> str:
    """Return the words for an address `HOST:PORT` over gRPC, which reads variables in lower case alone."""
    return _words(
        address.rpartition(":")[0], ["grpc_proxy", "https_proxy", "http_proxy"], ["no_grpc_proxy", "no_proxy"]
    )


def _words(host: str, variables: Sequence[str], exempting: Sequence[str]) -> str:
    proxy, exempt = _first(os.environ, variables), _first(os.environ, exempting)
    host = host.strip("[]")
    if proxy is None or (exempt is not None and _is_exempt(host, os.environ[exempt])):
        return ""
    shown = os.environ[proxy].rpartition("@")[2]  # without its password
    return f"; {proxy} sends requests for {host} through {shown}: add the host to {exempting[-1]} to reach it directly"


def _first(environment: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((name for name in names if environment.get(name)), None)


def _is_exempt(host: str, listed: str) -> bool:
    names = [each.strip().strip("[]").removeprefix("*").removeprefix(".") for each in listed.split(",")]
    return "*" in listed.replace(" ", "").split(",") or any(
        name and (host == name or host.endswith(f".{name}")) for name in names
    )
