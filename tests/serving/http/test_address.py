"""Where clients see the service: by names, under a path, from other origins, over both families of addresses."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
from pydantic import ValidationError

import petrov_client
from serving.address import WithHead, caller_address
from serving.settings import Settings
from tests.conftest import Gateway, wait_until
from tests.reverse_proxy import published
from tests.serving.conftest import RunGateway

PAGE = "https://lab.example"


@pytest.fixture(scope="module")
def public(run_before_triton: RunGateway) -> Iterator[Gateway]:
    """Run a gateway for others: on all addresses, with names, a path and pages that it knows."""
    hosts = "lab.example, *.cluster.local"
    with run_before_triton(host="::", allowed_hosts=hosts, allowed_origins=PAGE, path_prefix="/lab/petrov") as gateway:
        yield gateway


def status(url: str, host: str) -> int:
    return httpx2.get(f"{url}/health/live", headers={"Host": host}).status_code


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "a.localhost",
        "localhost.",
        "petrov:80",
        "127.0.0.1",
        "[::1]:8080",
        "10.1.2.3:8080",
    ],
)
def test_a_service_on_the_loopback_is_known_by_local_names_and_addresses(gateway: Gateway, host: str) -> None:
    """By addresses of any kind, as probes of Kubernetes use them: none of them can be made to mean another machine."""
    assert status(gateway.url, host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:8080", "", "[::x]"]
)
def test_a_page_whose_name_was_made_to_mean_this_machine_reads_nothing(gateway: Gateway, host: str) -> None:
    response = httpx2.get(f"{gateway.url}/v1/models", headers={"Host": host})
    assert (response.status_code, response.json()["type"]) == (421, "urn:petrov:problem:unknown-host")
    assert "PETROV_ALLOWED_HOSTS" in response.json()["detail"]


def test_a_request_without_a_host_is_no_page_s(gateway: Gateway) -> None:
    with socket.create_connection((gateway.settings.host, gateway.settings.port), timeout=60) as wire:
        wire.sendall(b"GET /health/live HTTP/1.0\r\n\r\n")
        assert wire.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_names_are_those_of_the_setting(public: Gateway) -> None:
    known = ["lab.example", "Lab.Example:443", "petrov.ns.cluster.local", "localhost", "127.0.0.1:80"]
    assert [status(public.url, host) for host in known] == [200] * len(known)
    other = ["evil.example", "x.lab.example", "cluster.local", "evilcluster.local"]
    assert [status(public.url, host) for host in other] == [421] * len(other)


@pytest.mark.parametrize(
    ("host", "names", "known"),
    [
        ("127.0.0.2", "", []),
        ("localhost", "", []),
        ("::1", "lab.example", ["lab.example"]),
        ("127.0.0.1", "*", None),
        ("0.0.0.0", "", None),  # noqa: S104 - nothing listens
        ("::", "lab.example,", ["lab.example"]),
        ("petrov.lab.example", "", None),
    ],
)
def test_a_service_for_others_is_known_by_any_name_until_a_setting_has_them(
    host: str, names: str, known: list[str] | None
) -> None:
    assert Settings(host=host, allowed_hosts=names).known_hosts == known


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("allowed_hosts", "https://lab.example"),
        ("allowed_hosts", "lab.example:80"),
        ("allowed_hosts", "lab.*"),
        ("allowed_origins", "lab.example"),
        ("allowed_origins", "https://lab.example/"),
        ("trusted_proxies", "proxy.lab.example"),
        ("trusted_proxies", "10.0.0.1/8"),
        ("path_prefix", "petrov"),
        ("path_prefix", "//evil.example"),
        ("path_prefix", "/a/../b"),
        ("path_prefix", "/a b"),
    ],
)
def test_an_address_that_is_none_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings.model_validate({name: value})


@pytest.mark.parametrize(
    "path", ["/health/live", "/health/ready", "/metrics", "/v1/models", "/v1/models/blur", "/docs"]
)
def test_head_responds_as_get_without_a_body(http: httpx2.Client, path: str) -> None:
    got, head = http.get(path), http.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"") == (200, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    assert int(head.headers["content-length"]) > 0
    assert http.get("/health/live").json() == {"status": "live"}  # the connection is where it should be


def test_head_is_refused_where_get_is(http: httpx2.Client) -> None:
    assert http.head("/nowhere").status_code == 404
    assert http.head("/v1/models/blur/predict").headers["allow"] == "POST"
    assert http.post("/v1/models").headers["allow"] == "GET, HEAD"


async def test_an_error_of_head_has_no_body_either() -> None:
    """The server leaves the body out by the method, which is another only on the way to a route."""
    seen: list[str] = []

    async def fail(scope: Any, _: Any, __: Any) -> None:
        seen.append(scope["method"])
        raise RuntimeError

    scope: dict[str, Any] = {"type": "http", "method": "HEAD"}
    with pytest.raises(RuntimeError):
        await WithHead(fail)(scope, nothing, nothing)
    assert (seen, scope["method"]) == (["GET"], "HEAD")


async def nothing(*_: Any) -> Any:
    """Neither receive nor send anything."""


def test_head_is_logged_as_head(http: httpx2.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "petrov.access")
    http.head("/health/live")
    wait_until(lambda: "HEAD /health/live 200" in caplog.text)


def test_the_documentation_may_load_nothing_but_its_own(http: httpx2.Client) -> None:
    policy = http.get("/docs").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    assert "script-src 'self' 'unsafe" not in policy


def test_all_addresses_are_those_of_both_families(public: Gateway) -> None:
    """And the one that is printed can be opened."""
    assert public.settings.url == f"http://127.0.0.1:{public.settings.port}"
    assert Settings(host="::1").url == "http://[::1]:8080"
    families = ["127.0.0.1"]
    if socket.has_ipv6:
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind(("::1", 0))
                families.append("[::1]")
            except OSError:
                pass  # a container without IPv6
    for host in families:
        assert httpx2.get(f"http://{host}:{public.settings.port}/health/live").status_code == 200
        with petrov_client.GrpcClient(f"{host}:{public.settings.grpc_port}") as client:
            assert client.model("blur").name == "blur"


PREDICT, NPY = "/v1/models/blur/predict", "application/x-npy"


def asking(origin: str, **more: str) -> dict[str, str]:
    return {"Origin": origin, "Access-Control-Request-Method": "POST", **more}


def test_pages_of_an_allowed_origin_may_call(public: Gateway) -> None:
    headers = asking(PAGE, **{"Access-Control-Request-Headers": "authorization,content-type"})
    asked = httpx2.options(public.url + PREDICT, headers=headers)
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "authorization" in asked.headers["access-control-allow-headers"]
    answered = httpx2.get(f"{public.url}/v1/models", headers={"Origin": PAGE})
    assert answered.headers["access-control-allow-origin"] == PAGE
    refused = httpx2.get(f"{public.url}/nowhere", headers={"Origin": PAGE})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (404, PAGE)


@pytest.mark.parametrize("origin", ["https://evil.example", "http://lab.example", "null"])
def test_pages_of_another_origin_may_not(public: Gateway, origin: str) -> None:
    asked = httpx2.options(public.url + PREDICT, headers=asking(origin))
    assert "access-control-allow-origin" not in asked.headers
    assert (
        "access-control-allow-origin" not in httpx2.get(f"{public.url}/v1/models", headers={"Origin": origin}).headers
    )


def test_no_page_may_call_by_default(http: httpx2.Client) -> None:
    asked = http.options(PREDICT, headers=asking(PAGE))
    assert asked.status_code == 405
    assert not [name for name in asked.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/umbridge/ModelInfo", {"name": "blur"}),
        ("/v2/models/blur/infer", {"inputs": []}),
        ("/tesseract/drift/abstract_eval", {"inputs": {}}),
    ],
    ids=["UM-Bridge", "/v2", "Tesseract"],
)
def test_a_page_of_another_origin_computes_nothing(public: Gateway, path: str, body: dict[str, Any]) -> None:
    """A browser sends text without asking the service first."""

    def status(**headers: str) -> int:
        headers = {name.replace("_", "-"): text for name, text in headers.items()}
        return httpx2.post(public.url + path, content=json.dumps(body), headers=headers).status_code

    text, own = "text/plain;charset=UTF-8", status(Content_Type="text/plain")
    assert own not in {403, 500}
    for origin in (public.url, PAGE):
        assert status(Content_Type=text, Origin=origin) == own
    for origin in ("http://elsewhere.example", "null", "http://["):
        assert status(Content_Type=text, Origin=origin) == status(Origin=origin) == 403
        assert status(Content_Type="application/json", Origin=origin) == own


def links(page: str) -> list[str]:
    found: list[str] = re.findall(r"""(?:src|href|url)(?:=|: )["']([^"']+)["']""", page)
    return found


#: How a proxy publishes the service: its path, whether it removes it from requests, and what it says of it.
PROXIES: dict[str, tuple[str, bool, dict[str, str]]] = {
    "removed, said by the proxy": ("/petrov", True, {"X-Forwarded-Prefix": "/petrov/"}),
    "removed, by the setting": ("/lab/petrov", True, {}),
    "kept, by the setting": ("/lab/petrov", False, {}),
}


@pytest.mark.parametrize("how", PROXIES)
def test_everything_is_found_under_the_path_of_a_proxy(
    public: Gateway, free_ports: Callable[[int], list[int]], how: str
) -> None:
    prefix, remove, forwarded = PROXIES[how]
    [port] = free_ports(1)
    says = {"X-Forwarded-Proto": "https", **forwarded}
    with (
        published(public.url, port, prefix, says, remove=remove) as url,
        httpx2.Client(headers={"Host": "lab.example"}) as http,
    ):
        page = http.get(f"{url}/docs")
        assert len(links(page.text)) == 4
        for link in links(page.text):
            assert link.startswith(f"{prefix}/")
            assert http.get(f"http://127.0.0.1:{port}{link}").status_code == 200
        assert http.get(f"{url}/openapi.json").json()["servers"] == [{"url": prefix}]
        assert http.get(f"{url}/").status_code == 200
        assert http.get(f"{url}/playground/style.css").status_code == 200
        for guess in ("/playground/", "/playground/index.html"):
            assert http.get(f"{url}{guess}").headers["location"] == f"{prefix}/"
        assert http.get(f"{url}/v1/models/").headers["location"] == f"https://lab.example{prefix}/v1/models"
        missing = http.get(f"{url}/v2/nowhere")
        assert (missing.status_code, [*missing.json()]) == (404, ["error"])
        with petrov_client.Client(url) as client:
            assert client.predict("blur", np.ones((9, 8))).shape == (9, 8)


@pytest.mark.parametrize("prefix", ["//evil.example", "/a/../b", "https://evil.example", "/x'y", "/" + "x" * 400])
def test_a_path_that_is_none_is_not_published(gateway: Gateway, prefix: str) -> None:
    page = httpx2.get(f"{gateway.url}/docs", headers={"X-Forwarded-Prefix": prefix}).text
    assert {link.split("/")[1] for link in links(page)} == {"static-offline-docs", "openapi.json"}


def test_only_a_trusted_proxy_is_believed(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "petrov.access")
    headers = {"X-Forwarded-Prefix": "/petrov", "X-Forwarded-For": "203.0.113.7"}
    first: list[str] = []
    for own in ("127.0.0.1", "127.0.0.2"):
        with httpx2.Client(transport=httpx2.HTTPTransport(local_address=own)) as http:
            first.append(links(http.get(f"{gateway.url}/docs", headers=headers).text)[0])
    assert first == ["/petrov/static-offline-docs/swagger-ui.css", "/static-offline-docs/swagger-ui.css"]

    def logged() -> list[str]:
        return [vars(record)["fields"]["client"] for record in caplog.records if "GET /docs " in record.getMessage()]

    wait_until(lambda: len(logged()) == 2)  # a request is logged behind its response
    assert logged() == ["203.0.113.7", "127.0.0.2"]


@pytest.mark.parametrize(
    ("peer", "trusted", "address"),
    [
        ("ipv4:127.0.0.1:4321", ["127.0.0.1"], "203.0.113.7"),
        ("ipv4:127.0.0.2:4321", ["127.0.0.1"], "127.0.0.2"),
        ("ipv6:%5B::1%5D:4321", ["::1"], "203.0.113.7"),
        ("ipv6:%5B::1%5D:4321", [], "::1"),
        ("ipv4:10.1.2.3:4321", ["10.0.0.0/8"], "203.0.113.7"),
        ("ipv4:10.1.2.3:4321", ["*"], "203.0.113.7"),
    ],
)
def test_a_proxy_tells_of_the_clients_of_grpc_if_it_is_trusted(peer: str, trusted: list[str], address: str) -> None:
    assert caller_address(peer, "203.0.113.7", trusted) == address
    assert caller_address(peer, "", trusted) in peer.replace("%5B", "")
