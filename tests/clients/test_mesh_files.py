"""Mesh files that refer to other files or inflate to gigabytes: neither the client nor a training reads on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import h5py
import meshio
import numpy as np
import pytest

from petrov_client import _mesh_files
from training.data.readers import vtk

GUARDS = [_mesh_files, vtk]
Guard = Callable[[Path], AbstractContextManager[None]]


def mesh(count: int = 3) -> meshio.Mesh:
    return meshio.Mesh(np.zeros((count, 3)), [("triangle", np.array([[0, 1, 2]]))])


@pytest.mark.parametrize("module", GUARDS)
def test_an_xdmf_file_reads_no_other_file(module: Any, tmp_path: Path) -> None:
    secret, path = tmp_path / "secret.h5", tmp_path / "folder" / "a.xdmf"
    path.parent.mkdir()
    mesh().write(path)
    with module.guarded(path):
        assert len(meshio.read(path).points) == 3
    with h5py.File(secret, "w") as file:
        file["data0"] = np.zeros((3, 3))
    text = path.read_text()
    for name in (str(secret), "../secret.h5"):
        path.write_text(text.replace("a.h5:", f"{name}:"))
        with pytest.raises(ValueError, match="only an HDF5 file beside it is read"), module.guarded(path):
            meshio.read(path)
    path.write_text(text.replace('Format="HDF"', 'Format="Binary"').replace("a.h5:/data0", str(secret)))
    with pytest.raises(ValueError, match='Format="Binary"'), module.guarded(path):
        meshio.read(path)
    binary = 'Format="Binary"'
    item = text[text.index("<DataItem") : text.index("</DataItem>")].replace('Format="HDF"', binary)
    other = item.replace("<DataItem", "<Item").replace("a.h5:/data0", str(secret)) + "</Item>"  # meshio takes it, too
    path.write_text(text[: text.index("<DataItem")] + other + text[text.index("</DataItem>") + len("</DataItem>") :])
    with pytest.raises(ValueError, match=binary), module.guarded(path):
        meshio.read(path)
    path.write_text(text)
    with h5py.File(path.with_suffix(".h5"), "a") as file:
        del file["data0"]
        file["data0"] = h5py.ExternalLink(str(secret), "/data0")
    with pytest.raises(ValueError, match="is a link to somewhere else"), module.guarded(path):
        meshio.read(path)


@pytest.mark.parametrize("module", GUARDS)
def test_what_is_inflated_is_bounded(module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.vtu"
    mesh(100_000).write(path)
    with module.guarded(path):
        assert len(meshio.read(path).points) == 100_000
    monkeypatch.setattr(module, "MOST_BYTES", 2**20)
    with pytest.raises(ValueError, match="holds more than 1 MiB when it is inflated"), module.guarded(path):
        meshio.read(path)
