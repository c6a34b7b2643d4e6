"""What `/openapi.json` promises, tried by Schemathesis: every operation of `/v1`, `/v2` and health, by all its checks.

`schema_bodies` draws what JSON Schema cannot describe, `schemathesis.toml` says what the document cannot. A failure is
printed with the `curl` that repeats it. A few examples for every operation are part of `make test`; many more:

    SCHEMA_EXAMPLES=500 .venv/bin/python -m pytest tests/serving/http/test_schema.py
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import fastapi.applications
import httpx2
import pytest

from serving.app import create_app
from serving.settings import Settings
from serving.triton import Triton
from tests.conftest import Gateway

pytestmark = pytest.mark.deep

EXAMPLES = os.environ.get("SCHEMA_EXAMPLES", "6")  # beyond what is tried of every operation in any case
SECONDS = "60"  # beyond them a request hangs, however busy the machine is
FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]


@pytest.mark.timeout(0 if "SCHEMA_EXAMPLES" in os.environ else 600)
def test_every_operation_keeps_its_promises(gateway: Gateway, tmp_path: Path) -> None:
    program = [Path(sys.executable).with_name("schemathesis"), "--config-file", FOLDER / "schemathesis.toml"]
    options = ["--checks", "all", "--max-examples", EXAMPLES, "--no-color"]
    patience = ["--request-timeout", SECONDS, "--max-response-time", SECONDS]
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "tests.serving.http.schema_bodies", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [*program, "run", f"{gateway.url}/openapi.json", *options, *patience],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_version_is_in_the_path_or_in_no_parameter(tmp_path: Path) -> None:
    paths = create_app(Settings(repository=tmp_path), Triton("127.0.0.1:8000", 1)).openapi()["paths"]
    operations = {
        path: paths[path]["post"] for path in paths if path.endswith(("/predict", "/rollout", "/vjp", "/infer"))
    }
    assert len(operations) == 8
    for path, operation in operations.items():
        found = [each["in"] for each in operation["parameters"] if each["name"] == "version"]
        assert found == (["path"] if "{version}" in path else [])


def test_every_operation_is_in_one_group(tmp_path: Path) -> None:
    document = create_app(Settings(repository=tmp_path), Triton("127.0.0.1:8000", 1)).openapi()
    groups = [tuple(operation["tags"]) for path in document["paths"].values() for operation in path.values()]
    assert {*groups} == {(each["name"],) for each in document["tags"]}


async def test_the_document_is_made_apart_from_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, describe = list[bool](), fastapi.applications.get_openapi

    def watched(**about: Any) -> dict[str, Any]:
        made.append(False)
        with suppress(RuntimeError):  # no loop runs in this thread
            asyncio.get_running_loop()
            made[-1] = True
        return describe(**about)

    monkeypatch.setattr(fastapi.applications, "get_openapi", watched)
    app = create_app(Settings(repository=tmp_path), Triton("127.0.0.1:8000", 1))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
        found = [(await client.get("/openapi.json")).json() for _ in range(2)]
    assert found[0] == found[1]
    assert "/v1/models" in found[0]["paths"]
    assert made == [False]
