"""The public names, the exception tree, the optional dependencies, and the secrecy of keys."""

from __future__ import annotations

import asyncio
import math
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import petrov_client
from petrov_client import AsyncClient, AsyncGrpcClient, Client, ConnectionFailed, GrpcClient, PetrovError, Where
from petrov_client import _errors as exceptions

TREE = {
    "PetrovError": ["RequestError", "ServiceError", "TransportError"],
    "RequestError": ["InvalidInput", "UnknownModel", "TooLarge", "Unauthorised", "RateLimited"],
    "ServiceError": ["Unavailable", "DeadlineExceeded", "ServerFault"],
    "TransportError": ["ConnectionFailed", "InvalidResponse"],
}
EXCEPTIONS = {"PetrovError", *(leaf for leaves in TREE.values() for leaf in leaves)}
CLIENTS = {"Client", "AsyncClient", "GrpcClient", "AsyncGrpcClient"}
VALUES = {"ModelInfo", "ParameterInfo", "TensorInfo", "GridInfo", "Vocabulary", "Choice", "Where", "Example", "Quality"}
VALUES |= {"Inversion"}
BULK = {"score", "Scored"}
WARNINGS = {"IncompleteRolloutWarning", "OutsideTrainingWarning"}


def test_the_package_exports_exactly_these_names() -> None:
    assert set(petrov_client.__all__) == EXCEPTIONS | CLIENTS | VALUES | BULK | WARNINGS
    assert all(hasattr(petrov_client, name) for name in petrov_client.__all__)


def test_every_module_but_the_command_and_an_engines_is_private() -> None:
    folder = Path(petrov_client.__file__).parent
    assert {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")} == {"jax", "ray_data", "torch"}
    assert all(path.parent.name.startswith("_") for path in folder.glob("*/__init__.py"))
    assert (folder / "py.typed").exists()


def test_the_exceptions_form_the_tree_that_the_docstring_draws() -> None:
    for parent, children in TREE.items():
        below = {child.__name__ for child in getattr(exceptions, parent).__subclasses__()}
        assert below == set(children)
    drawn = re.findall(r"[─ ] (\w+) {2,}\w|^ {4}(PetrovError)$", exceptions.__doc__ or "", re.MULTILINE)
    assert {name for pair in drawn for name in pair if name} == EXCEPTIONS


@pytest.mark.parametrize("name", sorted(EXCEPTIONS))
def test_an_exception_survives_a_process_boundary(name: str) -> None:
    fault = getattr(petrov_client, name)("no", retry_after=2.0, where=Where("a", (1, 2)), problem={"type": "x"})
    copy = pickle.loads(pickle.dumps(fault))  # noqa: S301  our own bytes of a moment ago
    assert (str(copy), copy.retry_after, copy.where, copy.problem) == ("no", 2.0, Where("a", (1, 2)), {"type": "x"})
    assert isinstance(copy, PetrovError)


def test_a_key_is_never_shown() -> None:
    with (
        Client("http://user:hidden@localhost:1") as other,
        Client("http://localhost:1", api_key="secret") as http,
        GrpcClient("localhost:1", "secret") as grpc,
    ):
        shown = repr(http) + repr(grpc) + repr(other)
    assert shown.count("api_key='***'") == 2
    assert "secret" not in shown
    assert "hidden" not in shown


async def test_an_asynchronous_client_hides_its_key_too() -> None:
    async with AsyncClient(api_key="secret") as http, AsyncGrpcClient(api_key="secret") as grpc:
        assert "secret" not in repr(http) + repr(grpc)
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", [Client, GrpcClient, AsyncClient, AsyncGrpcClient])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(kind: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="expected an API key") as caught:
        kind(api_key="secret\n")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8080",
        "ftp://localhost",
        "http://",
        "",
        "http://[::1",
        "http://h:1/?a=1",
        "http://h#a",
        "http://user:hid@den@h:one/",
    ],
)
def test_an_address_that_is_not_http_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="expected an address such as") as caught:
        Client(url)
    assert "hid" not in str(caught.value)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_user_in_the_address_takes_no_key_s_place(kind: Callable[..., object]) -> None:
    """The header that carries the key has room for one of them, and httpx takes the user."""
    with pytest.raises(ValueError, match=r"a key or the user of http://\*\*\*@localhost:1 but got both") as caught:
        kind("http://user:hidden@localhost:1", "secret")
    assert not {"hidden", "secret"} & {*str(caught.value).split()}


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:8001", "localhost", ":8001", "localhost:port", "localhost:70000", "::1:8001"]
)
def test_an_address_that_is_not_host_and_port_is_refused_at_once(address: str) -> None:
    with pytest.raises(ValueError, match="expected an address such as"):
        GrpcClient(address)


def test_a_time_limit_may_be_infinite(http_service: Any, closed_port: str) -> None:
    """A socket would raise an OverflowError, and over gRPC the limit would have passed at once."""
    http_service.replies = {"/v1/models": [(200, {"Content-Type": "application/json"}, b'{"models": []}')]}
    assert Client(f"http://{http_service.address}", timeout=math.inf).models() == []
    with pytest.raises(ConnectionFailed, match=closed_port):
        GrpcClient(closed_port, timeout=math.inf).models()


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "5", True])
def test_a_time_limit_is_positive(timeout: float) -> None:
    with pytest.raises(ValueError, match="expected a timeout"):
        Client(timeout=timeout)


def run(code: str) -> str:
    """Return what a new interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_users_of_http_import_no_optional_dependency() -> None:
    optional = "{'typer', 'rich', 'h5py', 'torch', 'grpc', 'tritonclient'}"
    code = f"import sys, petrov_client; petrov_client.Client().close(); print({optional} & set(sys.modules))"
    assert run(code) == "set()"


def test_a_grpc_client_without_its_extra_says_what_to_install() -> None:
    code = """
import sys
sys.modules["tritonclient"] = None  # as if it were not installed
try:
    from petrov_client import GrpcClient
except ModuleNotFoundError as error:
    print(error)
"""
    assert run(code).startswith("GrpcClient needs tritonclient")
    assert 'pip install "tritonclient[grpc]"' in run(code)


def test_no_message_installs_the_client_by_a_name_that_is_not_ours_at_a_registry() -> None:
    folder = Path(petrov_client.__file__).parent
    assert [path.name for path in folder.rglob("*.py") if re.search(r"pip install \W*petrov", path.read_text())] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'TritonClient'"):
        _ = petrov_client.TritonClient


async def test_the_grpc_clients_default_to_the_gateway_which_checks_keys() -> None:
    with GrpcClient() as client:
        assert repr(client) == "GrpcClient('127.0.0.1:8081')"
    async with AsyncGrpcClient() as client:
        assert repr(client) == "AsyncGrpcClient('127.0.0.1:8081')"
