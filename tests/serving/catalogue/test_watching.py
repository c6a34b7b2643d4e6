"""What the catalogue does when Triton's replies are wrong or late: a fault concerns one version."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from serving import service as service_module
from serving import triton as triton_module
from serving.catalogue import catalogue as catalogue_module
from serving.catalogue.repository import Repository
from serving.local_triton.server import TritonServer
from serving.service import Service, Watcher
from serving.triton import Triton
from tests.serving.catalogue.fake_triton import (
    CONFIGURATION,
    INDEX,
    OUTPUT,
    FakeTriton,
    change,
    change_grid,
    look_until,
    looking,
    reply,
    served,
)
from tests.serving.http.test_gateway import sample


async def test_a_model_that_is_loaded_again_is_asked_for_its_instances_again() -> None:
    fake = FakeTriton()
    async with await asyncio.start_server(fake.serve, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        async with Triton(f"{host}:{port}", 2**20) as triton:
            assert await triton.instances("good", 1) == 1
            more = json.dumps(json.loads(CONFIGURATION) | {"instance_group": [{"count": 4}]})
            fake.respond = lambda _: reply(more, tensors=False)  # type: ignore[method-assign]
            await triton.load("good")
            assert await triton.instances("good", 1) == 4


async def test_a_config_that_only_triton_can_read_concerns_its_model(repository: Path) -> None:
    config = repository / "bad" / "config.pbtxt"
    config.write_text(f"{config.read_text()}\nof_a_newer_triton: true\n")
    refused = reply('{"error": "load failed for bad: version 1 is at UNAVAILABLE state: no file"}', tensors=False)
    refused = refused.replace(b"200 OK", b"400 Bad Request")
    async with looking(repository) as (catalogue, fake):
        fake.index = reply(json.dumps([{"name": "good", "version": "1", "state": "READY"}]), tensors=False)
        answer = fake.respond
        fake.respond = lambda path: refused if path.endswith("/load") else answer(path)  # type: ignore[method-assign]
        await look_until(catalogue, lambda: catalogue.knows("good") and served(catalogue) == ["good"])
        await look_until(catalogue, lambda: "cannot be loaded by Triton" in (catalogue.readiness().reason or ""))


async def test_a_load_that_hangs_has_a_reason(
    repository: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(triton_module, "_LOAD_SECONDS", 0.1)
    async with looking(repository) as (catalogue, fake):
        fake.hangs = True
        fake.index = reply(INDEX.replace("READY", "UNAVAILABLE").replace("UNAVAILABLE", "READY", 1), tensors=False)
        await look_until(catalogue, lambda: "bad version 1 is not loaded by Triton in time" in caplog.text)
        assert "bad (version 1 is not loaded by Triton in time" in str(catalogue.readiness().reason)
        assert "did not respond in time" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [reply(""), reply("no JSON"), reply("[]"), reply('{"outputs": [{"name": "u"}]}')],
    ids=["empty", "no JSON", "a list", "no shape"],
)
async def test_a_wrong_reply_to_a_warming_call_concerns_one_version_until_it_is_right(
    repository: Path, wrong: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with looking(repository) as (catalogue, fake):
        fake.wrong = wrong
        await look_until(catalogue, lambda: "bad version 1 cannot be warmed" in caplog.text)
        await catalogue.look()
        readiness = catalogue.readiness()
        assert served(catalogue) == ["good"]
        assert (readiness.ready, readiness.missing) == (False, ("bad",))
        assert 'bad (version 1 cannot be warmed: the inference server\'s reply for "bad" version 1' in str(
            readiness.reason
        )
        assert caplog.text.count("bad version 1 cannot be warmed") == 1
        fake.wrong = reply(OUTPUT)
        await look_until(catalogue, lambda: served(catalogue) == ["bad", "good"])
        assert catalogue.readiness().ready


@pytest.mark.parametrize(
    "wrong",
    [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"],
    ids=["closed", "ssh", "half"],
)
async def test_a_reply_that_is_not_http_loses_the_server_until_it_is_right(repository: Path, wrong: bytes) -> None:
    async with looking(repository) as (catalogue, fake):
        fake.wrong = wrong
        await catalogue.look()
        assert catalogue.readiness().reason == "the inference server does not respond"
        fake.wrong = reply(OUTPUT)
        await catalogue.look()
        assert catalogue.readiness().ready


async def test_a_model_that_fails_is_ready_only_if_it_can_be_warmed(repository: Path) -> None:
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        await look_until(catalogue, lambda: catalogue.readiness().ready)
        fake.wrong = reply('{"error": "no"}', tensors=False, status="500 Internal Server Error")
        catalogue.doubt(catalogue.find("good"))
        catalogue.doubt(catalogue.find("bad"))
        await look_until(catalogue, lambda: served(catalogue) == ["good"])
        assert catalogue.readiness().missing == ("bad",)
        fake.wrong = reply(OUTPUT)
        await look_until(catalogue, lambda: catalogue.readiness().ready)


async def test_what_is_new_to_a_gateway_that_has_been_ready_does_not_make_it_unready(repository: Path) -> None:
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        await look_until(catalogue, lambda: catalogue.readiness().ready)
        (repository / "bad").rename(repository / "renamed")  # its card has the name before
        await catalogue.look()
        readiness = catalogue.readiness()
        assert (readiness.ready, readiness.missing) == (True, ("renamed",))
        assert readiness.reason == "not served: renamed"
        (repository / "renamed").rename(repository / "bad")
        await look_until(catalogue, lambda: served(catalogue) == ["bad", "good"])
        fake.index = reply(INDEX.replace('"bad"', '"other"'), tensors=False)  # Triton has it no longer
        await catalogue.look()
        readiness = catalogue.readiness()
        assert (readiness.ready, readiness.missing) == (False, ("bad",))


async def test_a_triton_without_shared_memory_is_restarted_once_it_may_be(repository: Path) -> None:
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        await look_until(catalogue, lambda: catalogue.readiness().ready)
        card = catalogue.find("bad")
        text = '{"error": "Failed to increase the shared memory pool size for key \'x\' to 1 bytes."}'
        fake.wrong = reply(text, tensors=False, status="500 Internal Server Error")
        outcomes = [True, False, False]
        catalogue.restart = outcomes.pop  # at the third attempt, and never again
        catalogue.exhaust(card)
        await look_until(catalogue, lambda: not outcomes)
        await catalogue.look()
        assert "bad (version 1 cannot be warmed: the shared memory" in str(catalogue.readiness().reason)


async def test_a_version_with_too_large_an_output_costs_itself_only(repository: Path) -> None:
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(" " * 2**24)
        await look_until(catalogue, lambda: "the limit is" in str(catalogue.readiness().reason))
        await catalogue.look()
        assert served(catalogue) == ["good"]
        assert catalogue.readiness().missing == ("bad",)


async def test_a_version_that_cannot_be_warmed_for_an_unexpected_reason_is_logged_with_its_traceback(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change_grid(repository, declared=[10**7], maximum=10**7)  # 400 TB
    async with looking(repository, warm_bytes=2**60) as (catalogue, _):
        await catalogue.look()
        assert served(catalogue) == ["good"]
        assert catalogue.readiness().reason == "not loaded and warm: bad (version 1 cannot be warmed: MemoryError)"
        assert "Traceback" in caplog.text


async def test_a_grid_that_no_request_may_have_is_not_warmed(repository: Path) -> None:
    change_grid(repository, declared=[16, 20_000], maximum=20_000)
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        await catalogue.look()
        assert served(catalogue) == ["bad", "good"]


async def test_a_warning_of_triton_s_error_is_logged_once_and_again_when_it_changes(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with looking(repository) as (catalogue, fake):
        for message in ("no memory", "no node"):
            fake.wrong = reply(json.dumps({"error": message}), status="500 Internal Server Error")
            await look_until(catalogue, lambda message=message: message in caplog.text)  # type: ignore[misc]
            for _ in range(2):
                await catalogue.look()
        assert catalogue.readiness().missing == ("bad",)
    assert [record.levelname for record in caplog.records if "bad" in record.message] == ["WARNING"] * 2
    assert caplog.text.count("no memory") == caplog.text.count("no node") == 1


async def test_a_version_that_hangs_delays_no_other_model(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue_module, "_SLOW_SECONDS", 0.1)
    async with looking(repository) as (catalogue, fake):
        fake.hangs = True
        await catalogue.look()
        assert served(catalogue) == ["good"]
        change_grid(repository, declared=[16])
        shutil.copytree(repository / "good", repository / "third")
        change(repository, "third", model="third")
        fake.index = reply(
            json.dumps([{"name": name, "version": "1", "state": "READY"} for name in ("good", "bad", "third")]),
            tensors=False,
        )
        await catalogue.look()
        assert served(catalogue) == ["good", "third"]


async def test_an_error_of_triton_s_index_loses_the_server_until_it_is_right(repository: Path) -> None:
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        right, fake.index = fake.index, reply('{"error": "too many files"}', tensors=False, status="400 Bad Request")
        await catalogue.look()
        assert catalogue.readiness().reason == "the inference server does not respond"
        fake.index = right
        await catalogue.look()
        assert catalogue.readiness().ready


async def test_a_triton_that_refuses_its_index_without_a_key_is_lost_with_its_reason_in_the_log(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with looking(repository) as (catalogue, fake):
        error = "This API is restricted, expecting header 'petrov-key'"
        fake.index = reply(json.dumps({"error": error}), tensors=False, status="403 Forbidden")
        for _ in range(2):
            await catalogue.look()
        assert catalogue.readiness().reason == "the inference server does not respond"
    assert caplog.text.count(f"Triton's index of models: 403: {error}") == 1


@pytest.mark.parametrize("late", ["index", "stats"])
async def test_a_busy_triton_loses_nothing_and_one_that_stays_silent_is_lost(
    repository: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """Where the index fails, the statistics are asked for in its place; they may be as late."""
    monkeypatch.setattr(triton_module, "_PROBE_SECONDS", 0.1)
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        await look_until(catalogue, lambda: catalogue.readiness().ready)
        right, error = fake.index, reply('{"error": "a link"}', tensors=False, status="500 Internal Server Error")
        for silent in (2, 2, 3):  # looks in a row
            fake.late, fake.index = late, error if late == "stats" else right
            for _ in range(silent):
                assert catalogue.readiness().ready
                await catalogue.look()
            fake.late, fake.index = "", right
            assert catalogue.readiness().ready == (silent < 3)
            await catalogue.look()
            await look_until(catalogue, lambda: catalogue.readiness().ready)


async def test_a_watcher_that_fails_is_logged_and_restarted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service_module, "FIRST_PAUSE", 0.0)
    restarts = Counter("restarts", "Restarts.", ("watcher",), registry=CollectorRegistry())
    done, failures = asyncio.Event(), iter([KeyError("first"), ValueError("second")])

    async def step() -> float:
        for error in failures:
            raise error
        done.set()
        return 60.0

    watching = Watcher("repository", step, restarts)
    running = asyncio.create_task(watching.run())
    await asyncio.wait_for(done.wait(), 10)
    await asyncio.sleep(0)
    assert watching.failure is None
    assert restarts.labels("repository")._value.get() == 2
    assert caplog.text.count("the watcher of the repository failed") == 2
    assert "ValueError: second" in caplog.text
    running.cancel()


async def test_a_failing_watcher_is_a_reason_of_readiness_and_a_metric(
    triton: TritonServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, settings = Repository.read, triton.settings

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(service_module, "FIRST_PAUSE", 0.05)
    service = Service(settings, Triton(settings.triton_address, 2**20), "test")
    monkeypatch.setattr(Repository, "read", fail)
    async with service.run():
        await until(lambda: "watcher" in str(service.readiness().reason))
        assert not service.readiness().ready
        assert str(service.readiness().reason).endswith("the watcher of the repository fails (ZeroDivisionError)")
        assert sample(service.metrics.text().decode(), "petrov_watcher_restarts_total", watcher="repository") >= 1
        monkeypatch.setattr(Repository, "read", read)
        await until(lambda: service.readiness().reason is None)  # which a look clears at its end
        assert service.readiness().ready


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the service has no event for it
            await asyncio.sleep(0.02)
