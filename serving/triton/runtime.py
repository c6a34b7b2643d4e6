"""The installed wheel and our two backends in; a folder and an environment that `tritonserver` runs with out.

The wheel `nvidia-pytriton` carries a whole Triton, laid out for its own Python interface, which we do not use. The
binary wants a backend directory in which the Python backend has the stub of the running Python beside it, and in which
`onnxruntime/model.py` and `pytorch/model.py` answer for the C++ backends that the wheel leaves out.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sysconfig
import tempfile
from pathlib import Path

from serving.triton.environment import PYTHON, packages

OURS = Path(__file__).with_name("backends")


def installation(environment: Path) -> Path | None:
    """Return the wheel's `tritonserver` folder in Triton's environment, or None where there is none."""
    folder = packages(environment.resolve()) / "pytriton" / "tritonserver"
    return folder if folder.is_dir() else None


def stub(wheel: Path) -> Path:
    """The program of the Python backend that runs models under the running version of Python."""
    return wheel / "python_backend_stubs" / PYTHON / "triton_python_backend_stub"


def library_folders(wheel: Path) -> list[Path]:
    """Where the loader finds what the server and its stub link to: the wheel's libraries, and libpython."""
    return [wheel.parents[1] / "nvidia_pytriton.libs", Path(sysconfig.get_config_var("LIBDIR"))]


def environment(wheel: Path) -> dict[str, str]:
    """Return the variables of Triton's process: ours, with what Triton needs in front.

    The stub embeds Python and finds its packages through the first `python3` on PATH, which has to be that of Triton's
    own environment; PYTHONPATH is ignored.
    """
    libraries = [*map(str, library_folders(wheel)), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    programs = [str(wheel.parents[4] / "bin"), os.environ.get("PATH", os.defpath)]
    ours = {"LD_LIBRARY_PATH": os.pathsep.join(libraries), "PATH": os.pathsep.join(programs)}
    return os.environ | ours | {"PYTHONDONTWRITEBYTECODE": "1"}


def backend_directory(wheel: Path, runtime: Path) -> Path:
    """Builds the backend directory, or finds it built.

    Its name is a digest of what it is made from, and it appears by a rename: two servers that start together share it,
    and a new release of a backend never changes the files of a running one.

    Args:
        wheel: The wheel's `tritonserver` folder.
        runtime: Where to build; made if missing.

    Returns:
        The absolute path for `--backend-directory`.
    """
    target = (
        runtime.resolve()
        / f"backends-{_digest([*OURS.rglob('*.py'), stub(wheel), *(wheel / 'backends').rglob('*.[ps][yo]')])}"
    )
    if not target.exists():
        runtime.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".backends-", dir=runtime))
        _fill(aside, wheel)
        _publish(aside, target)
    return target


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _fill(folder: Path, wheel: Path) -> None:
    # Bytecode stays behind: the stub would trust what another Python has compiled.
    without_bytecode = shutil.ignore_patterns("__pycache__")
    shutil.copytree(wheel / "backends" / "python", folder / "python", ignore=without_bytecode)
    shutil.copy2(stub(wheel), folder / "python")
    for model in OURS.glob("*/model.py"):
        shutil.copytree(model.parent, folder / model.parent.name, ignore=without_bytecode)
        shutil.copy2(OURS / "batching.py", folder / model.parent.name)


def _publish(aside: Path, target: Path) -> None:
    try:
        aside.rename(target)
    except OSError:
        shutil.rmtree(aside)
        if not target.exists():  # else another start was first, with the same bytes
            raise
