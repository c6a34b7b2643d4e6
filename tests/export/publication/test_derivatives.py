"""Derivatives are published beside their models, with the numbers of their versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from export import repository as repositories
from export.derivatives.rules import RULES
from export.repository import Publication, publish
from schema.card import KINDS

# The first of these tests exports all checkpoints, on a busy machine.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(600)]


def test_derivatives_are_published_beside_their_models(all_published: tuple[Path, dict[str, Publication]]) -> None:
    repository, done = all_published
    for model in ("darcy", "darcy_inverse", "burgers"):
        assert done[model].companions == {"vjp": True, "jvp": True}
        own = json.loads((repository / model / "1" / "card.json").read_text())
        for kind in KINDS:
            folder = repository / f"{model}_{kind}"
            card, certificate = (
                json.loads((folder / "1" / f"{name}.json").read_text()) for name in ("card", "certificate")
            )
            assert card["product"] == {"of": model, "kind": kind}
            assert card["checkpoint"] == own["checkpoint"]
            assert card["inputs"][0] == own["inputs"][0]
            assert max(one["float32"] for one in certificate["comparisons"]) <= certificate["tolerance"] == 1e-4
            assert certificate["central_difference"] <= 1e-4
            assert (folder / "config.pbtxt").is_file()


def test_missing_and_damaged_derivatives_are_made_anew_with_the_number_of_their_model(
    checkpoints: dict[str, Path], published: tuple[Path, dict[str, Publication]], tmp_path: Path
) -> None:
    """`test_triton` publishes a further version of a model, which has further ones of its derivatives, too."""
    repository = Path(shutil.copytree(published[0], tmp_path / "model_repository"))
    (repository / "burgers_vjp" / "1" / "model.onnx").write_bytes(b"")
    shutil.rmtree(repository / "burgers_jvp")
    [onnx_format, _] = publish(checkpoints["burgers"], repository)
    assert (onnx_format.new, onnx_format.companions) == (False, {"vjp": True, "jvp": True})
    assert all(repositories.versions(repository / f"burgers{suffix}") == [1] for suffix in ("", "_vjp", "_jvp"))


@pytest.mark.usefixtures("already_traced")
def test_a_model_without_a_derivative_is_published(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(RULES, "Conv")
    [onnx_format, _] = publish(checkpoints["burgers"], tmp_path / "model_repository")
    assert onnx_format.new
    assert onnx_format.companions == {}
    assert all("Conv" in reason for reason in onnx_format.refused.values())
    assert sorted(path.name for path in (tmp_path / "model_repository").iterdir()) == ["burgers", "burgers_torchscript"]
