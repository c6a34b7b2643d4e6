"""What the local `tritonserver` runs with: its backend directory, its environment variables and its command line.

The wheel `nvidia-pytriton` carries a whole Triton, laid out for its own Python interface, which we do not use. The
binary needs a backend directory in which the Python backend has the stub of the running Python beside it, and in which
`onnxruntime/model.py` and `pytorch/model.py` replace the C++ backends that the wheel leaves out.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from serving.triton import supervisor
from serving.triton.environment import PYTHON, packages

if TYPE_CHECKING:
    from serving.settings import Settings

BACKENDS = Path(__file__).with_name("backends")


def installation(environment: Path) -> Path | None:
    """Return the wheel's `tritonserver` folder in Triton's environment, or None where there is none."""
    folder = packages(environment.resolve()) / "pytriton" / "tritonserver"
    return folder if folder.is_dir() else None


def log_file(settings: Settings) -> Path:
    """Return the file of Triton's log; servers that share a folder have different ports."""
    return settings.triton_runtime / f"triton-{settings.triton_http_port}.log"


def stub(wheel: Path) -> Path:
    """Return the program of the Python backend that runs models under the running version of Python."""
    return wheel / "python_backend_stubs" / PYTHON / "triton_python_backend_stub"


def library_folders(wheel: Path) -> list[Path]:
    """Return the folders of the libraries that the server and its stub link to: the wheel's own, and libpython's."""
    return [wheel.parents[1] / "nvidia_pytriton.libs", Path(sysconfig.get_config_var("LIBDIR"))]


def environment(wheel: Path) -> dict[str, str]:
    """Return the variables of Triton's process: ours, with what Triton needs in front.

    The stub embeds Python and finds its packages through the first `python3` on PATH, which must be that of Triton's
    own environment; PYTHONPATH is ignored.
    """
    libraries = [*map(str, library_folders(wheel)), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    programs = [str(wheel.parents[4] / "bin"), os.environ.get("PATH", os.defpath)]
    paths = {"LD_LIBRARY_PATH": os.pathsep.join(libraries), "PATH": os.pathsep.join(programs)}
    return os.environ | paths | {"PYTHONDONTWRITEBYTECODE": "1"}


def command(wheel: Path, settings: Settings, *, every_model: bool) -> list[str]:
    """Return the command line: the supervisor's, then Triton's.

    Args:
        wheel: The wheel's `tritonserver` folder.
        settings: Repository, ports and deadlines.
        every_model: Whether a model that cannot be loaded ends the start.

    Returns:
        Program and arguments.
    """
    prefix = f"petrov-{secrets.token_hex(8)}-"
    return [
        *(sys.executable, "-I", str(Path(supervisor.__file__)), prefix),
        str(wheel / "bin" / "tritonserver"),
        *(f"--{name}={value}" for name, value in _options(wheel, settings, every_model=every_model).items()),
        *(f"--trace-config={setting}" for setting in _tracing(settings)),
        "--disable-auto-complete-config",  # the repository's configs are complete
        *(
            f"--backend-config={backend},shm-region-prefix-name={prefix}"
            for backend in ("onnxruntime", "pytorch", "python")
        ),
    ]


def _options(wheel: Path, settings: Settings, *, every_model: bool) -> dict[str, object]:
    return {
        "model-repository": settings.repository.resolve(),
        "backend-directory": backend_directory(wheel, settings.triton_runtime),
        "model-control-mode": "poll",
        "repository-poll-secs": settings.triton_poll_seconds,
        "strict-readiness": "false",
        "exit-on-error": str(every_model).lower(),
        "exit-timeout-secs": max(1, round(settings.drain_seconds)),
        # The wheel's server predates current security fixes: loopback only.
        "http-address": "127.0.0.1",
        "grpc-address": "127.0.0.1",
        "metrics-address": "127.0.0.1",
        "http-port": settings.triton_http_port,
        "grpc-port": settings.triton_grpc_port,
        "metrics-port": settings.triton_metrics_port,
        "log-info": str(settings.log_level == "debug").lower(),
    }


def _tracing(settings: Settings) -> list[str]:
    """Return the settings for spans of those requests alone that carry the gateway's trace context (rate 0).

    They do not work under load: with 16 requests in flight, all of them traced, Triton 2.51 loses one trace in fifteen
    and crashes within a minute (triton-inference-server/server#7795).
    """
    if not (settings.traces and settings.triton_traces):
        return []
    export = [f"url={settings.traces}", "resource=service.name=triton"]
    return ["mode=opentelemetry", "level=TIMESTAMPS", "rate=0", *(f"opentelemetry,{setting}" for setting in export)]


def backend_directory(wheel: Path, runtime: Path) -> Path:
    """Return the backend directory, built if it is missing.

    Its name is a digest of its sources, and it appears by a rename: two servers that start together share it, and a new
    release of a backend never changes the files of a running one.

    Args:
        wheel: The wheel's `tritonserver` folder.
        runtime: The folder to build it in; made if missing.

    Returns:
        The absolute path for `--backend-directory`.
    """
    sources = [*BACKENDS.rglob("*.py"), stub(wheel), *(wheel / "backends").rglob("*.[ps][yo]")]
    target = runtime.resolve() / f"backends-{_digest(sources)}"
    if not target.exists():
        runtime.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(prefix=".backends-", dir=runtime))
        try:
            _fill(hidden, wheel)
        except OSError:
            shutil.rmtree(hidden, ignore_errors=True)
            raise
        _publish(hidden, target)
    return target


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _fill(folder: Path, wheel: Path) -> None:
    # Without bytecode: the stub would trust what another Python has compiled.
    without_bytecode = shutil.ignore_patterns("__pycache__")
    shutil.copytree(wheel / "backends" / "python", folder / "python", ignore=without_bytecode)
    shutil.copy2(stub(wheel), folder / "python")
    for model in BACKENDS.glob("*/model.py"):
        shutil.copytree(model.parent, folder / model.parent.name, ignore=without_bytecode)
        shutil.copy2(BACKENDS / "batching.py", folder / model.parent.name)


def _publish(hidden: Path, target: Path) -> None:
    try:
        hidden.rename(target)
    except OSError:
        shutil.rmtree(hidden)
        if not target.exists():  # else another start was first, with the same bytes
            raise
