"""What `make serve` checks before it downloads anything."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import requirements
from serving import system

SCRIPT = Path(__file__).parents[2] / "deploy" / "requirements.py"
PORTS = ("PORT", "GRPC_PORT", "TRITON_HTTP_PORT", "TRITON_GRPC_PORT", "TRITON_METRICS_PORT")


def check(**settings: str) -> subprocess.CompletedProcess[str]:
    """Run the script with the system's bare interpreter, and without any package."""
    command = ["python3", "-I", "-S", str(SCRIPT)]
    return subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)


def settings(ports: list[int]) -> dict[str, str]:
    return {f"PETROV_{name}": str(port) for name, port in zip(PORTS, ports, strict=True)}


def test_nothing_is_said_of_a_machine_that_has_everything(free_ports: Callable[[int], list[int]]) -> None:
    done = check(**settings(free_ports(5)))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_port_in_use_is_named_with_its_setting(free_ports: Callable[[int], list[int]]) -> None:
    ports = free_ports(5)
    with socket.create_server(("127.0.0.1", ports[0])), socket.create_server(("127.0.0.1", ports[3])):
        done = check(**settings(ports))
        elsewhere = check(**settings(ports), PETROV_TRITON=f"127.0.0.1:{ports[3]}")  # whose port is in use, of course
    assert elsewhere.stderr == f"port {ports[0]} is in use: set PETROV_PORT to a free one\n"
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"port {ports[0]} is in use: set PETROV_PORT to a free one",
        f"port {ports[3]} is in use: set PETROV_TRITON_GRPC_PORT to a free one",
    ]


def test_the_shared_library_of_python_is_asked_for_until_triton_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's interpreter runs without it, and Triton's stub does not: it was named after all downloads."""
    monkeypatch.setattr(requirements, "PORTS", {})
    monkeypatch.setattr(requirements, "INSTALLED", tmp_path / "complete")
    assert list(requirements.missing()) == []
    fault = system.libpython_fault
    monkeypatch.setattr(system, "libpython_fault", lambda version: fault(f"{version}.99"))
    [sentence] = requirements.missing()
    assert "so.1.0 is missing: apt-get install libpython3." in sentence
    (tmp_path / "complete").touch()
    assert list(requirements.missing()) == []


def test_an_environment_whose_making_was_interrupted_is_completed(tmp_path: Path) -> None:
    """Ctrl-C may leave an interpreter without pip, and every later `make` ended with "No module named pip"."""
    programs = {
        ".venv/bin/python": 'test -e pip && echo "$*" >> ran\n',
        "python": 'test "$1" = -c || { echo "$*" >> ran; touch pip; }\n',
    }
    for name, text in programs.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / name).chmod(0o755)
    for name in ("pyproject.toml", "constraints.txt", "clients/python/pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    command = ["make", "-f", str(SCRIPT.parents[1] / "Makefile"), "PYTHON=./python", ".venv/.serve"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made, *installed = (tmp_path / "ran").read_text().splitlines()
    assert made == "-m venv .venv"
    assert len(installed) == 2
    assert all(line.startswith("-m pip install ") for line in installed)
