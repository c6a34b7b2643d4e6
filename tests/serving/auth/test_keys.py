"""Keys and their file: what is written, what is read, what changes while a service runs, and the command."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from serving import auth
from serving.__main__ import commands
from serving.auth import KeyFile, KeysError, Scope

INFER = (Scope.INFER,)
HASH = "0123456789abcdef" * 4


def entry(**change: str) -> str:
    fields = {"name": '"alice"', "scopes": '["infer"]', "sha256": f'"{HASH}"'} | change
    return "\n".join(["[[key]]", *(f"{name} = {value}" for name, value in fields.items() if value), ""])


def test_a_key_is_found_by_itself_and_by_nothing_else() -> None:
    made = [auth.make_key(name, INFER) for name in ("alice", "bob", "carol")]
    ring = auth.Keys(key=tuple(entry for _, entry in made))
    for secret, known in made:
        assert ring.find(secret) is known
    secret, known = made[1]
    for other in ("", secret[:-1], secret + "x", secret.upper(), known.sha256, "ключ"):
        assert ring.find(other) is None


def test_a_key_has_256_random_bits_and_only_its_hash_is_kept() -> None:
    secret, known = auth.make_key("alice", INFER)
    assert len(secret.removeprefix(auth.PREFIX)) * 6 >= 256
    assert known.sha256 == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in known.text()
    assert auth.make_key("alice", INFER)[0] != secret


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", fullmatch=True),
    st.lists(st.sampled_from(Scope), min_size=1, max_size=3).map(tuple),
    st.none() | st.floats(auth.LEAST_RATE, auth.MOST),
    st.none() | st.integers(1, auth.MOST),
)
def test_an_entry_is_read_as_it_was_written(
    name: str, scopes: tuple[Scope, ...], rate: float | None, burst: int | None
) -> None:
    _, known = auth.make_key(name, scopes, rate, burst if rate else None)
    assert auth.parse_keys("# by hand\n" + known.text()).key == (known,)


def test_scopes_are_kept_apart_and_admin_is_for_everything() -> None:
    [key] = auth.parse_keys(entry()).key
    assert [key.may(scope) for scope in (Scope.INFER, Scope.METRICS, Scope.ADMIN)] == [True, False, False]
    [admin] = auth.parse_keys(entry(scopes='["admin"]')).key
    assert all(admin.may(scope) for scope in Scope)


def test_a_burst_is_a_seconds_worth_unless_it_says_otherwise() -> None:
    limits = [
        auth.parse_keys(entry(**given)).key[0].limit for given in ({"rate": "0.5"}, {"rate": "9", "burst": "70"}, {})
    ]
    assert limits == [(0.5, 1), (9.0, 70), None]


BAD = {
    "not TOML": ("[[key]", "not TOML: "),
    "deep": ("a = " + "[" * 5000, "not TOML: "),
    "number without end": ("a = " + "9" * 5000, "not TOML: "),
    "endless wait": (entry(rate="1e-300"), "key.0.rate: "),
    "burst beyond floats": (entry(rate="1.0", burst="1" + "0" * 400), "key.0.burst: "),
    "no name": (entry(name=""), r"key\.0\.name: Field required"),
    "name with a space": (entry(name='"the king"'), r"key\.0\.name: String should match"),
    "no scope": (entry(scopes="[]"), r"key\.0\.scopes: "),
    "unknown scope": (entry(scopes='["root"]'), r"key\.0\.scopes\.0: Input should be 'infer', 'metrics' or 'admin'"),
    "the key itself": (entry(sha256='"petrov_hidden"'), r"key\.0\.sha256: String should match"),
    "unknown field": (entry(sha265=f'"{HASH}"'), r"key\.0\.sha265: Extra inputs"),
    "no rate": (entry(rate="0.0"), r"key\.0\.rate: "),
    "nan": (entry(rate="nan"), r"key\.0\.rate: "),
    "burst alone": (entry(burst="3"), r"key\.0: expected a rate beside burst"),
    "twice": (entry() + entry(sha256=f'"{HASH[::-1]}"'), "two have the same name"),
    "one key of two": (entry() + entry(name='"bob"'), "two have the same sha256"),
    "other table": ("[keys]\n", "keys: Extra inputs"),
    "many": (
        "".join(entry(name=f'"a{number}"', sha256=f'"{number:064}"') for number in range(auth.MAX_KEYS + 1)),
        "key: .* at most 1000 items",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_is_none_says_where_and_repeats_nothing(case: str) -> None:
    text, message = BAD[case]
    with pytest.raises(KeysError, match=message) as caught:
        auth.parse_keys(text)
    assert "hidden" not in str(caught.value)
    assert caught.value.__cause__ is None or "hidden" not in str(caught.value.__cause__)


def test_the_file_is_followed_while_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(entry())
    file = KeyFile(path)
    (tmp_path / "other.toml").write_text(entry(name='"bob"'))
    path.unlink()
    path.symlink_to("other.toml")  # as Kubernetes changes a file
    file.refresh()
    assert [key.name for key in file.keys.key] == ["bob"]
    path.write_text("")
    file.refresh()
    assert file.keys.key == ()
    assert [record.levelno for record in caplog.records if record.levelno > logging.INFO] == []


def test_a_file_that_is_being_written_is_read_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(entry())
    file = KeyFile(path)
    path.write_text("")  # as an editor does before it writes
    monkeypatch.setattr("serving.auth.time.sleep", lambda _: path.write_text(entry(name='"bob"')))
    file.refresh()
    assert [key.name for key in file.keys.key] == ["alice"]
    file.refresh()
    assert [key.name for key in file.keys.key] == ["bob"]


@pytest.mark.parametrize("broken", [b'[[key]]\nname = "petrov_hidden', b"\xff\n", b"#" * (2**20 + 1), None])
def test_a_broken_edit_changes_nothing_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: bytes | None
) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(entry())
    file = KeyFile(path)
    path.unlink()
    if broken is not None:
        path.write_bytes(broken)
    for _ in range(3):
        file.refresh()
    assert ([key.name for key in file.keys.key], file.is_current) == (["alice"], False)
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage().startswith(f"{path}: ")
    assert "the keys stay as they were" in record.getMessage()
    assert "hidden" not in caplog.text
    path.write_text(entry(name='"bob"'))
    file.refresh()
    assert ([key.name for key in file.keys.key], file.is_current) == (["bob"], True)


def test_a_pipe_in_place_of_the_file_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(entry())
    file = KeyFile(path)
    path.unlink()
    os.mkfifo(path)
    for _ in range(2):
        file.refresh()
    assert [key.name for key in file.keys.key] == ["alice"]
    assert caplog.text.count("expected a regular file; the keys stay as they were") == 1


def test_a_service_does_not_start_without_its_file(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match=r"keys\.toml: cannot be read: No such file"):
        KeyFile(tmp_path / "keys.toml")
    with pytest.raises(KeysError, match="cannot be read: Is a directory"):
        KeyFile(Path())  # PETROV_KEYS is set, and empty


def test_an_entry_is_added_and_nothing_else_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    path.write_text("# ours\n" + entry())
    path.chmod(0o640)
    secret, known = auth.make_key("bob", INFER)
    auth.append_key(link, known)
    assert path.read_text() == "# ours\n" + entry() + "\n" + known.text()
    assert path.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert KeyFile(link).keys.find(secret) == known
    with pytest.raises(KeysError, match="two have the same name"):
        auth.append_key(link, auth.make_key("bob", INFER)[1])
    assert sorted(file.name for file in tmp_path.iterdir()) == [".keys.toml.lock", "keys.toml", "link.toml"]


def test_the_command_prints_a_key_once_and_adds_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    options = ["--scope", "infer", "--scope", "metrics", "--rate", "100", "--burst", "500"]
    done = CliRunner().invoke(commands, ["key", "alice", *options], env={"PETROV_KEYS": str(path)})
    assert (done.exit_code, done.stderr) == (0, "")
    found = KeyFile(path).keys.find(done.stdout.strip())
    assert found is not None
    assert (found.name, found.scopes, found.limit) == ("alice", (Scope.INFER, Scope.METRICS), (100.0, 500))


def test_the_command_shows_the_entry_where_there_is_no_file() -> None:
    done = CliRunner().invoke(commands, ["key", "alice"], env={"PETROV_KEYS": None})
    assert done.exit_code == 0
    opening, _, text = done.stderr.partition("\n")
    assert "PETROV_KEYS" in opening
    assert auth.parse_keys(text).find(done.stdout.strip()) is not None


@pytest.mark.parametrize("arguments", [["the king"], ["alice", "--burst", "3"], ["alice", "--rate", "0"]])
def test_the_command_refuses_what_cannot_be(tmp_path: Path, arguments: list[str]) -> None:
    path = tmp_path / "keys.toml"
    done = CliRunner().invoke(commands, ["key", *arguments, "--file", str(path)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert not path.exists()
