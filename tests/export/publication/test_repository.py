"""A version is published whole or not at all, once, beside one older one."""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
import pytest
from click.testing import Result
from safetensors.numpy import load_file
from typer.testing import CliRunner

from export import __main__ as command
from export import repository as repositories
from export import triton_config
from export.graphs import to_onnx
from export.graphs.deployable import Deployable
from export.repository import Publication, RepositoryError, publish
from export.signature import Signature
from tests.conftest import wait_until
from training import calibration, checkpoint
from training.problems.problem_file import COMPANIONS

ROOT = Path(__file__).parents[3]
Published: TypeAlias = "tuple[Path, dict[str, Publication]]"


def test_a_problem_file_refuses_the_names_that_an_export_refuses() -> None:
    assert {*COMPANIONS} == {*repositories.SUFFIXES}


def contents(folder: Path) -> dict[str, str]:
    """Digest every file below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def copied(published: Published, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published[0], tmp_path / "model_repository"))


def test_card_and_certificate_say_what_was_published(checkpoints: dict[str, Path], published: Published) -> None:
    loaded = checkpoint.load(checkpoints["darcy"])
    folder = published[0] / "darcy_torchscript" / "1"
    card, certificate = (json.loads((folder / name).read_text()) for name in ("card.json", "certificate.json"))
    assert (card["model"], card["version"], card["format"]) == ("darcy_torchscript", 1, "torchscript")
    assert card["inputs"][0]["axes"] == ["batch", "row", "column"]
    assert card["checkpoint"] == {
        "sha256": loaded.digest,
        "parameters": sum(p.numel() for p in loaded.operator.parameters()),
    }
    assert certificate["artefact"]["sha256"] == contents(folder)["model.pt"]
    assert certificate["worst"]["float32"] <= certificate["tolerance"] == 1e-5
    assert certificate["operators"]


def test_the_config_reads_back_and_has_the_same_bytes_at_every_export(
    checkpoints: dict[str, Path], published: Published
) -> None:
    signature = Signature.of(checkpoint.load(checkpoints["darcy"]).description)
    for name, form in (("darcy", "onnx"), ("darcy_torchscript", "torchscript")):
        document = (published[0] / name / "config.pbtxt").read_text()
        config = triton_config.parse(document)
        assert document == triton_config.text(name, signature, form)
        assert (config.name, config.max_batch_size, config.version_policy.latest.num_versions) == (name, 64, 2)
        assert [(tensor.name, list(tensor.dims)) for tensor in (*config.input, *config.output)] == [
            ("coefficient", [-1, -1]),
            ("solution", [-1, -1]),
        ]
        assert config.dynamic_batching.max_queue_delay_microseconds == 0
        assert not config.dynamic_batching.preferred_batch_size


@pytest.mark.deep
def test_an_output_on_a_grid_of_its_own_is_declared(all_published: Published) -> None:
    folder = all_published[0] / "darcy_inverse"
    config = triton_config.parse((folder / "config.pbtxt").read_text())
    assert [list(tensor.dims) for tensor in (*config.input, *config.output)] == [[-1, -1], [36, 36], [1]]
    card = json.loads((folder / "1" / "card.json").read_text())
    assert [card[part][0]["shape"] for part in ("inputs", "outputs")] == [[None, None, None], [None, 36, 36]]
    assert card["outputs"][0]["axes"] == ["batch", "row", "column"]


def test_an_unchanged_checkpoint_is_left_alone(
    checkpoints: dict[str, Path], published: Published, tmp_path: Path
) -> None:
    repository = copied(published, tmp_path)
    before = contents(repository)
    assert [one.new for one in publish(checkpoints["burgers"], repository)] == [False, False]
    assert contents(repository) == before


def test_a_corrupted_artefact_is_published_anew(
    checkpoints: dict[str, Path], published: Published, tmp_path: Path
) -> None:
    repository = copied(published, tmp_path)
    (repository / "burgers_torchscript" / "1" / "model.pt").write_bytes(b"")
    done = {one.model: one for one in publish(checkpoints["burgers"], repository)}
    assert (done["burgers"].version, done["burgers"].new) == (1, False)
    assert (done["burgers_torchscript"].version, done["burgers_torchscript"].new) == (2, True)


def test_a_name_keeps_its_tensors(checkpoints: dict[str, Path], published: Published, tmp_path: Path) -> None:
    repository = copied(published, tmp_path)
    before = contents(repository)
    with pytest.raises(RepositoryError, match="coefficient -> solution but this checkpoint is initial -> final"):
        publish(checkpoints["burgers"], repository, "darcy")
    assert contents(repository) == before


@pytest.mark.parametrize("suffix", ["vjp", "refined"])
def test_a_model_of_another_making_is_not_replaced_by_a_graph_beside_a_model(
    checkpoints: dict[str, Path], tmp_path: Path, suffix: str
) -> None:
    own = tmp_path / "model_repository" / f"burgers_{suffix}"
    (own / "1").mkdir(parents=True)
    (own / "1" / "model.onnx").write_bytes(b"a graph")
    (own / "config.pbtxt").write_text('backend: "onnxruntime"\n')
    before = contents(own)
    with pytest.raises(RepositoryError, match=f"burgers_{suffix} is a model that was not exported"):
        publish(checkpoints["burgers"], tmp_path / "model_repository")
    assert contents(own) == before


def test_checkpoints_whose_folders_give_one_model_its_name_are_published_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("darcy-quick", "darcy_quick")]
    monkeypatch.setattr(repositories, "is_current", lambda *_: False)
    monkeypatch.setattr(repositories, "attempt", lambda folder, *_: folder.name)
    monkeypatch.setattr(repositories, "ProcessPoolExecutor", None)
    assert [*repositories.outcomes(folders, tmp_path)] == ["darcy-quick", "darcy_quick"]


@pytest.mark.parametrize("name", ["../darcy", "darcy_torchscript", "2d", ""])
def test_a_name_is_a_name(name: str) -> None:
    with pytest.raises(RepositoryError, match="model name"):
        repositories.model_name(name)


def test_a_folder_gives_its_model_the_name() -> None:
    assert repositories.model_name("darcy-quick") == "darcy_quick"


def test_above_tolerance_nothing_changes(
    checkpoints: dict[str, Path], published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = copied(published, tmp_path)
    before = contents(repository)

    def write_perturbed(_module: Deployable, _signature: Signature, path: Path) -> None:
        model = onnx.load(published[0] / "burgers" / "1" / path.name)
        floats = [tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT]
        weight = max(floats, key=lambda tensor: len(tensor.raw_data))
        array = onnx.numpy_helper.to_array(weight) * 1.01
        weight.CopyFrom(onnx.numpy_helper.from_array(array.astype("float32"), weight.name))
        onnx.save(model, path)

    monkeypatch.setattr(to_onnx, "write", write_perturbed)
    arguments = [str(checkpoints["burgers"]), "--repository", str(repository), "--name", "burgers_quick"]
    done = CliRunner().invoke(command.app, arguments)
    assert (done.exit_code, type(done.exception)) == (1, SystemExit)
    assert contents(repository) == before


@pytest.mark.parametrize("name", [*(checkpoint.WEIGHTS, checkpoint.CONFIG, checkpoint.EXAMPLES), calibration.FILE])
def test_a_damaged_file_is_named_without_a_traceback(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ROOT / "checkpoints" / "memoriser", tmp_path / "memoriser"))
    if name == calibration.FILE:  # of fields only
        folder = Path(shutil.copytree(ROOT / "checkpoints" / "burgers", tmp_path / "burgers"))
    (folder / name).write_bytes((folder / name).read_bytes()[:90])
    done = CliRunner().invoke(command.app, [str(folder), "--repository", str(tmp_path / "repository")])
    assert (done.exit_code, type(done.exception)) == (1, SystemExit)
    assert str(folder / name) in "".join(done.output.split())
    assert not (tmp_path / "repository").exists()


@dataclass(frozen=True)
class SideBySide:
    """One export of three checkpoints, the second of which is damaged, beside another of the first checkpoint."""

    repository: Path
    folders: list[Path]
    done: Result
    beside: list[Publication]


@pytest.fixture(scope="module")
def side_by_side(tmp_path_factory: pytest.TempPathFactory) -> SideBySide:
    folder = tmp_path_factory.mktemp("side-by-side")
    names, repository = ("first", "second", "whole"), folder / "repository"
    folders = [Path(shutil.copytree(ROOT / "checkpoints" / "memoriser", folder / name)) for name in names]
    (folders[1] / "weights.safetensors").unlink()
    staged = folder / ".repository.staging" / "first" / "work" / "first"

    def publish_too() -> list[Publication]:
        wait_until(lambda: staged.exists() or (repository / "first").exists())
        return publish(folders[0], repository)

    with ThreadPoolExecutor() as threads:  # the command exports in processes, for which it waits in this thread
        beside = threads.submit(publish_too)
        done = CliRunner().invoke(command.app, [*map(str, folders), "--repository", str(repository)])
        return SideBySide(repository, folders, done, beside.result())


@pytest.mark.deep
def test_several_are_published_side_by_side_and_one_that_fails_alone_is_refused(side_by_side: SideBySide) -> None:
    done = side_by_side.done
    assert (done.exit_code, type(done.exception)) == (1, SystemExit)
    said = "".join(done.output.split())  # lines are broken anywhere
    assert "second/weights.safetensors" in said
    positions = [said.index(word) for word in ("firstversion1:published", "secondisnotpublished", "wholeversion1")]
    assert positions == sorted(positions), "reported in another order than requested"
    assert {path.name for path in side_by_side.repository.iterdir()} == {"first", "whole"}


@pytest.mark.deep
def test_two_exports_of_one_checkpoint_publish_it_once(side_by_side: SideBySide) -> None:
    assert [(one.version, one.new) for one in side_by_side.beside] == [(1, False)]
    assert repositories.versions(side_by_side.repository / "first") == [1]
    again = CliRunner().invoke(
        command.app, [str(side_by_side.folders[0]), "--repository", str(side_by_side.repository)]
    )
    assert again.exit_code == 0, again.output
    assert "".join(again.output.split()) == "firstversion1:alreadypublished,leftalone"
    assert repositories.versions(side_by_side.repository / "first") == [1]


@pytest.mark.deep
def test_a_killed_export_leaves_nothing_half_written(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    repository = tmp_path / "model_repository"
    staged = tmp_path / ".model_repository.staging" / "burgers" / "work" / "burgers" / "1"
    exporting = subprocess.Popen(
        [sys.executable, "-m", "export", checkpoints["burgers"], "--repository", repository], cwd=ROOT
    )
    while not (staged / "model.onnx").exists():
        assert exporting.poll() is None
        time.sleep(0.01)
    exporting.send_signal(signal.SIGKILL)
    exporting.wait()
    assert contents(repository) == {}
    with repositories.staging(repository, "burgers") as aside:
        assert list(aside.iterdir()) == []


@pytest.mark.usefixtures("already_traced")
def test_a_full_disk_publishes_nothing_and_leaves_what_is_there(
    save_checkpoint: Callable[[Path, str, int], Path],
    published: Published,
    tmp_path: Path,
) -> None:
    repository, checkpoint = copied(published, tmp_path), save_checkpoint(tmp_path / "burgers", "burgers", 1)
    before = contents(repository)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 512, limit[1]))  # the beginning of a graph
    try:
        ran = CliRunner().invoke(command.app, [str(checkpoint), "--repository", str(repository)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert ran.exit_code == 1
    said = "".join(ran.output.split())  # lines are broken anywhere
    assert "burgersisnotpublished:[Errno27]Filetoolarge" in said
    assert "Traceback" not in said
    assert contents(repository) == before
    assert not list((tmp_path / ".model_repository.staging" / "burgers" / "work").glob("*"))


@pytest.mark.usefixtures("already_traced")
def test_other_formats_examples_and_figures_make_another_version(
    checkpoints: dict[str, Path], published: Published, tmp_path: Path
) -> None:
    folder, repository = tmp_path / "burgers", copied(published, tmp_path)
    shutil.copytree(checkpoints["burgers"], folder)
    assert repositories.is_current(folder, repository)
    field = np.ones((9, 64), np.float32)
    checkpoint.write_examples(folder, {"initial": field, "final": 2 * field})
    assert not repositories.is_current(folder, repository)
    for name in ("burgers", "burgers_torchscript"):
        shutil.copyfile(folder / checkpoint.EXAMPLES, repository / name / "1" / checkpoint.EXAMPLES)
    assert repositories.is_current(folder, repository)
    worse = [{"grid": [512], "fields": 4, "relative_l2": 0.5}]
    checkpoint.write_card(folder, checkpoint.read_card(folder).measured({"errors": worse}))
    assert not repositories.is_current(folder, repository)
    loaded = checkpoint.load_operator(folder)
    recipe = loaded.recipe.model_copy(update={"formats": ("onnx",)})
    checkpoint.save(folder, loaded.operator, recipe, loaded.problem, loaded.card)
    assert not repositories.is_current(folder, repository)
    assert [(one.model, one.version) for one in publish(folder, repository)] == [("burgers", 2)]
    assert not (repository / "burgers_torchscript").exists()
    card = json.loads((repository / "burgers" / "2" / "card.json").read_text())
    assert (card["formats"], card["errors"]) == (["onnx"], worse)
    stored = load_file(repository / "burgers" / "2" / checkpoint.EXAMPLES)
    assert {name: array.shape for name, array in stored.items()} == {"initial": (8, 64), "final": (8, 64)}
