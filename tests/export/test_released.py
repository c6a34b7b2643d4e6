"""The released versions beside the checkpoints: what a fresh export makes, installed without torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime import InferenceSession
from typer.testing import CliRunner

from export import parity, probes, released, triton_config
from export.graphs import to_onnx
from export.signature import Signature
from export.versions import ONNX, companions, signature_of
from training import checkpoint

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(path.parent for path in (ROOT / "checkpoints").glob("*/weights.safetensors"))
OF_FIELDS = [folder for folder in FOLDERS if folder.name not in {"listops", "memoriser"}]  # tokens have no constants
SMALL = ROOT / "checkpoints" / "darcy"
KINDS = ("_vjp", "_jvp")
MODELS = ("darcy", "darcy_jvp", "darcy_refined", "darcy_vjp")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository as a clone has it: with the configs of the models alone."""
    for name in MODELS:
        (tmp_path / "model_repository" / name).mkdir(parents=True)
        shutil.copyfile(
            ROOT / "model_repository" / name / triton_config.CONFIG, config(tmp_path / "model_repository" / name)
        )
    return tmp_path / "model_repository"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of a small checkpoint."""
    return Path(shutil.copytree(SMALL, tmp_path / "checkpoints" / "darcy"))


def config(model: Path) -> Path:
    return model / triton_config.CONFIG


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_released_graph_computes_what_its_checkpoint_does(folder: Path) -> None:
    trained = checkpoint.load(folder)
    signature = Signature.of_checkpoint(trained)
    run, _ = to_onnx.read(folder / released.FOLDER / folder.name / released.GRAPH)
    like = probes.statistics(folder / "examples.safetensors", signature)
    smallest = min(probes.shapes(signature), key=np.prod)
    parity.gate(parity.compare(run, trained.deployed, signature, like, [smallest]))


@pytest.mark.parametrize("name", [pytest.param("kuramoto_sivashinsky", marks=pytest.mark.deep), "memoriser"])
def test_a_released_graph_is_that_of_a_fresh_export(name: str) -> None:
    """Those of large networks take a minute each: `export.released verify`, before a release, compares them, too."""
    assert released.differences(ROOT / "checkpoints" / name, plain=True) == []


def test_companions_are_compared_and_no_other_graph_is_beside_them(tmp_path: Path) -> None:
    source = ROOT / "checkpoints" / "burgers_exact"
    copy = Path(shutil.copytree(source, tmp_path / source.name))
    surplus = copy / released.FOLDER / "surplus" / released.GRAPH
    surplus.parent.mkdir()
    shutil.copyfile(copy / released.FOLDER / source.name / released.GRAPH, surplus)
    done = CliRunner().invoke(released.app, ["verify", str(copy)])
    assert [line.partition(" differs from a fresh export;")[0] for line in done.stderr.splitlines()] == [str(surplus)]
    assert (done.exit_code, type(done.exception)) == (1, SystemExit)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_committed_config_describes_the_released_version(folder: Path) -> None:
    trained = checkpoint.load(folder)
    signature = Signature.of_checkpoint(trained)
    # The certificate refuses the derivatives of a network with ReLU, whose kinks separate it from its graph.
    served = [each for each in companions(trained, signature) if each not in released.refusals(folder)]
    described = {f"{folder.name}_{each}": signature_of(each, signature, trained) for each in served}
    for name, own in ({folder.name: signature} | described).items():
        committed = config(ROOT / "model_repository" / name).read_text()
        assert committed == triton_config.text(name, own, ONNX)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_released_version_is_of_its_checkpoint(folder: Path) -> None:
    assert released.released(folder)[-1].name == folder.name


@pytest.mark.parametrize("folder", OF_FIELDS, ids=lambda path: path.name)
def test_constants_and_the_extremes_of_the_card_have_finite_outputs(folder: Path) -> None:
    signature = Signature.of_checkpoint(checkpoint.load(folder))
    sides = dict.fromkeys(signature.grid.axes, signature.grid.minimum) | {"batch": 2, "frame": 8}
    paths = [path for path in released.released(folder) if not path.name.endswith(KINDS)]
    graphs = {path.name: InferenceSession(path / released.GRAPH) for path in paths}
    for constant in (0.0, 1e-30, 1.0, -1.0, 3.0, 100.0, -100.0):
        arguments: dict[str, Any] = {}
        for tensor in signature.inputs:
            shape = [fixed or sides[axis] for axis, fixed in zip(tensor.axes, tensor.shape, strict=True)]
            value = constant if constant > 0 or not tensor.positive else 1e-30
            arguments[tensor.name] = np.full(shape, value, np.float32)
        for parameter in signature.parameters:
            ends = [parameter.minimum, parameter.maximum]
            arguments[parameter.name] = np.array(
                [parameter.default if end is None else end for end in ends], np.float32
            )
        if signature.frames:
            arguments["frame"] = np.zeros((2, 8), np.int32)
        for name, graph in graphs.items():
            for output in graph.run(None, arguments):
                assert np.isfinite(output).all(), (name, constant)


@pytest.mark.parametrize("points", [64, 512, 8192])
def test_a_constant_velocity_of_burgers_equation_stays_what_it_is(points: int) -> None:
    graph = InferenceSession(ROOT / "checkpoints/burgers" / released.FOLDER / "burgers" / released.GRAPH)
    for constant in (0.0, 1.0, -1.0, 0.3, 100.0):
        initial = np.full((3, points), constant, np.float32)
        viscosity, time = np.array([[0.003, 0.01, 0.03], [0.1, 1.0, 2.0]], np.float32)
        [final, *_] = graph.run(None, {"initial": initial, "viscosity": viscosity, "time": time})
        np.testing.assert_allclose(final, initial, rtol=1e-6, atol=1e-6)


def test_a_refusal_holds_for_its_checkpoint_alone(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ROOT / "checkpoints" / "darcy_galerkin", tmp_path / "darcy_galerkin"))
    assert set(released.refusals(folder)) == {"vjp", "jvp"}
    assert all("derivative" in why or "differ" in why for why in released.refusals(folder).values())
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    assert released.refusals(folder) == {}


def test_a_clone_gets_version_one_with_its_derivatives_and_the_examples(folder: Path, repository: Path) -> None:
    installed = released.install(folder, repository)
    assert [path.relative_to(repository) for path in installed] == [
        Path("darcy_jvp/1"),
        Path("darcy_refined/1"),
        Path("darcy_vjp/1"),
        Path("darcy/1"),
    ]
    assert (repository / "darcy/1/examples.safetensors").read_bytes() == (folder / "examples.safetensors").read_bytes()
    assert released.install(folder, repository) == []


def test_another_checkpoint_before_it_keeps_its_number(folder: Path, repository: Path) -> None:
    released.install(folder, repository)
    for name in MODELS:
        card = repository / name / "1" / triton_config.CARD
        card.write_text(json.dumps(read(card) | {"checkpoint": {"sha256": "earlier"}}))
        certificate = repository / name / "1" / triton_config.CERTIFICATE
        certificate.write_text(json.dumps(read(certificate) | {"checkpoint": {"sha256": "earlier"}}))
    released.install(folder, repository)
    for name in MODELS:
        assert triton_config.versions(repository / name) == [1, 2]
        assert read(repository / name / "2" / triton_config.CARD)["version"] == 2
        assert read(repository / name / "2" / triton_config.CERTIFICATE)["version"] == 2


def test_a_card_that_was_measured_anew_is_that_of_another_version(folder: Path, repository: Path) -> None:
    released.install(folder, repository)
    card = repository / "darcy" / "1" / triton_config.CARD
    card.write_text(json.dumps(read(card) | {"errors": []}))
    assert [path.name for path in released.install(folder, repository)] == ["2"] * len(MODELS)
    expected = read(folder / released.FOLDER / "darcy" / triton_config.CARD)
    assert read(repository / "darcy" / "2" / triton_config.CARD)["errors"] == expected["errors"]


def test_an_earlier_version_with_other_tensors_is_taken_out(folder: Path, repository: Path) -> None:
    released.install(folder, repository)
    card = repository / "darcy" / "1" / triton_config.CARD
    card.write_text(json.dumps(read(card) | {"quality": [], "checkpoint": {"sha256": "earlier"}}))
    certificate = repository / "darcy" / "1" / triton_config.CERTIFICATE
    certificate.write_text(json.dumps(read(certificate) | {"checkpoint": {"sha256": "earlier"}}))
    released.install(folder, repository)
    assert triton_config.versions(repository / "darcy") == [2]


NESTED = b"[" * 100_000  # deeper than any reader of JSON follows


@pytest.mark.parametrize("model", ["darcy", "darcy_vjp"])
@pytest.mark.parametrize(("file", "content"), [(released.GRAPH, b"cut off"), (triton_config.CERTIFICATE, NESTED)])
def test_a_damaged_version_is_replaced(folder: Path, repository: Path, model: str, file: str, content: bytes) -> None:
    released.install(folder, repository)
    (repository / model / "1" / file).write_bytes(content)
    released.install(folder, repository)
    assert triton_config.versions(repository / model) == [1]
    newest = triton_config.newest(repository / model)
    assert (newest / released.GRAPH).read_bytes() == (folder / "published" / model / released.GRAPH).read_bytes()
    assert not triton_config.damaged(newest)


def test_an_earlier_version_that_is_damaged_is_taken_out(folder: Path, repository: Path) -> None:
    test_another_checkpoint_before_it_keeps_its_number(folder, repository)
    (repository / "darcy/1" / released.GRAPH).write_bytes(b"cut off")
    shutil.rmtree(repository / "darcy/2")
    released.install(folder, repository)
    assert triton_config.versions(repository / "darcy") == [1]
    shutil.copytree(repository / "darcy/1", repository / "darcy/2")
    (repository / "darcy/1" / released.GRAPH).write_bytes(b"cut off")
    triton_config.prune(repository / "darcy", triton_config.tensors_of(repository / "darcy/2"), folder)
    assert triton_config.versions(repository / "darcy") == [2]


def test_folders_with_odd_names_are_no_versions(folder: Path, repository: Path) -> None:
    for name in ("\u00b2", "\u0663", "01", os.fsdecode(b"caf\xe9")):
        (repository / "darcy" / name).mkdir()
        (repository / name).mkdir()
    released.install(folder, repository)
    assert triton_config.versions(repository / "darcy") == [1]


@pytest.mark.parametrize("content", [NESTED, b"[]", b"{"])
def test_a_damaged_release_is_a_sentence(folder: Path, repository: Path, content: bytes) -> None:
    (folder / released.FOLDER / "darcy" / triton_config.CERTIFICATE).write_bytes(content)
    with pytest.raises(released.ReleaseError, match="is damaged or of another checkpoint"):
        released.install(folder, repository)


def test_a_release_of_another_checkpoint_is_not_installed(folder: Path, repository: Path) -> None:
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    with pytest.raises(released.ReleaseError, match="is damaged or of another checkpoint"):
        released.install(folder, repository)
    assert triton_config.versions(repository / "darcy") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_full_disk_is_a_sentence_and_leaves_no_version(folder: Path, repository: Path, tmp_path: Path) -> None:
    full = tmp_path / "disk" / "model_repository"
    full.parent.mkdir()
    script = (
        f"mount -t tmpfs -o size=100k tmpfs {full.parent} && cp -r {repository} {full} && "
        f"{sys.executable} -m export.released install {folder} --repository {full}; echo $?; find {full} -name 1"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines() == [f"{folder} cannot be published to {full}: No space left on device"]
    assert done.stdout == "1\n"


def test_a_checkpoint_without_a_release_says_what_makes_one(folder: Path, repository: Path) -> None:
    shutil.rmtree(folder / released.FOLDER)
    with pytest.raises(released.ReleaseError, match="make export"):
        released.install(folder, repository)


def test_a_model_without_a_config_is_not_installed(folder: Path, repository: Path) -> None:
    config(repository / "darcy_vjp").unlink()
    with pytest.raises(released.ReleaseError, match="darcy_vjp has no config"):
        released.install(folder, repository)
    assert triton_config.versions(repository / "darcy") == []


def test_installation_imports_no_package_of_training(folder: Path, repository: Path) -> None:
    forbidden = "import sys; sys.modules.update(dict.fromkeys(['torch', 'onnx', 'lightning', 'h5py'])); "
    call = f"from export.released import app; app(['install', {str(folder)!r}, '--repository', {str(repository)!r}])"
    done = subprocess.run(
        [sys.executable, "-c", forbidden + call], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "darcy version 1: published"
