"""A real Triton is started, killed and drained; nothing of it may be left behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc.aio
from tritonclient.grpc import InferInput
from tritonclient.utils import InferenceServerException

from serving.local_triton import server as triton_server
from serving.local_triton.server import TritonServer, TritonServerError
from serving.settings import Settings
from serving.system import StartupError
from tests.conftest import load_models
from tests.processes import among

ROOT = Path(__file__).parents[3]
FIELD = np.ones((1, 5, 5), np.float32)
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Triton's regions are looked for


@pytest.fixture
def settings(toy_repository: Path, tmp_path: Path, make_settings: Any) -> Settings:
    """For a Triton of the test's own, with a repository that it may change."""
    shutil.copytree(toy_repository / "blur", tmp_path / "repository" / "blur")
    made: Settings = make_settings(tmp_path / "repository", drain_seconds=1)  # nothing is in flight in most tests
    return made


@pytest.fixture
async def watched(settings: Settings) -> AsyncIterator[TritonServer]:
    async with TritonServer(settings) as triton:
        await asyncio.to_thread(load_models, settings)
        watching = asyncio.create_task(triton.watch())
        yield triton
    await watching


async def infer(settings: Settings, model: str = "blur", version: str = "") -> np.ndarray[Any, Any]:
    tensor = InferInput("coefficient", FIELD.shape, "FP32").set_data_from_numpy(FIELD)
    async with tritonclient.grpc.aio.InferenceServerClient(f"127.0.0.1:{settings.triton_grpc_port}") as client:
        result = await client.infer(model, [tensor], model_version=version, client_timeout=10)
    solution: np.ndarray[Any, Any] = result.as_numpy("solution")
    return solution


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - another process has no event for it
            await asyncio.sleep(0.05)


async def responds(settings: Settings, model: str = "blur", version: str = "") -> bool:
    try:
        return (await infer(settings, model, version)).shape == FIELD.shape
    except InferenceServerException:
        return False


async def comes_back(triton: TritonServer, gone: psutil.Process, seconds: float = 30.0) -> None:
    """Wait until another server responds, and check that it runs a model."""

    async def restarted() -> bool:
        return not gone.is_running() and await triton.ready()

    await until(restarted, seconds)
    await asyncio.to_thread(load_models, triton.settings)
    assert await responds(triton.settings)


def processes(settings: Settings) -> list[psutil.Process]:
    """Everything that runs for this Triton: supervisor, server, stubs."""
    marks = (f"--http-port={settings.triton_http_port}", str(settings.repository.resolve()))
    return among(psutil.process_iter(), marks=marks)


def server(settings: Settings) -> psutil.Process:
    (found,) = among(processes(settings), "tritonserver")
    return found


def prefix(settings: Settings) -> str:
    """Return the prefix of the names of this Triton's shared memory."""
    (option,) = [part for part in server(settings).cmdline() if part.startswith("--backend-config=python,")]
    return option.rpartition("=")[2]


def regions(beginning: str) -> list[Path]:
    return list(SHARED_MEMORY.glob(f"{beginning}*"))


async def test_stopping_leaves_no_process_and_no_shared_memory(settings: Settings) -> None:
    async with TritonServer(settings) as triton:
        assert await triton.ready()
        await asyncio.to_thread(load_models, settings)
        beginning = prefix(settings)
        assert regions(beginning), "no region carries the prefix, so finding none later would mean nothing"
        assert len(processes(settings)) >= 3
    assert not await triton.ready()
    assert processes(settings) == []
    assert regions(beginning) == []


async def test_a_triton_that_is_killed_or_loses_an_instance_is_restarted_and_leaves_no_shared_memory(
    watched: TritonServer,
) -> None:
    settings = watched.settings
    beginning, killed = prefix(settings), server(settings)
    killed.kill()
    await comes_back(watched, killed)
    assert regions(beginning) == []
    stubs = among(processes(settings), "triton_python_backend_stub")
    ended = server(settings)
    stubs[0].kill()
    await comes_back(watched, ended)


async def test_a_crashed_start_is_repeated(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    crashed: list[psutil.Process] = []

    async def up() -> bool:
        return bool(among(processes(settings), "tritonserver"))

    class Crashing(TritonServer):
        async def ready(self) -> bool:
            if not crashed:  # before the first look, so that it cannot be ready before
                await until(up)
                crashed.append(server(settings))
                crashed[0].kill()
            return await super().ready()

    triton = Crashing(settings)
    await triton.start()
    assert await triton.ready()
    assert server(settings).pid != crashed[0].pid
    assert f"ended with status {128 + signal.SIGKILL}" in caplog.text
    await triton.stop()


async def test_a_frozen_triton_is_ended_and_one_without_its_folder_is_restarted(
    watched: TritonServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_server, "PROBE_SECONDS", 0.1)
    monkeypatch.setattr(triton_server, "MAX_SILENT_PROBES", 2)
    settings = watched.settings
    frozen = server(settings)
    shutil.rmtree(settings.triton_runtime)  # with the log and the backends, as a cleaner of old files does
    frozen.suspend()
    await comes_back(watched, frozen, seconds=60)


async def test_a_runtime_folder_that_is_lost_for_good_ends_in_a_sentence(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_server, "MAX_CRASHES", 2)
    runtime = tmp_path / "runtime"
    async with TritonServer(settings.model_copy(update={"triton_runtime": runtime})) as triton:
        watching = asyncio.create_task(triton.watch())
        shutil.rmtree(runtime)
        runtime.touch()  # nothing can be written there any more
        server(settings).kill()
        with pytest.raises(TritonServerError, match=r"ended 2 times in a row; its log ends:\n.* cannot be read"):
            await watching


async def test_a_killed_parent_ends_everything(settings: Settings) -> None:
    script = (
        "import asyncio, sys; from serving.settings import Settings\n"
        "from serving.local_triton.server import TritonServer\n"
        "async def main():\n"
        "    async with TritonServer(Settings.model_validate_json(sys.argv[1])) as triton:\n"
        "        print('up', flush=True); await triton.watch()\n"
        "asyncio.run(main())"
    )
    command = [sys.executable, "-c", script, settings.model_dump_json()]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as parent:  # noqa: ASYNC220 - the test waits for it
        assert parent.stdout is not None
        assert await asyncio.to_thread(parent.stdout.readline) == b"up\n"
        beginning = prefix(settings)
        parent.kill()

    async def gone() -> bool:
        return not processes(settings) and not regions(beginning)

    await until(gone)


async def test_a_killed_supervisor_ends_the_server_and_its_instances(settings: Settings) -> None:
    async with TritonServer(settings):
        (supervisor,) = [
            process for process in among(processes(settings), marks=["supervisor.py"]) if "-I" in process.cmdline()
        ]
        beginning = prefix(settings)
        supervisor.kill()

        async def gone() -> bool:
            return not processes(settings)

        await until(gone)
    for region in regions(beginning):  # the one case in which shared memory stays
        region.unlink()


async def test_a_triton_that_is_not_ready_in_time_is_ended(settings: Settings) -> None:
    hasty = settings.model_copy(update={"triton_start_seconds": 0.1})
    with pytest.raises(TritonServerError, match=r"not ready in 0\.1 s \(PETROV_TRITON_START_SECONDS\)"):
        await TritonServer(hasty).start()
    assert processes(settings) == []


async def test_a_port_in_use_is_named(settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", settings.triton_grpc_port))
        taken.listen()
        with pytest.raises(StartupError, match=f"port {settings.triton_grpc_port} is in use: .*TRITON_GRPC_PORT"):
            await TritonServer(settings).start()


async def test_a_crash_loop_ends_with_an_error(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_server, "MAX_CRASHES", 2)
    async with TritonServer(settings) as triton:
        watching = asyncio.create_task(triton.watch())

        async def responds_or_ended() -> bool:
            return watching.done() or await triton.ready()

        while not watching.done():
            await until(responds_or_ended)
            if not watching.done():
                server(settings).kill()
        with pytest.raises(TritonServerError, match="ended 2 times in a row"):
            await watching


async def test_two_servers_start_side_by_side_on_one_runtime_folder(
    settings: Settings, make_settings: Any, tmp_path: Path
) -> None:
    runtime = tmp_path / "runtime"
    both = [make_settings(settings.repository, triton_runtime=runtime, drain_seconds=1) for _ in range(2)]
    servers = [TritonServer(each) for each in both]
    await asyncio.gather(*(each.start() for each in servers))
    for each in both:
        await asyncio.to_thread(load_models, each)
        assert await responds(each)
    await asyncio.gather(*(each.stop() for each in servers))
    assert [folder.name for folder in runtime.iterdir() if folder.name.startswith(".")] == []


async def test_requests_in_flight_are_finished_when_triton_stops(settings: Settings) -> None:
    config = settings.repository / "blur" / "config.pbtxt"
    waiting = "dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 1500000 }"
    config.write_text(config.read_text().replace("dynamic_batching { }", waiting))
    async with TritonServer(settings.model_copy(update={"drain_seconds": 10.0})):
        await asyncio.to_thread(load_models, settings)
        requesting = asyncio.create_task(infer(settings))
        await asyncio.sleep(0.3)  # it is in Triton's queue now
        assert not requesting.done()
    assert (await requesting).shape == FIELD.shape


def test_the_supervisor_passes_on_exit_status_and_signals(tmp_path: Path) -> None:
    supervisor = [sys.executable, "-I", str(ROOT / "serving" / "local_triton" / "supervisor.py"), "petrov-test-"]
    with subprocess.Popen([*supervisor, "sh", "-c", "exit 7"], stdin=subprocess.PIPE) as ends:
        assert ends.wait(10) == 7
    obedient = f"trap 'exit 5' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done"
    with subprocess.Popen([*supervisor, "sh", "-c", obedient], stdin=subprocess.PIPE) as running:
        while not (tmp_path / "up").exists():
            os.sched_yield()
        running.send_signal(signal.SIGTERM)
        assert running.wait(10) == 5


def test_the_supervisor_ends_a_server_whose_instance_is_stopped(tmp_path: Path) -> None:
    quick = (
        "import supervisor as s; s.SCAN_SECONDS, s.STOPPED_SECONDS = 0.05, 0.2; s.main('petrov-test-', sys.argv[1:])"
    )
    script = f"import sys; sys.path.insert(0, {str(ROOT / 'serving' / 'local_triton')!r}); {quick}"
    parent = f"sleep 600 & echo $! > {tmp_path}/pid; touch {tmp_path}/up; wait"
    with subprocess.Popen(
        [sys.executable, "-I", "-c", script, "sh", "-c", parent], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        while not (tmp_path / "up").exists():
            os.sched_yield()
        instance = int((tmp_path / "pid").read_text())
        os.kill(instance, signal.SIGSTOP)
        assert running.stderr is not None
        assert f"are stopped, so Triton is ended: processes {instance}" in running.stderr.read().decode()
        assert running.wait(10) == 0  # of this script
    assert not psutil.pid_exists(instance)
