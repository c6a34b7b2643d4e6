"""What the catalogue does when Triton's replies or the repository's cards are wrong: a fault concerns one version."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from serving import service as service_module
from serving import triton as triton_module
from serving.catalogue import catalogue as catalogue_module
from serving.catalogue.catalogue import Catalogue
from serving.catalogue.repository import MAX_BYTES, Repository
from serving.local_triton.server import TritonServer
from serving.observe import Metrics
from serving.service import Service, Watcher
from serving.settings import Settings
from serving.triton import Triton
from tests.serving.http.test_gateway import sample

INDEX = json.dumps([{"name": name, "version": "1", "state": "READY"} for name in ("good", "bad")])
CONFIGURATION = json.dumps({"input": [{"name": "coefficient"}]})
OUTPUT = json.dumps({"outputs": []})


class FakeTriton:
    """A socket server that lists two loaded models.

    Attributes:
        wrong: The reply to an inference of `bad`, as it goes over the wire.
        index: The reply to a request for the loaded models.
        hangs: Whether an inference of `bad` never gets its reply.
        late: The end of the path of a request for the loaded models that never gets its reply.
    """

    def __init__(self) -> None:
        self.wrong = reply("")
        self.index = reply(INDEX, tensors=False)
        self.hangs, self.late = False, ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path, _, fields = head.split(" ", 1)[1].partition(" ")
                length = [line for line in fields.lower().splitlines() if line.startswith("content-length")]
                await reader.readexactly(int(length[0].split()[1]) if length else 0)
                if (self.hangs and "/bad/" in path) or (self.late and path.endswith(self.late)):
                    await reader.read()
                writer.write(response := self.respond(path))
                await writer.drain()
                if not response.startswith(b"HTTP") or response.endswith(b"half"):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def respond(self, path: str) -> bytes:
        if path.endswith("index"):
            return self.index
        if path.endswith("infer"):
            return self.wrong if "/bad/" in path else reply(OUTPUT)
        return reply(CONFIGURATION, tensors=False)


def reply(text: str, *, tensors: bool = True, status: str = "200 OK") -> bytes:
    """Return a reply in HTTP; with tensors, it says where its JSON ends."""
    split = f"Inference-Header-Content-Length: {len(text)}\r\n" if tensors else ""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n{split}\r\n{text}".encode()


@pytest.fixture
def repository(toy_repository: Path, tmp_path: Path) -> Path:
    """Cards of `good` and `bad`."""
    for name in ("good", "bad"):
        shutil.copytree(toy_repository / "blur", tmp_path / name)
        change(tmp_path, name, model=name)
    return tmp_path


def change(repository: Path, name: str, **changes: object) -> None:
    card = repository / name / "1" / "card.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | changes))


def change_grid(repository: Path, **changes: object) -> None:
    """Change the grid in the card of `bad`."""
    grid = json.loads((repository / "bad" / "1" / "card.json").read_text())["grid"]
    change(repository, "bad", grid=grid | changes)


@asynccontextmanager
async def looking(repository: Path, warm_bytes: int = 2**26) -> AsyncIterator[tuple[Catalogue, FakeTriton]]:
    """Yield a catalogue in front of a fake Triton."""
    fake = FakeTriton()
    async with await asyncio.start_server(fake.serve, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        inference = Triton(f"{host}:{port}", 2**20)
        metrics = Metrics("test")
        async with inference:
            settings = Settings(repository=repository, request_seconds=5.0, companion_idle_seconds=60.0)
            settings = settings.model_copy(update={"max_body_bytes": warm_bytes})
            catalogue = Catalogue(settings, inference, metrics.catalogue)
            yield catalogue, fake
            await catalogue.close()


async def look_until(catalogue: Catalogue, condition: Callable[[], bool]) -> None:
    """Look again and again: a version whose warming has failed slowly is not tried at every look."""
    async with asyncio.timeout(60):
        while not condition():
            await catalogue.look()
            await asyncio.sleep(0.02)


def served(catalogue: Catalogue) -> list[str]:
    return [model.name for model in catalogue.models()]


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


async def test_a_repository_that_is_away_for_a_moment_loses_nothing(repository: Path) -> None:
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        await look_until(catalogue, lambda: catalogue.readiness().ready)
        away = shutil.move(repository, repository.with_name("away"))
        await catalogue.look()
        assert served(catalogue) == ["bad", "good"]
        shutil.move(away, repository)
        await catalogue.look()
        assert served(catalogue) == ["bad", "good"]
        assert catalogue.readiness().ready


async def test_a_model_whose_folder_cannot_be_listed_for_a_moment_stays(
    repository: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refusing(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any = ".") -> Any:
            if Path(path) == repository / "good":
                raise PermissionError(13, "Permission denied", str(path))
            return function(path)

        return call

    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        await look_until(catalogue, lambda: catalogue.readiness().ready)
        for name in ("listdir", "scandir"):
            monkeypatch.setattr(os, name, refusing(getattr(os, name)))
        await catalogue.look()
        assert served(catalogue) == ["bad", "good"]
        assert "good cannot be read: [Errno 13] Permission denied" in caplog.text


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


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[" * 100_000, '{"model": "bad"}', "[]", " " * (MAX_BYTES + 1)),
        *('{"card": ' * 5000 + "1" + "}" * 5000, '{"training": NaN}'),
    ],
    ids=["empty", "half", "deep", "incomplete", "a list", "large", "nested", "nan"],
)
async def test_a_card_that_cannot_be_read_is_logged_once_and_its_model_is_missing(
    repository: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (repository / "bad" / "1" / "card.json").write_text(text)
    await bad_is_missing(repository, caplog)


@pytest.mark.parametrize("name", [b"caf\xe9", "\u6e29\u5ea6".encode()], ids=["no text", "no ASCII"])
async def test_a_folder_whose_name_no_header_can_hold_costs_itself_only(
    repository: Path, caplog: pytest.LogCaptureFixture, name: bytes
) -> None:
    shutil.copytree(repository / "good", repository / os.fsdecode(name))
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        fake.index = reply(INDEX.replace("]", f', {{"name": "{"?" * len(name)}"}}]'), tensors=False)
        fake.index = fake.index.replace(b"?" * len(name), name)
        await catalogue.look()
        await look_until(catalogue, lambda: served(catalogue) == ["bad", "good"])
        assert catalogue.readiness().ready
    assert caplog.text.count(f"expected a name of printable ASCII but found {os.fsdecode(name)!r}") == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"worst": Infinity}', '{"a": ' * 5000 + "1" + "}" * 5000])
async def test_a_certificate_that_cannot_be_read_concerns_its_version(
    repository: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (repository / "bad" / "1" / "certificate.json").write_text(text)
    await bad_is_missing(repository, caplog)


@pytest.mark.parametrize("file", ["card.json", "certificate.json"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
async def test_only_regular_files_are_read(
    repository: Path, file: str, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = repository / "bad" / "1" / file
    path.unlink()
    make(path)
    await bad_is_missing(repository, caplog)


@pytest.mark.parametrize(
    "changes",
    [
        *({"declared": [-1]}, {"declared": [200_000]}, {"minimum": 0}, {"minimum": 30, "maximum": 20}),
        *({"unequal": [[16]]}, {"axes": ["row"]}),
    ],
)
async def test_a_card_with_impossible_grids_is_refused(
    repository: Path, changes: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    change_grid(repository, **changes)
    await bad_is_missing(repository, caplog)


async def bad_is_missing(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Check that `good` is served, and that the fault of `bad` is logged once."""
    async with looking(repository) as (catalogue, _):
        for _ in range(2):
            await catalogue.look()
        assert served(catalogue) == ["good"]
        assert catalogue.readiness().missing == ("bad",)
    assert caplog.text.count("card.json cannot be read") == 1


async def test_a_card_and_a_certificate_that_are_copied_later_or_over_others_are_read(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = repository / "good" / "1" / "certificate.json"
    text = certificate.read_text()
    certificate.unlink()
    async with looking(repository) as (catalogue, _):
        await catalogue.look()
        assert catalogue.model("good").certificate is None
        certificate.write_text(text)
        await catalogue.look()
        assert catalogue.model("good").certificate == json.loads(text)
        change(repository, "good", title="Trained again")
        await look_until(catalogue, lambda: catalogue.find("good").title == "Trained again")
        card = repository / "good" / "1" / "card.json"
        half = card.read_text()[:100]
        card.write_text(half)
        await catalogue.look()
        assert catalogue.find("good").title == "Trained again"
        assert caplog.text.count("card.json cannot be read") == 1


async def test_a_model_is_loaded_again_once_when_its_files_are_complete_and_not_while_they_are_written(
    repository: Path,
) -> None:
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        answer, loads = fake.respond, list[str]()

        def respond(path: str) -> bytes:
            loads.extend([path] if path.endswith("/load") else [])
            return answer(path)

        fake.respond = respond  # type: ignore[method-assign]
        await look_until(catalogue, lambda: catalogue.readiness().ready)
        loads.clear()
        beside, hidden = repository / "good" / "upload", repository / "good" / "1" / ".model.onnx.4f"
        beside.mkdir()
        for count in range(3):
            for path in (beside / "model.onnx", hidden):
                path.write_bytes(bytes(count))
            await catalogue.look()
            await catalogue.look()
        assert loads == []
        graph = repository / "good" / "1" / "model.onnx"
        for count in range(3):
            graph.write_bytes(bytes(count))
            await catalogue.look()
        assert loads == []
        for _ in range(2):
            await catalogue.look()
        assert loads == ["/v2/repository/models/good/load"]


async def test_a_served_version_whose_files_no_longer_load_is_named_until_they_do(repository: Path) -> None:
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        await look_until(catalogue, lambda: catalogue.readiness().ready)
        answer, graph = fake.respond, repository / "good" / "1" / "model.onnx"
        refused = reply('{"error": "load failed: version 1 is at UNAVAILABLE state: no graph"}', tensors=False)
        refused = refused.replace(b"200 OK", b"400 Bad Request")
        fake.respond = lambda path: refused if path.endswith("/load") else answer(path)  # type: ignore[method-assign]
        graph.write_bytes(b"no graph")
        reason = "not served: good (version 1 cannot be loaded by Triton)"
        await look_until(catalogue, lambda: catalogue.readiness().reason == reason)
        assert catalogue.readiness().ready
        assert served(catalogue) == ["bad", "good"]  # what was loaded before stays, until Triton is restarted
        await catalogue.look()
        assert newest_served(catalogue) == {"good": 0.0, "bad": 1.0}
        fake.respond = answer  # type: ignore[method-assign]
        graph.write_bytes(b"a graph")
        await look_until(catalogue, lambda: catalogue.readiness().reason is None)
        await catalogue.look()
        assert newest_served(catalogue) == {"good": 1.0, "bad": 1.0}


async def test_a_card_of_another_model_is_refused(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    change(repository, "bad", model="good")
    async with looking(repository) as (catalogue, _):
        await catalogue.look()
        assert served(catalogue) == ["good"]
    assert "expected the card of bad version 1 but found that of good version 1" in caplog.text


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


async def test_a_refused_version_leaves_the_one_before_in_place_and_is_counted(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(repository / "good" / "1", repository / "good" / "2")  # its card names version 1
    async with looking(repository) as (catalogue, fake):
        fake.index = reply(
            json.dumps([{"name": "good", "version": number, "state": "READY"} for number in ("1", "2")]), tensors=False
        )
        await catalogue.look()
        assert catalogue.find("good").version == 1
        assert newest_served(catalogue) == {"good": 0.0, "bad": 0.0}
        for name in ("good/2", "bad"):
            shutil.rmtree(repository / name)
        await catalogue.look()
        assert newest_served(catalogue) == {"good": 1.0}
    assert "expected the card of good version 2 but found that of good version 1" in caplog.text


def newest_served(catalogue: Catalogue) -> dict[str, float]:
    """Return the values of the gauge by model."""
    [family] = catalogue._newest_served.collect()
    return {sample.labels["model"]: sample.value for sample in family.samples}


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
