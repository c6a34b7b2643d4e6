"""Variables such as HTTP_PROXY: an error that they may have caused names them."""

from __future__ import annotations

import re
import socket
import sys

import httpx2
import pytest

from petrov_client import Client, ConnectionFailed, InvalidResponse, PetrovError, ServiceError, _flow
from petrov_client._environment import over_http
from tests.clients.conftest import AnyClient, HttpService

SERVICE = "petrov.lab.example:8080"
HTML = {"Content-Type": "text/html"}


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in ("http", "https", "all", "no", "grpc", "no_grpc"):
        for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper()):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_flow, "ATTEMPTS", 1)  # others would end as the first does


@pytest.fixture
def closed() -> str:
    """Return an address at which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def fault(client: AnyClient, address: str) -> str:
    with pytest.raises(ConnectionFailed) as failure:
        client.call(address, "models")
    return str(failure.value)


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy", "grpc_proxy"])
def test_a_variable_that_sends_requests_elsewhere_is_named(
    any_client: AnyClient, closed: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "http://user:secret@127.0.0.1:9")
    message = fault(any_client, closed)
    others = {"HTTP_PROXY", "all_proxy"} if any_client.http else {"https_proxy", "grpc_proxy"}
    named = f"{name} sends requests for 127.0.0.1 through 127.0.0.1:9" in message
    assert named == (name in {"http_proxy", *others})
    assert "secret" not in message


@pytest.mark.parametrize(
    ("proxy", "reason"),
    [
        ("socks5://user:secret@127.0.0.1:1080", "pip install 'httpx2[socks]'"),
        ("nothing://user:secret@127.0.0.1:9", "Unknown scheme"),
        ("http://[::1", "Invalid port"),
    ],
)
@pytest.mark.parametrize("kind", ["Client", "AsyncClient"])
def test_a_proxy_that_cannot_be_used_is_named(
    closed: str, monkeypatch: pytest.MonkeyPatch, kind: str, proxy: str, reason: str
) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)  # as where it is not installed
    monkeypatch.setenv("all_proxy", proxy)
    with pytest.raises(ValueError, match=re.escape(reason)) as failure:
        AnyClient(kind).call(closed, "models")
    assert str(failure.value).startswith("expected a proxy that can be used in all_proxy but: ")
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize("exempt", ["other.example, 127.0.0.1", "*", "10.0.0.0/8, 127.0.0.0/8", "127.0.0.1/32"])
def test_a_host_that_is_exempt_is_reached_directly(
    any_client: AnyClient, closed: str, monkeypatch: pytest.MonkeyPatch, exempt: str
) -> None:
    assert "proxy" not in fault(any_client, closed)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert "http_proxy" in fault(any_client, closed)
    monkeypatch.setenv("no_proxy", exempt)
    assert "proxy" not in fault(any_client, closed)


@pytest.mark.parametrize("exempt", ["lab.example", ".lab.example", "*.lab.example", "petrov.lab.example"])
def test_a_domain_is_exempt_with_its_hosts(monkeypatch: pytest.MonkeyPatch, exempt: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy:3128")
    monkeypatch.setenv("NO_PROXY", exempt)
    assert over_http(httpx2.URL("https://petrov.lab.example")) == ""
    assert "HTTPS_PROXY" in over_http(httpx2.URL("https://otherlab.example"))
    assert over_http(httpx2.URL("http://otherlab.example")) == ""


@pytest.mark.parametrize("exempt", ["10.0.0.0/8", "10.0.0.0/8,fd00::/8", "10.0.0.1/8", "LAB.example,x/8,10.1.0.0/16"])
def test_a_network_is_exempt_with_its_addresses(monkeypatch: pytest.MonkeyPatch, exempt: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", "proxy:3128")
    monkeypatch.setenv("NO_PROXY", exempt)
    assert over_http(httpx2.URL("http://10.1.2.3")) == ""
    assert ("fd00" in exempt) == (over_http(httpx2.URL("http://[fd00::1]:8080")) == "")
    assert "HTTP_PROXY" in over_http(httpx2.URL("http://11.1.2.3"))
    assert "HTTP_PROXY" in over_http(httpx2.URL("http://petrov.example"))


@pytest.mark.parametrize(("status", "kind"), [(502, ServiceError), (404, InvalidResponse), (200, InvalidResponse)])
def test_a_response_of_the_proxy_is_not_taken_for_one_of_the_service(
    http_service: HttpService, monkeypatch: pytest.MonkeyPatch, status: int, kind: type[PetrovError]
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://{http_service.address}")
    http_service.replies = {f"http://{SERVICE}/v1/models": [(status, HTML, b"<h1>Proxy</h1>")]}
    with Client(f"http://{SERVICE}") as client, pytest.raises(kind, match="HTTP_PROXY sends requests"):
        client.models()


def test_a_transport_of_the_caller_reads_no_variables(monkeypatch: pytest.MonkeyPatch, closed: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://{closed}")
    with Client(f"http://{closed}", transport=httpx2.HTTPTransport()) as client:
        with pytest.raises(ConnectionFailed) as failure:
            client.models()
        assert "HTTP_PROXY" not in str(failure.value)
