"""The proxies that environment variables put before a service: in messages of errors, and where none can be used."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import httpx2

_OVER_HTTP = ("http_proxy", "https_proxy", "all_proxy")


@contextmanager
def usable() -> Iterator[None]:
    """Make a client, which prepares the proxies of all variables, also those that other hosts are reached through.

    Raises:
        ValueError: One of them cannot be used.
    """
    try:
        yield
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        names = " and ".join(sorted(name for name in os.environ if name.lower() in _OVER_HTTP and os.environ[name]))
        if not names:
            raise
        reason = "pip install 'httpx2[socks]'" if isinstance(error, ImportError) else str(error)
        raise ValueError(f"expected a proxy that can be used in {names} but: {reason}") from error


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
