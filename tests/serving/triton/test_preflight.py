"""Whatever the start lacks is listed, each with its remedy."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving import system
from serving.local_triton import environment as triton_environment
from serving.local_triton import server as triton_server
from serving.settings import Settings
from serving.system import StartupError
from tests.conftest import ENVIRONMENT

ROOT = Path(__file__).parents[3]


def test_a_machine_with_everything_passes(toy_repository: Path, make_settings: Callable[..., Settings]) -> None:
    assert (triton_environment.prepare(make_settings(toy_repository)) / "bin" / "tritonserver").exists()


def test_a_model_whose_config_names_other_versions_has_no_instance(
    toy_repository: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("blur", "tally"):
        shutil.copytree(toy_repository / name, tmp_path / name)
    both = triton_environment.instances(tmp_path)
    config = tmp_path / "blur" / "config.pbtxt"
    text, count = re.subn(r"version_policy.*", "version_policy { specific { versions: [ 9 ] } }", config.read_text())
    assert count == 1
    config.write_text(text)
    (tmp_path / "tally" / "2").mkdir()
    (tmp_path / "tally" / "2" / "card.json").write_text("{")
    assert 0 < triton_environment.instances(tmp_path) < both
    assert "card.json" not in caplog.text, "the gateway's catalogue says so, too"


def test_a_config_that_is_just_being_written_keeps_no_service_from_its_start(
    toy_repository: Path, tmp_path: Path
) -> None:
    for model in ("blur", "drift"):
        shutil.copytree(toy_repository / model, tmp_path / model)
    both = triton_environment.instances(tmp_path)
    (tmp_path / "blur" / "config.pbtxt").write_text("")
    assert 0 < triton_environment.instances(tmp_path) < both


def test_a_platform_without_the_wheel_is_referred_to_a_remote_triton(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_environment, "machine", lambda: "aarch64")
    wheel, (fault,) = triton_environment.install(tmp_path)
    assert wheel is None
    assert "nvidia-pytriton" in fault
    assert "--triton HOST:PORT" in fault


def test_a_package_that_cannot_be_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_environment, "PACKAGES", ("petrov-no-such-package==0",))
    wheel, (fault,) = triton_environment.install(tmp_path / "triton-env")
    assert wheel is None
    assert "petrov-no-such-package==0" in fault
    assert not triton_environment.is_built(tmp_path / "triton-env")


def test_an_environment_that_cannot_be_made_ends_make_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    variables = os.environ | {"PETROV_TRITON_ENVIRONMENT": str(tmp_path / "file/env"), "PETROV_PORT": "none"}
    command = [sys.executable, "-m", "serving.local_triton.environment"]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    [sentence] = done.stderr.splitlines()
    assert sentence.startswith(f"{tmp_path}/file/env cannot be made (File exists): set PETROV_TRITON_ENVIRONMENT to")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_an_environment_of_another_user_is_used_and_none_is_built_there(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from serving.local_triton import environment\n"
        "print(*environment.install(Path(sys.argv[1]))[1], sep='')"
    )
    # It may read everything, as one that belongs to the group of the files, and write nothing.
    capabilities = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *capabilities)
    triton_environment.build(ENVIRONMENT)
    for environment, said in (
        (ENVIRONMENT, ""),
        (tmp_path / "env", f"{tmp_path}/env cannot be made (Permission denied)"),
    ):
        command = [*user, sys.executable, "-c", script, str(environment)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout.strip().partition(": set PETROV_TRITON_ENVIRONMENT")[0] == said


def test_a_python_without_a_stub_is_named(tmp_path: Path) -> None:
    faults = list(triton_environment.platform(tmp_path))
    assert f"no stub for Python {triton_environment.PYTHON}" in faults[0]


def test_a_missing_libpython_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = _wheel()
    monkeypatch.setattr(triton_environment, "PYTHON", "3.99")
    faults = " ".join(triton_environment.platform(wheel))
    assert "libpython3.99.so.1.0 is missing: apt-get install libpython3.99" in faults


def test_an_old_c_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "GLIBC", (99, 0))
    assert any(
        "glibc 99.0 or newer is needed but this is 2." in fault for fault in triton_environment.platform(_wheel())
    )


def test_an_empty_repository_is_reported_with_its_remedy(
    tmp_path: Path, make_settings: Callable[..., Settings]
) -> None:
    (fault,) = triton_environment.choices(make_settings(tmp_path / "none"))
    assert "holds no model: make export" in fault


def test_a_model_without_a_version_is_reported_with_its_remedy(
    tmp_path: Path, make_settings: Callable[..., Settings]
) -> None:
    (tmp_path / "darcy" / "1-old").mkdir(parents=True)
    (tmp_path / "darcy" / "config.pbtxt").touch()
    (fault,) = triton_environment.choices(make_settings(tmp_path))
    assert '"darcy" has no version' in fault


def test_a_model_without_a_version_keeps_no_other_one_from_its_start(
    tmp_path: Path, make_settings: Callable[..., Settings], toy_repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(toy_repository / "blur", tmp_path / "blur")
    (tmp_path / "darcy").mkdir()  # its only version has been removed
    (tmp_path / "darcy" / "config.pbtxt").touch()
    settings = make_settings(tmp_path)
    assert list(triton_environment.choices(settings)) == []
    triton_environment.prepare(settings)
    assert caplog.text.count('"darcy" has no version') == 1


def test_everything_that_is_missing_is_named_at_once(tmp_path: Path, make_settings: Callable[..., Settings]) -> None:
    settings = make_settings(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", settings.triton_metrics_port))
        taken.listen()
        with pytest.raises(StartupError, match=r"holds no model(.|\n)*TRITON_METRICS_PORT"):
            triton_environment.prepare(settings)


def test_the_backend_directory_is_built_once_and_without_bytecode(tmp_path: Path) -> None:
    first, second = (triton_server.backend_directory(_wheel(), tmp_path / "runtime") for _ in range(2))
    assert first == second
    assert [folder.name for folder in (tmp_path / "runtime").iterdir()] == [first.name]
    files = {str(file.relative_to(first)) for file in first.rglob("*") if file.is_file()}
    expected = {"onnxruntime/model.py", "pytorch/batching.py", "python/triton_python_backend_stub"}
    assert expected <= files
    assert not list(first.rglob("__pycache__"))


def test_a_backend_directory_that_cannot_be_filled_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(OSError, match="No space left"):
        triton_server.backend_directory(_wheel(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_freed_fields_are_reused_without_new_pages() -> None:
    script = (
        "import resource, sys; from serving import system\n"
        "system.keep_freed_memory()\n"
        "def fields(): return [bytearray(700_000) for _ in range(6)]\n"
        "fields(); before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "for _ in range(20): fields()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"
    )
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert int(found.stdout) < 1_000, "20 x 6 fields have 20,000 pages"


def _wheel() -> Path:
    triton_environment.build(ENVIRONMENT)
    wheel: Any = triton_environment.installation(ENVIRONMENT)
    return Path(wheel)


def test_the_log_of_triton_stays_small_and_the_part_before_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "triton.log"
    with triton_environment.open_log(log) as triton:
        triton.write(b"first\n")
        triton.flush()
        triton_environment.bound_log(log, 100)
        assert log.read_bytes() == b"first\n"
        triton_environment.bound_log(log, 3)
        triton.write(b"second\n")  # it appends, and knows nothing of the change
        triton.flush()
    assert (log.read_bytes(), log.with_name("triton.log.1").read_bytes()) == (b"second\n", b"first\n")
    assert log.with_name("triton.log.1").stat().st_mode & 0o077 == 0
    triton_environment.bound_log(tmp_path / "none", 0)
