"""What environment variables say of connections: the proxies before a service, and the certificates that are trusted.

A client may be given the certificates instead, by `root_certificates`, as Triton's client over gRPC calls them, too. An
error that the variables may have caused, or that they can mend, says so.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address, ip_network
from pathlib import Path

import httpx2

_OVER_HTTP = ("http_proxy", "https_proxy", "all_proxy")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
#: Names of the files in a folder of certificates that OpenSSL reads.
_HASHED = re.compile(r"[0-9a-fA-F]{8}\.[0-9]+")
RootCertificates = str | os.PathLike[str]
#: For the greeting of a server that may speak TLS.
PROBE_SECONDS = 2.0
ENCRYPTS = "; the server encrypts there (TLS), so use https://, or gRPC with tls, which is grpcs:// in a command"
#: What h11 says of bytes that are no HTTP, and the port that they are likely from.
NO_HTTP = "illegal request line"
OTHER_PORT = "; that port speaks no HTTP: if it is the one for gRPC, use GrpcClient, or grpc:// in a command"
#: What OpenSSL and gRPC say of a server that is not the one that was meant, and what helps; the first that is found.
_REMEDIES = {
    "certificate is not valid for|Hostname Verification": "use a name that is in the certificate of the server",
    "has expired|not yet valid": "renew the certificate of the server, or set the clock of this machine",
    "CERTIFICATE_VERIFY_FAILED": "if you trust it, name a file with the certificate of its authority by "
    "root_certificates (--ca-certs in a command) or SSL_CERT_FILE",
    "WRONG_VERSION_NUMBER": "the server does not encrypt there, so use http://, or gRPC without tls",
}


@contextmanager
def usable(root_certificates: RootCertificates | None) -> Iterator[None]:
    """Make a client, which prepares the proxies of all variables, also those that other hosts are reached through.

    Raises:
        ValueError: One of them cannot be used, or the certificates cannot that a variable names.
    """
    try:
        yield
    except OSError as error:  # also those of `ssl`
        name = _first(os.environ, _CERTIFICATES) if root_certificates is None else "root_certificates"
        if name is None:
            raise
        shown = os.environ.get(name) if root_certificates is None else root_certificates
        reason = error.strerror or error
        raise ValueError(f"expected certificates in {shown} ({name}) but: {reason}") from error
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
    """Return whether a list has a host: its name or address, a domain of it, a network, or all."""
    for each in map(str.strip, listed.lower().split(",")):
        name = each.strip("[]").removeprefix("*").removeprefix(".")
        if each == "*" or (name and (host == name or host.endswith(f".{name}"))):
            return True
        if "/" in each:
            try:
                inside = ip_address(host) in ip_network(each, strict=False)
            except ValueError:  # the host has a name, or the entry is no network
                continue
            if inside:
                return True
    return False


def checked_roots(root_certificates: RootCertificates | None, *, encrypted: bool) -> None:
    """Check that certificates are passed only to a client that looks at them."""
    if root_certificates is not None and not encrypted:
        raise ValueError("root_certificates are for https:// without a transport, and for gRPC with tls")


def authorities(root_certificates: RootCertificates | None) -> bytes | None:
    """Return the certificates for gRPC, which are those for HTTP; None for its own, where the system has no file.

    Raises:
        ValueError: They cannot be used.
    """
    path, folders = root_certificates or os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not (path or folders or os.environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH")):  # which gRPC reads
        path = ssl.get_default_verify_paths().cafile
    if not (path or folders):
        return None
    with usable(root_certificates):
        if not path:
            return _in_folders((folders or "").split(os.pathsep))
        ssl.create_default_context(cafile=path)  # gRPC itself would say that nothing listens
        return Path(path).read_bytes()


def _in_folders(folders: Sequence[str]) -> bytes:
    """Return the certificates in folders, of which OpenSSL reads the files whose names are hashes."""
    entries = [each for folder in map(Path, folders) if folder.is_dir() for each in sorted(folder.iterdir())]
    found, context = list[bytes](), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for each in entries:
        if _HASHED.fullmatch(each.name):
            with suppress(OSError, UnicodeDecodeError):  # OpenSSL passes over what it cannot read, too
                text = each.read_bytes()
                context.load_verify_locations(cadata=text.decode("ascii"))
                found.append(text)
    if not found:
        raise OSError("no certificate is there in a file such as 1a2b3c4d.0; openssl rehash names files so")
    return b"\n".join(found)


def encrypts(host: str, port: int, seconds: float) -> bool:
    """Return whether a server speaks TLS: it is greeted without trust, and sent nothing but the name of its host."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), seconds) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in str(error.reason)  # a refusal, such as without a certificate of the client, is TLS, too
    except (OSError, ValueError):  # a ValueError: no name of a host
        return False


def remedy(fault: str) -> str:
    """Return words on what helps against a fault of encryption; empty for any other."""
    found = (words for pattern, words in _REMEDIES.items() if re.search(pattern, fault))
    return "".join(f"; {words}" for words in [next(found, "")] if words)
