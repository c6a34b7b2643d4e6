"""The command of the closed form: what it has nothing to do for is refused before anything is computed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from research import closed_form
from research.commands import app


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected a folder for the checkpoint, --picture or --keys"),
        (["--keys", "0"], "greater than or equal to 1"),
        (["--picture", "front.doc"], "expected a file that ends in .avif"),
    ],
)
def test_what_it_cannot_do_is_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_form, "write", lambda folder: pytest.fail(f"wrote {folder}"))
    folder = [str(tmp_path / "checkpoint")] if arguments else []
    result = CliRunner().invoke(app, ["closed-form", *folder, *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())
