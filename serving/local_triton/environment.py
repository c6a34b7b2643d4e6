"""The Python environment of the embedded Triton, which is not the application's.

The wheel `nvidia-pytriton` carries a whole Triton, whose Python stub works with NumPy 1 only: under NumPy 2 every
output of a model arrives empty. The environment therefore holds the wheel without its dependencies and NumPy 1.26;
everything else (onnxruntime, torch) comes from the application's packages, by one line in a `.pth` file.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from filelock import FileLock

logger = logging.getLogger(__name__)

PACKAGES = ("nvidia-pytriton==0.7.0", "numpy==1.26.4")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
COMPLETE = "complete"


class EnvironmentBuildError(RuntimeError):
    """The environment cannot be built; the message quotes pip's last line."""


def packages(environment: Path) -> Path:
    """Return the folder into which the environment's packages are installed."""
    return environment / "lib" / f"python{PYTHON}" / "site-packages"


def is_built(environment: Path) -> bool:
    """Return whether the environment is complete, with the current packages and for the running application."""
    marker = environment / COMPLETE
    return marker.is_file() and marker.read_text() == _content()


def build(environment: Path) -> None:
    """Build the environment unless it exists; other processes that build it wait meanwhile.

    Args:
        environment: The folder, by default `.runtime/triton-env`.

    Raises:
        EnvironmentBuildError: A package cannot be installed.
    """
    if is_built(environment):  # perhaps by another user, in a folder that only that user can write
        return
    environment.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(environment.with_name(f"{environment.name}.lock")):
        if is_built(environment):
            return
        logger.info("Installing Triton into %s …", environment)
        shutil.rmtree(environment, ignore_errors=True)
        venv.create(environment, symlinks=True)
        _install(environment)
        (packages(environment) / "application.pth").write_text(f"{_application()}\n")
        (environment / COMPLETE).write_text(_content())


def _install(environment: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install"]
    done = subprocess.run(  # noqa: S603 - our own interpreter and fixed names
        [*pip, "--quiet", "--no-deps", *PACKAGES], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise EnvironmentBuildError(f"pip could not install {' and '.join(PACKAGES)}: {' '.join(last)}")


def _application() -> str:
    """Return the folder of the running application's packages, without symbolic links."""
    return str(Path(sysconfig.get_path("purelib")).resolve())


def _content() -> str:
    return "\n".join([*PACKAGES, _application(), sys.version]) + "\n"


if __name__ == "__main__":
    from serving.settings import Settings

    build(Settings.model_validate({}).triton_environment)
