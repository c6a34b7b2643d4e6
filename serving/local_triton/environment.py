"""The Python environment of the local Triton, which is not the application's, and what else the machine must have.

The wheel `nvidia-pytriton` carries a whole Triton, whose Python stub works with NumPy 1 only: under NumPy 2 every
output of a model arrives empty. The environment therefore holds the wheel without its dependencies and NumPy 1.26;
everything else (onnxruntime, torch) comes from the application's packages, by one line in a `.pth` file.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from platform import machine
from typing import BinaryIO

from filelock import FileLock
from google.protobuf.text_format import ParseError

from serving import system
from serving.catalogue.repository import IncompleteConfigError, Repository, base
from serving.settings import Settings
from serving.system import StartupError
from serving.triton import RUN_BYTES, RUNS_IN_SHARED_MEMORY

logger = logging.getLogger(__name__)

NUMPY = "numpy==1.26.4"
PACKAGES = ("nvidia-pytriton==0.7.0", NUMPY)
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
COMPLETE = "complete"
APPLICATION = Path(sysconfig.get_path("purelib")).resolve()  # the folder of the running application's packages
#: Of POSIX shared memory: what each instance of a model takes at once, and from where on batches run in large parts.
INSTANCE_BYTES, WANTED_SHARED_MEMORY = 2**20, RUNS_IN_SHARED_MEMORY * RUN_BYTES
MOST_LOG_BYTES = 32 * 2**20  # a model that cannot be loaded writes some 3 KiB a minute, and `debug` much more
ELSEWHERE = "or use a Triton that runs elsewhere: python -m serving gateway --triton HOST:PORT"


def packages(environment: Path) -> Path:
    """Return the folder into which the environment's packages are installed."""
    return environment / "lib" / f"python{PYTHON}" / "site-packages"


def installation(environment: Path) -> Path | None:
    """Return the wheel's `tritonserver` folder in Triton's environment, or None where there is none."""
    folder = packages(environment.resolve()) / "pytriton" / "tritonserver"
    return folder if folder.is_dir() else None


def stub(wheel: Path) -> Path:
    """Return the program of the Python backend that runs models under the running version of Python."""
    return wheel / "python_backend_stubs" / PYTHON / "triton_python_backend_stub"


def library_folders(wheel: Path) -> list[Path]:
    """Return the folders of the libraries that the server and its stub link to: the wheel's own, and libpython's."""
    return [wheel.parents[1] / "nvidia_pytriton.libs", Path(sysconfig.get_config_var("LIBDIR"))]


def log_file(settings: Settings) -> Path:
    """Return the file of Triton's log; servers that share a folder have different ports."""
    return settings.triton_runtime / f"triton-{settings.triton_http_port}.log"


def open_log(file: Path) -> BinaryIO:
    """Open Triton's log for appending; for our user alone, since what was requested and failed is in it."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)  # one of an earlier release was readable
    return os.fdopen(descriptor, "ab")


def bound_log(file: Path, most: int = MOST_LOG_BYTES) -> None:
    """Empty a log that has grown large, and keep what it held beside it; Triton, which appends, writes on."""
    with suppress(OSError):
        if file.stat().st_size > most:
            try:
                with file.open("rb") as old, open_log(file.with_name(f"{file.name}.1")) as kept:
                    kept.truncate(0)
                    shutil.copyfileobj(old, kept)
            finally:  # also on a full disk
                os.truncate(file, 0)


def is_built(environment: Path) -> bool:
    """Return whether the environment is complete, with the current packages and for the running application."""
    marker = environment / COMPLETE
    return marker.is_file() and marker.read_text() == _content()


def _content() -> str:
    return "\n".join([*PACKAGES, str(APPLICATION), sys.version]) + "\n"


def build(environment: Path) -> None:
    """Build the environment unless it exists; other processes wait meanwhile. A StartupError quotes pip."""
    if is_built(environment):  # perhaps by another user, in a folder that only that user can write
        return
    environment.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(environment.with_name(f"{environment.name}.lock")):
        if is_built(environment):
            return
        logger.info("Installing Triton into %s …", environment)
        shutil.rmtree(environment, ignore_errors=True)
        venv.create(environment, symlinks=True)
        if fault := pip_install(environment / "bin" / "python", ["--no-deps", *PACKAGES]):
            raise StartupError(f"pip could not install {' and '.join(PACKAGES)}: {fault}")
        (packages(environment) / "application.pth").write_text(f"{APPLICATION}\n")
        (environment / COMPLETE).write_text(_content())


def pip_install(python: Path, arguments: list[str]) -> str | None:
    """Install packages into the environment of a Python; return the last line of what pip says if that fails.

    NumPy stays that of the stub.
    """
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", *arguments]
    command += [] if NUMPY in arguments else [NUMPY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own interpreter
    return " ".join(done.stderr.strip().splitlines()[-1:]) if done.returncode else None


def prepare(settings: Settings) -> Path:
    """Make sure that a local Triton can start; its environment is built if it is missing, which takes a minute.

    Returns the wheel's `tritonserver` folder, or raises a StartupError that lists all that is missing.
    """
    wheel, missing = install(settings.triton_environment)
    missing = [*missing, *platform(wheel), *choices(settings), *shared_memory(settings.repository)]
    if missing or wheel is None:
        raise StartupError("\n".join(missing))
    for fault in without_versions(sorted(config.parent for config in settings.repository.glob("*/config.pbtxt"))):
        logger.warning("%s", fault)
    return wheel


def choices(settings: Settings) -> Iterator[str]:
    """Yield what is wrong with the settings; this takes no time."""
    folder, log = settings.repository, log_file(settings)
    if not (models := sorted(config.parent for config in folder.glob("*/config.pbtxt"))):
        yield f'the model repository "{folder}" holds no model: make export'
    without = list(without_versions(models))
    if len(without) == len(models):  # else the others can be served
        yield from without
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        open_log(log).close()
    except OSError as error:
        yield f"{log} cannot be written ({error.strerror}): set PETROV_TRITON_RUNTIME to another folder"
    for field in ("triton_http_port", "triton_grpc_port", "triton_metrics_port"):
        if fault := system.port_fault("127.0.0.1", getattr(settings, field), f"PETROV_{field.upper()}"):
            yield fault


def without_versions(models: Iterable[Path]) -> Iterator[str]:
    """Yield which model folders hold no version."""
    for model in models:
        if not any(version.name.isdecimal() for version in model.glob("[1-9]*")):
            yield f'the model "{model.name}" has no version in "{model.parent}": make export'


def shared_memory(repository: Path) -> Iterator[str]:
    """Yield why the plain models of a repository cannot start in the shared memory there is; warn if it is little."""
    found, count = system.shared_memory(), instances(repository)
    if found is None or (found[0] >= WANTED_SHARED_MEMORY and found[1] >= 2 * count * INSTANCE_BYTES):
        return
    free = f"{system.SHARED_MEMORY} has {found[1] // 2**20} MiB free of {found[0] // 2**20}"
    remedy = "set it to 1 GiB, in Docker by --shm-size=1g, in Kubernetes by an emptyDir with medium: Memory"
    if found[1] < count * INSTANCE_BYTES:
        yield f"{free}, and {count} instances of models take one each: {remedy}, {ELSEWHERE}"
    else:
        few = f"{free}, of which {count} instances of models take one each or more"
        logger.warning("%s: batches run in small parts, and what does not fit is refused with 503; %s", few, remedy)


def instances(repository: Path) -> int:
    """Return how many instances a local Triton starts at once; those of companions come at their first use."""
    models, count = Repository(repository, warns=False), 0  # the gateway's own says what it cannot read
    found = models.read()
    for name, cards in found.items():
        if cards and not base(cards[max(cards)], found):
            with suppress(OSError, ValueError, ParseError, IncompleteConfigError):
                if (text := models.configuration(name, ())) is None:  # Triton loads no version of it
                    continue
                config = json.loads(text)
                default = [{"count": 2 if config.get("backend") == "onnxruntime" else 1}]  # Triton's on a processor
                each = sum(group.get("count", 1) for group in config.get("instance_group", default))
                count += each * len(config["version_policy"]["specific"]["versions"])
    return count


def install(environment: Path) -> tuple[Path | None, list[str]]:
    """Build Triton's environment if there is none; return the wheel's `tritonserver` folder, and what is missing."""
    if (sys.platform, machine()) != ("linux", "x86_64"):
        return None, [f"nvidia-pytriton, which carries Triton, is for Linux on x86_64 only; {ELSEWHERE}"]
    try:
        build(environment)
    except StartupError as error:
        return None, [f"{error}; {ELSEWHERE}"]
    except OSError as error:
        fault = f"{environment} cannot be made ({error.strerror or error})"
        return None, [f"{fault}: set PETROV_TRITON_ENVIRONMENT to another folder, {ELSEWHERE}"]
    return installation(environment), []


def platform(wheel: Path | None) -> Iterator[str]:
    """Yield what the machine lacks to run the wheel's binary."""
    if wheel is None:
        return
    if not stub(wheel).exists():
        yield f"nvidia-pytriton has no stub for Python {PYTHON}: use Python 3.11 or 3.12; {ELSEWHERE}"
    if fault := system.glibc_fault():
        yield f"{fault}; {ELSEWHERE}"
    if fault := system.libpython_fault(PYTHON):
        yield f"{fault}; {ELSEWHERE}"


if __name__ == "__main__":  # other settings are checked by the service
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    default = Settings.model_fields["triton_environment"].default
    sys.exit("\n".join(install(Path(os.environ.get("PETROV_TRITON_ENVIRONMENT") or default))[1]) or None)
