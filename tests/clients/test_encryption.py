"""Clients of a service behind a proxy that ends TLS: certificates of the environment, errors that say what helps."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpcore2
import numpy as np
import pytest

from petrov_client import ConnectionFailed, PetrovError, _flow
from petrov_client.ray_data import Scorer
from tests.clients.conftest import AnyClient, Done, HttpService
from tests.conftest import Gateway

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
KEY = "a-key-that-is-not-shown"
AUTHORITY = (
    "if you trust it, name a file with the certificate of its authority by root_certificates "
    "(--ca-certs in a command) or SSL_CERT_FILE"
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the certificates of two servers called `localhost`, and the key of the first."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("server", "other"):
        files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
        about = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        subprocess.run([*command, *files, *about], check=True, capture_output=True)
    (folder / "damaged.pem").write_text("no certificate")
    return folder


@pytest.fixture(scope="module")
def encrypted(gateway: Gateway, certificates: Path) -> Iterator[dict[bool, int]]:
    """Run a proxy that ends TLS; yield its ports, by whether they are for HTTP."""
    loop = asyncio.new_event_loop()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def listen(port: int, protocol: str) -> asyncio.Server:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            back, forth = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pass_on(reader, forth), pass_on(back, writer))

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        context.set_alpn_protocols([protocol])
        return await asyncio.start_server(serve, "127.0.0.1", ssl=context)

    async def end() -> None:
        for server in servers.values():
            server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    ports = {True: (gateway.settings.port, "http/1.1"), False: (gateway.settings.grpc_port, "h2")}
    servers = {each: asyncio.run_coroutine_threadsafe(listen(*of), loop).result() for each, of in ports.items()}
    yield {each: server.sockets[0].getsockname()[1] for each, server in servers.items()}
    asyncio.run_coroutine_threadsafe(end(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
        monkeypatch.delenv(name, raising=False)
    read: Any = httpcore2.default_ssl_context  # which the suite calls once
    monkeypatch.setattr(httpcore2, "default_ssl_context", read.__wrapped__)
    monkeypatch.setattr(_flow, "ATTEMPTS", 1)  # others would end as the first does


def models(any_client: AnyClient, address: str, **arguments: Any) -> list[str]:
    """Return the names of the models by a client that encrypts."""
    target, options = (f"https://{address}", {}) if any_client.http else (address, {"tls": True})
    return [info.name for info in any_client.call(target, "models", options={"api_key": KEY, **options, **arguments})]


def fault(any_client: AnyClient, host: str, ports: dict[bool, int]) -> str:
    with pytest.raises(ConnectionFailed) as failure:
        models(any_client, f"{host}:{ports[any_client.http]}")
    assert KEY not in str(failure.value)
    return str(failure.value)


def test_the_certificates_of_a_file_are_trusted(
    any_client: AnyClient, encrypted: dict[bool, int], certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "server.pem"))
    assert "blur" in models(any_client, f"localhost:{encrypted[any_client.http]}")


def test_the_certificates_of_a_folder_are_trusted(
    any_client: AnyClient,
    encrypted: dict[bool, int],
    certificates: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = f"localhost:{encrypted[any_client.http]}"
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    for name in ("other.pem", "damaged.pem", "server.pem"):
        shutil.copy(certificates / name, tmp_path)
    if not any_client.http:
        with pytest.raises(ValueError, match=rf"in {tmp_path} \(SSL_CERT_DIR\) but: no certificate .* 1a2b3c4d\.0"):
            models(any_client, address)
    subprocess.run(["openssl", "rehash", str(tmp_path)], check=True, capture_output=True)
    (tmp_path / "00000000.0").write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_DIR", f"{tmp_path / 'missing'}:{tmp_path}")
    assert "blur" in models(any_client, address)
    (tmp_path / "server.pem").unlink()
    with pytest.raises(ConnectionFailed, match="certificate"):
        models(any_client, address)


def test_the_certificates_of_the_argument_are_trusted_instead_of_those_of_the_environment(
    any_client: AnyClient, encrypted: dict[bool, int], certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"localhost:{encrypted[any_client.http]}"
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "other.pem"))
    assert "blur" in models(any_client, address, root_certificates=certificates / "server.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "server.pem"))
    with pytest.raises(ConnectionFailed, match="certificate"):
        models(any_client, address, root_certificates=certificates / "other.pem")
    with pytest.raises(ValueError, match=r"in .*damaged\.pem \(root_certificates\) but"):
        models(any_client, address, root_certificates=certificates / "damaged.pem")
    plain = f"http://{address}" if any_client.http else address
    with pytest.raises(ValueError, match="root_certificates are for https://"):
        any_client.call(plain, "models", options={"root_certificates": certificates / "server.pem"})


def test_a_worker_of_ray_trusts_the_certificates_that_it_is_given(
    encrypted: dict[bool, int], certificates: Path, blur: Callable[..., Any]
) -> None:
    fields, urls = np.full((3, 9, 9), 5, np.float32), [f"https://localhost:{encrypted[True]}"]
    roots = certificates / "server.pem"
    with closing(Scorer("blur", urls, 1, "data", "solution", KEY, root_certificates=roots)) as scorer:
        np.testing.assert_allclose(scorer({"data": fields})["solution"], blur(fields), rtol=1e-5)


def test_another_authority_is_named_as_the_reason(
    any_client: AnyClient, encrypted: dict[bool, int], certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fault(any_client, "localhost", encrypted).endswith(AUTHORITY)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "other.pem"))
    assert fault(any_client, "localhost", encrypted).endswith(AUTHORITY)


def test_another_name_is_named_as_the_reason(
    any_client: AnyClient, encrypted: dict[bool, int], certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "server.pem"))
    assert fault(any_client, "127.0.0.1", encrypted).endswith("use a name that is in the certificate of the server")


def test_a_server_that_does_not_encrypt_is_named_as_the_reason(any_client: AnyClient, gateway: Gateway) -> None:
    plain = {True: gateway.settings.port, False: gateway.settings.grpc_port}
    assert "the server does not encrypt there" in fault(any_client, "127.0.0.1", plain)


def test_the_port_for_grpc_is_named_as_the_reason(http_client: AnyClient, gateway: Gateway) -> None:
    with pytest.raises(ConnectionFailed, match="that port speaks no HTTP: if it is the one for gRPC, use GrpcClient"):
        http_client.call(f"127.0.0.1:{gateway.settings.grpc_port}", "predict", "blur", np.ones((9, 9)), timeout=20)


def test_a_server_that_encrypts_is_named_as_the_reason(any_client: AnyClient, encrypted: dict[bool, int]) -> None:
    port = encrypted[any_client.http]
    with pytest.raises(ConnectionFailed, match=r"the server encrypts there \(TLS\), so use https://.* grpcs://"):
        any_client.call(f"http://127.0.0.1:{port}" if any_client.http else f"127.0.0.1:{port}", "models")


@pytest.mark.parametrize(
    ("page", "encrypts"),
    [
        (b"<center>The plain HTTP request was sent to HTTPS port</center>", True),
        (b"Client sent an HTTP request to an HTTPS server.\n", True),
        (b"Reason: You're speaking plain HTTP to an SSL-enabled server port.<br />", True),
        (b"<h1>Bad request</h1>", False),
    ],
)
def test_a_server_that_says_that_it_encrypts_is_named_as_the_reason(
    http_client: AnyClient, http_service: HttpService, page: bytes, encrypts: bool
) -> None:
    http_service.replies = {"/v1/models": [(400, {"Content-Type": "text/html"}, page)]}
    with pytest.raises(PetrovError) as failure:
        http_client.call(http_service.address, "models")
    assert ("the server encrypts there (TLS), so use https://" in str(failure.value)) == encrypts


@pytest.mark.parametrize("answer", [b"", b"220 mail ready\r\n", b"\x15\x03\x01"])
def test_a_server_that_breaks_off_without_encryption_is_not_said_to_encrypt(
    any_client: AnyClient, answer: bytes
) -> None:
    received = list[bytes]()

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(0.2)
                with suppress(OSError):
                    received.append(connection.recv(65536))
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(PetrovError) as failure:
            any_client.call(f"http://{address}" if any_client.http else address, "models", options={"api_key": KEY})
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert "TLS" not in str(failure.value)
    greetings = [each for each in received if each[:1] == b"\x16"]  # the records of TLS that begin a connection
    assert greetings
    assert not any(KEY.encode() in each for each in greetings)


@pytest.mark.parametrize(("name", "reason"), [("damaged.pem", "certificate"), ("missing.pem", "No such file")])
def test_certificates_that_cannot_be_used_are_named(
    any_client: AnyClient, certificates: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / name))
    expected = f"expected certificates in {certificates / name} (SSL_CERT_FILE) but: "
    with pytest.raises(ValueError, match=f"{re.escape(expected)}.*{reason}"):
        models(any_client, "localhost:1")


def test_the_command_encrypts(petrov: Callable[..., Done], encrypted: dict[bool, int], certificates: Path) -> None:
    trusted = {"SSL_CERT_FILE": str(certificates / "server.pem"), "PETROV_API_KEY": KEY}
    for url in (f"https://localhost:{encrypted[True]}", f"grpcs://localhost:{encrypted[False]}"):
        done = petrov("models", "--url", url, **trusted)
        assert (done.returncode, "blur" in done.stdout) == (0, True)
        done = petrov("models", "--url", url, "--ca-certs", certificates / "server.pem")
        assert (done.returncode, "blur" in done.stdout) == (0, True)
        done = petrov("models", "--url", url.replace("localhost", "127.0.0.1"), **trusted)
        assert (done.returncode, KEY in done.stderr) == (5, False)
        assert "certificate" in done.stderr
