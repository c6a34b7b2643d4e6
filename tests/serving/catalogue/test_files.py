"""What the catalogue does when files of the repository are wrong, change or cannot be read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving.catalogue.repository import MAX_BYTES
from tests.serving.catalogue.fake_triton import (
    INDEX,
    OUTPUT,
    change,
    change_grid,
    look_until,
    looking,
    newest_served,
    reply,
    served,
)


async def test_a_repository_that_is_away_for_a_moment_loses_nothing(repository: Path) -> None:
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        await look_until(catalogue, lambda: catalogue.readiness().ready)
        away = shutil.move(repository, repository.with_name("away"))
        await catalogue.look()
        assert served(catalogue) == ["bad", "good"]
        shutil.move(away, repository)
        await catalogue.look()
        assert served(catalogue) == ["bad", "good"]
        assert catalogue.readiness().ready


async def test_a_model_whose_folder_cannot_be_listed_for_a_moment_stays(
    repository: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refusing(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any = ".") -> Any:
            if Path(path) == repository / "good":
                raise PermissionError(13, "Permission denied", str(path))
            return function(path)

        return call

    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        await look_until(catalogue, lambda: catalogue.readiness().ready)
        for name in ("listdir", "scandir"):
            monkeypatch.setattr(os, name, refusing(getattr(os, name)))
        await catalogue.look()
        assert served(catalogue) == ["bad", "good"]
        assert "good cannot be read: [Errno 13] Permission denied" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[" * 100_000, '{"model": "bad"}', "[]", " " * (MAX_BYTES + 1)),
        *('{"card": ' * 5000 + "1" + "}" * 5000, '{"training": NaN}'),
    ],
    ids=["empty", "half", "deep", "incomplete", "a list", "large", "nested", "nan"],
)
async def test_a_card_that_cannot_be_read_is_logged_once_and_its_model_is_missing(
    repository: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (repository / "bad" / "1" / "card.json").write_text(text)
    await bad_is_missing(repository, caplog)


@pytest.mark.parametrize("name", [b"caf\xe9", "\u6e29\u5ea6".encode()], ids=["no text", "no ASCII"])
async def test_a_folder_whose_name_no_header_can_hold_costs_itself_only(
    repository: Path, caplog: pytest.LogCaptureFixture, name: bytes
) -> None:
    shutil.copytree(repository / "good", repository / os.fsdecode(name))
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        fake.index = reply(INDEX.replace("]", f', {{"name": "{"?" * len(name)}"}}]'), tensors=False)
        fake.index = fake.index.replace(b"?" * len(name), name)
        await catalogue.look()
        await look_until(catalogue, lambda: served(catalogue) == ["bad", "good"])
        assert catalogue.readiness().ready
    assert caplog.text.count(f"expected a name of printable ASCII but found {os.fsdecode(name)!r}") == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"worst": Infinity}', '{"a": ' * 5000 + "1" + "}" * 5000])
async def test_a_certificate_that_cannot_be_read_concerns_its_version(
    repository: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (repository / "bad" / "1" / "certificate.json").write_text(text)
    await bad_is_missing(repository, caplog)


@pytest.mark.parametrize("file", ["card.json", "certificate.json"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
async def test_only_regular_files_are_read(
    repository: Path, file: str, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = repository / "bad" / "1" / file
    path.unlink()
    make(path)
    await bad_is_missing(repository, caplog)


@pytest.mark.parametrize(
    "changes",
    [
        *({"declared": [-1]}, {"declared": [200_000]}, {"minimum": 0}, {"minimum": 30, "maximum": 20}),
        *({"unequal": [[16]]}, {"axes": ["row"]}),
    ],
)
async def test_a_card_with_impossible_grids_is_refused(
    repository: Path, changes: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    change_grid(repository, **changes)
    await bad_is_missing(repository, caplog)


async def bad_is_missing(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Check that `good` is served, and that the fault of `bad` is logged once."""
    async with looking(repository) as (catalogue, _):
        for _ in range(2):
            await catalogue.look()
        assert served(catalogue) == ["good"]
        assert catalogue.readiness().missing == ("bad",)
    assert caplog.text.count("card.json cannot be read") == 1


async def test_a_card_and_a_certificate_that_are_copied_later_or_over_others_are_read(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = repository / "good" / "1" / "certificate.json"
    text = certificate.read_text()
    certificate.unlink()
    async with looking(repository) as (catalogue, _):
        await catalogue.look()
        assert catalogue.model("good").certificate is None
        certificate.write_text(text)
        await catalogue.look()
        assert catalogue.model("good").certificate == json.loads(text)
        change(repository, "good", title="Trained again")
        await look_until(catalogue, lambda: catalogue.find("good").title == "Trained again")
        card = repository / "good" / "1" / "card.json"
        half = card.read_text()[:100]
        card.write_text(half)
        await catalogue.look()
        assert catalogue.find("good").title == "Trained again"
        assert caplog.text.count("card.json cannot be read") == 1


async def test_a_model_is_loaded_again_once_when_its_files_are_complete_and_not_while_they_are_written(
    repository: Path,
) -> None:
    (repository / "good" / "1" / "certificate.json").unlink()
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        loads = fake.loads
        await look_until(catalogue, lambda: catalogue.readiness().ready)
        loads.clear()
        beside, hidden = repository / "good" / "upload", repository / "good" / "1" / ".model.onnx.4f"
        beside.mkdir()
        for count in range(3):
            for path in (beside / "model.onnx", hidden):
                path.write_bytes(bytes(count))
            await catalogue.look()
            await catalogue.look()
        assert loads == []
        graph = repository / "good" / "1" / "model.onnx"
        for count in range(3):
            graph.write_bytes(bytes(count))
            await catalogue.look()
        assert loads == []
        for _ in range(2):
            await catalogue.look()
        assert loads == ["/v2/repository/models/good/load"]


async def test_a_graph_that_is_not_the_one_of_its_certificate_is_not_loaded(repository: Path) -> None:
    """One version is being copied over another, say, whose card is there already."""
    graph, newer = repository / "good" / "1" / "model.onnx", repository / "bad" / "2"
    whole = graph.read_bytes()
    shutil.copytree(repository / "bad" / "1", newer)
    (newer / "card.json").write_text(json.dumps(json.loads((newer / "card.json").read_text()) | {"version": 2}))
    (newer / "model.onnx").write_bytes(b"another graph")
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        loads = fake.loads
        fault = "is not loaded: model.onnx is not the graph of certificate.json"
        await look_until(catalogue, lambda: catalogue.readiness().reason == f"not served: bad (version 2 {fault})")
        assert catalogue.find("bad").version == 1
        shutil.rmtree(newer)
        await look_until(catalogue, lambda: catalogue.readiness().reason is None)
        loads.clear()
        graph.write_bytes(b"another graph")
        await look_until(catalogue, lambda: catalogue.readiness().reason == f"not served: good (version 1 {fault})")
        assert served(catalogue) == ["bad", "good"]  # what was loaded before
        assert "/v2/repository/models/good/load" not in loads
        graph.write_bytes(whole)
        await look_until(catalogue, lambda: catalogue.readiness().reason is None)
        assert "/v2/repository/models/good/load" in loads


async def test_a_served_version_whose_files_no_longer_load_is_named_until_they_do(repository: Path) -> None:
    (repository / "good" / "1" / "certificate.json").unlink()
    async with looking(repository) as (catalogue, fake):
        fake.wrong = reply(OUTPUT)
        await look_until(catalogue, lambda: catalogue.readiness().ready)
        answer, graph = fake.respond, repository / "good" / "1" / "model.onnx"
        refused = reply('{"error": "load failed: version 1 is at UNAVAILABLE state: no graph"}', tensors=False)
        refused = refused.replace(b"200 OK", b"400 Bad Request")
        fake.respond = lambda path: refused if path.endswith("/load") else answer(path)  # type: ignore[method-assign]
        graph.write_bytes(b"no graph")
        reason = "not served: good (version 1 cannot be loaded by Triton)"
        await look_until(catalogue, lambda: catalogue.readiness().reason == reason)
        assert catalogue.readiness().ready
        assert served(catalogue) == ["bad", "good"]  # what was loaded before stays, until Triton is restarted
        await catalogue.look()
        assert newest_served(catalogue) == {"good": 0.0, "bad": 1.0}
        fake.respond = answer  # type: ignore[method-assign]
        graph.write_bytes(b"a graph")
        await look_until(catalogue, lambda: catalogue.readiness().reason is None)
        await catalogue.look()
        assert newest_served(catalogue) == {"good": 1.0, "bad": 1.0}


async def test_a_card_of_another_model_is_refused(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    change(repository, "bad", model="good")
    async with looking(repository) as (catalogue, _):
        await catalogue.look()
        assert served(catalogue) == ["good"]
    assert "expected the card of bad version 1 but found that of good version 1" in caplog.text


async def test_a_refused_version_leaves_the_one_before_in_place_and_is_counted(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(repository / "good" / "1", repository / "good" / "2")  # its card names version 1
    async with looking(repository) as (catalogue, fake):
        fake.index = reply(
            json.dumps([{"name": "good", "version": number, "state": "READY"} for number in ("1", "2")]), tensors=False
        )
        await catalogue.look()
        assert catalogue.find("good").version == 1
        assert newest_served(catalogue) == {"good": 0.0, "bad": 0.0}
        for name in ("good/2", "bad"):
            shutil.rmtree(repository / name)
        await catalogue.look()
        assert newest_served(catalogue) == {"good": 1.0}
    assert "expected the card of good version 2 but found that of good version 1" in caplog.text
