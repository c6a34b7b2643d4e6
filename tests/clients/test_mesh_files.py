"""Mesh files that refer to other files or inflate to gigabytes: neither the client nor a training reads on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import meshio
import numpy as np
import pytest

from petrov_client import ModelInfo
from petrov_client import _files as files
from petrov_client._schema import ParameterInfo, TensorInfo
from tests.clients.test_exodus import model
from training.data.readers import guards, open_file
from training.data.readers.data_file import ReadError


def mesh(count: int = 3) -> meshio.Mesh:
    return meshio.Mesh(np.zeros((count, 3)), [("triangle", np.array([[0, 1, 2]]))])


def test_an_xdmf_file_reads_no_other_file(tmp_path: Path) -> None:
    secret, path = tmp_path / "secret.h5", tmp_path / "folder" / "a.xdmf"
    path.parent.mkdir()
    mesh().write(path)
    with guards.guarded(path):
        assert len(meshio.read(path).points) == 3
    with h5py.File(secret, "w") as file:
        file["data0"] = np.zeros((3, 3))
    text = path.read_text()
    for name in (str(secret), "../secret.h5"):
        path.write_text(text.replace("a.h5:", f"{name}:"))
        with pytest.raises(ValueError, match="only an HDF5 file beside it is read"), guards.guarded(path):
            meshio.read(path)
    path.write_text(text.replace('Format="HDF"', 'Format="Binary"').replace("a.h5:/data0", str(secret)))
    with pytest.raises(ValueError, match='Format="Binary"'), guards.guarded(path):
        meshio.read(path)
    binary = 'Format="Binary"'
    item = text[text.index("<DataItem") : text.index("</DataItem>")].replace('Format="HDF"', binary)
    other = item.replace("<DataItem", "<Item").replace("a.h5:/data0", str(secret)) + "</Item>"  # meshio takes it, too
    path.write_text(text[: text.index("<DataItem")] + other + text[text.index("</DataItem>") + len("</DataItem>") :])
    with pytest.raises(ValueError, match=binary), guards.guarded(path):
        meshio.read(path)
    path.write_text(text)
    with h5py.File(path.with_suffix(".h5"), "a") as file:
        del file["data0"]
        file["data0"] = h5py.ExternalLink(str(secret), "/data0")
    with pytest.raises(ValueError, match="is a link to somewhere else"), guards.guarded(path):
        meshio.read(path)


def test_what_is_inflated_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.vtu"
    mesh(100_000).write(path)
    with guards.guarded(path):
        assert len(meshio.read(path).points) == 100_000
    monkeypatch.setattr(guards, "MOST_BYTES", 2**20)
    with pytest.raises(ValueError, match="holds more than 1 MiB when it is inflated"), guards.guarded(path):
        meshio.read(path)


@pytest.mark.parametrize(
    ("name", "options", "said", "claimed", "sentence"),
    [
        ("a.vtk", {"binary": True}, "POINTS 3", "POINTS 1000000000", "3,000,000,000 numbers would follow, of which"),
        ("b.vtk", {"binary": False}, "POINTS 3", "POINTS 1000000000", "3,000,000,000 numbers would follow, of which"),
        ("c.msh", {"file_format": "gmsh"}, "1 3 1 3", "1 1000000000 1 3", r"an array \[1000000000, 3\] .* 512 MiB"),
        ("d.msh", {"file_format": "gmsh22"}, "\n3\n", "\n1000000000\n", "4,000,000,000 numbers would follow, of which"),
    ],
)
def test_a_header_that_claims_more_than_the_file_holds_is_refused(
    name: str, options: dict[str, Any], said: str, claimed: str, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    meshio.write(path, mesh(), **({"binary": False} if "gmsh" in options.get("file_format", "") else {}), **options)
    content = path.read_bytes()
    assert said.encode() in content
    with guards.guarded(path):
        assert len(meshio.read(path).points) == 3
    path.write_bytes(content.replace(said.encode(), claimed.encode(), 1))
    with pytest.raises(ValueError, match=sentence), guards.guarded(path):
        meshio.read(path)


def test_a_regular_grid_of_few_bytes_is_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "grid.vtk"
    head = (
        "# vtk DataFile Version 3.0\nx\nASCII\nDATASET STRUCTURED_POINTS\nDIMENSIONS {}\nORIGIN 0 0 0\nSPACING 1 1 1\n"
    )
    for sides, sentence in (
        ("100000 100000 1", r"a grid \[100000, 100000, 1\]"),
        ("1000000000 1 1", "an axis of 1,000"),
    ):
        path.write_text(head.format(sides))
        with pytest.raises(ValueError, match=sentence), guards.guarded(path):
            meshio.read(path)


def test_data_of_a_step_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.xdmf"
    mesh(1000).write(path)
    monkeypatch.setattr(guards, "MOST_BYTES", 24_000)  # that of the points
    with pytest.raises(ValueError, match=r"a grid of .* holds more than"), guards.guarded(path):
        meshio.read(path)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("page.vtu", b"<html>404</html>", "Expected tag 'VTKFile', found html"),
        ("empty.vtk", b"", "Illegal VTK header"),
        ("empty.vtu", b"", "it is no file of vtu"),
        ("random.inp", bytes(range(256)), "invalid start byte|continuation byte"),
        ("empty.inp", b"", "expected points but the mesh has none"),
        ("short.vtk", None, "numbers would follow, of which the .* bytes that are left hold fewer"),
        ("short.msh", None, r"cannot reshape array of size 240 into shape \(300,3\)"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_and_not_printed(
    name: str, content: bytes | None, sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if content is None:
        meshio.write(path, mesh(300), **({"file_format": "vtk42"} if path.suffix == ".vtk" else {}))
        capfd.readouterr()
        content = path.read_bytes()[:2000]
    path.write_bytes(content)
    with pytest.raises(ReadError, match=f"{name}: .*({sentence})"), open_file(path):
        pass
    with pytest.raises(ValueError, match=f"{name} .*({sentence})"), files.opened(path, model(1.0)):
        pass
    printed = "".join(capfd.readouterr()).splitlines()
    # A channel of gRPC that an earlier test has closed may write of its last handshake now.
    assert [line for line in printed if "ssl_transport_security" not in line] == []


def test_numbers_of_a_file_are_parameters(tmp_path: Path) -> None:
    """As a training on such files has them; those that are given take their place."""
    points = TensorInfo("coordinates", ("batch", "point", "component"), shape=(None, None, 2), components=("x", "y"))
    source = TensorInfo("source", ("batch", "point"), shape=(None, None))
    info = ModelInfo("flow", 1, (1,), (points, source), (), 8, parameters=(ParameterInfo("re"), ParameterInfo("wind")))
    triangle = meshio.Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], {"triangle": [[0, 1, 2]]}, {"source": np.arange(3.0)})
    triangle.write(tmp_path / "flow.vtu")
    listed = '<FieldData><DataArray type="Float64" Name="Re">40</DataArray></FieldData>'
    text = (tmp_path / "flow.vtu").read_text().replace("<UnstructuredGrid>", f"<UnstructuredGrid>{listed}")
    (tmp_path / "flow.vtu").write_text(text)
    with files.opened(tmp_path / "flow.vtu", info) as found:
        assert {name: found.arrays[name] for name in found.arrays.keys() - {"coordinates", "source"}} == {"re": 40}
    with files.opened(tmp_path / "flow.vtu", info, given={"re": 2.0}) as found:
        assert "re" not in found.arrays
