"""The command: its output, its files and its exit codes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

from petrov_client.__main__ import main
from petrov_client._npy import encode
from serving.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

NPY = {"Content-Type": "application/x-npy"}
FIELD = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4)


@dataclass(frozen=True)
class Done:
    """The result of a run of the command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def petrov(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run the command in this process, with these arguments and without PETROV variables in the environment."""

    def run(*arguments: object, **environment: str) -> Done:
        for name in ("PETROV_URL", "PETROV_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {"COLUMNS": "200", **environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["petrov", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return Done(int(end.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def toy(http_service: Any, description: Callable[..., Any]) -> Any:
    """Return a service whose prediction is twice the field above."""
    http_service.replies = {
        "/v1/models": [(200, {"Content-Type": "application/json"}, b'{"models": [{"name": "toy"}]}')],
        "/v1/models/toy": [description()],
        "/v1/models/toy/predict": [(200, NPY, encode(2 * FIELD[np.newaxis]))],
    }
    return http_service


@pytest.fixture
def source(tmp_path: Path) -> Path:
    np.save(tmp_path / "in.npy", FIELD)
    return tmp_path / "in.npy"


def test_the_version_is_printed(petrov: Callable[..., Done]) -> None:
    assert petrov("--version").stdout == f"petrov-client {VERSION}\n"


def test_help_teaches(petrov: Callable[..., Done]) -> None:
    done = petrov("--help")
    assert done.returncode == 0
    for text in ("models", "predict", "PETROV_API_KEY", "Exit codes"):
        assert text in done.stdout
    assert "petrov predict darcy permeability.npy pressure.npy" in petrov("predict", "--help").stdout


@pytest.mark.parametrize(
    "command", [[Path(sys.executable).with_name("petrov")], [sys.executable, "-m", "petrov_client"]]
)
def test_it_is_a_program(toy: Any, source: Path, tmp_path: Path, command: list[Any]) -> None:
    out, url = tmp_path / "out.npy", f"http://{toy.address}"
    done = subprocess.run([*command, "predict", "toy", source, out, "--url", url], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(out, allow_pickle=False), 2 * FIELD)


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_it_predicts_with_a_real_service(
    petrov: Callable[..., Done], gateway: Any, triton: Any, blur: Any, tmp_path: Path, scheme: str
) -> None:
    url = gateway.url if scheme == "http" else f"grpc://127.0.0.1:{triton.settings.triton_grpc_port}"
    fields = np.random.default_rng(3).uniform(3, 12, (20, 9, 11))
    np.save(tmp_path / "in.npy", fields)
    done = petrov("predict", "blur", tmp_path / "in.npy", tmp_path / "out.npy", "--progress", "--url", url)
    assert (done.returncode, done.stdout) == (0, f"solution [20, 9, 11] -> {tmp_path / 'out.npy'}\n")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy", allow_pickle=False), blur(fields), rtol=1e-5)
    assert "blur" in petrov("models", "--url", url).stdout
    assert "coefficient" in petrov("model", "blur", "--url", url).stdout


def test_models_are_listed(petrov: Callable[..., Done], toy: Any) -> None:
    done = petrov("models", "--url", f"http://{toy.address}")
    assert done.returncode == 0, done.stderr
    for text in ("toy", "1, 2", "coefficient (batch, row, column): permeability", "solution", "2 to 512"):
        assert text in done.stdout


def test_one_model_is_shown(petrov: Callable[..., Done], toy: Any) -> None:
    done = petrov("model", "toy", PETROV_URL=f"http://{toy.address}")
    assert done.returncode == 0, done.stderr
    for text in ("coefficient (batch, row, column): permeability in units of 1, positive", "85 x 85", "0.0123"):
        assert text in done.stdout


def test_a_file_is_predicted_into_a_file(petrov: Callable[..., Done], toy: Any, source: Path, tmp_path: Path) -> None:
    done = petrov("predict", "toy", source, tmp_path / "out.npy", "--url", f"http://{toy.address}", PETROV_API_KEY="k")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("solution [3, 4]")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy", allow_pickle=False), 2 * FIELD)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npy", "out.npy"]
    assert {headers["authorization"] for _, _, headers in toy.seen} == {"Bearer k"}


def test_hdf5_goes_in_and_out_by_the_names_of_the_card(petrov: Callable[..., Done], toy: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["coefficient"], file["other"] = FIELD, np.zeros(3)
    done = petrov("predict", "toy", tmp_path / "in.h5", tmp_path / "out.h5", "--url", f"http://{toy.address}")
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_array_equal(file["solution"][...], 2 * FIELD)
        assert dict(file["solution"].attrs) == {"units": "1", "meaning": "pressure"}


def test_progress_goes_to_the_error_stream(petrov: Callable[..., Done], toy: Any, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npy"
    done = petrov("predict", "toy", source, out, "--progress", "--url", f"http://{toy.address}")
    assert done.returncode == 0
    assert "1/1" in done.stderr


def fails(done: Done, code: int, message: str) -> None:
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_refused_request_ends_with_3(petrov: Callable[..., Done], toy: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "bad.npy", -FIELD)
    done = petrov("predict", "toy", tmp_path / "bad.npy", tmp_path / "out.npy", "--url", f"http://{toy.address}")
    fails(done, 3, "petrov: coefficient[0,0] is -1.0; permeability must be positive\n")
    assert not (tmp_path / "out.npy").exists()


def test_a_failing_service_ends_with_4(petrov: Callable[..., Done], toy: Any, source: Path, tmp_path: Path) -> None:
    toy.replies["/v1/models/toy/predict"] = [(500, {}, b"")]
    done = petrov("predict", "toy", source, tmp_path / "out.npy", "--url", f"http://{toy.address}")
    fails(done, 4, "petrov: the service responded with status 500\n")


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_missing_server_ends_with_5(petrov: Callable[..., Done], closed_port: str, scheme: str) -> None:
    fails(petrov("models", "--url", f"{scheme}://{closed_port}"), 5, f"petrov: no response from {closed_port}")


def test_an_address_of_nothing_ends_with_2(petrov: Callable[..., Done]) -> None:
    fails(petrov("models", "--url", "localhost"), 2, "petrov: expected an address such as")


@pytest.mark.parametrize(("name", "content"), [("a.npy", b"text"), ("empty.npy", b""), ("a.h5", b"text")])
def test_a_file_of_something_else_ends_with_2(
    petrov: Callable[..., Done], toy: Any, tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    done = petrov("predict", "toy", tmp_path / name, tmp_path / "out.npy", "--url", f"http://{toy.address}")
    fails(done, 2, "petrov: ")


def test_a_pickle_is_not_opened(petrov: Callable[..., Done], toy: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([print], dtype=object))
    done = petrov("predict", "toy", tmp_path / "objects.npy", tmp_path / "out.npy", "--url", f"http://{toy.address}")
    fails(done, 2, "petrov: expected a .npy file of numbers")


def test_an_impossible_output_file_is_refused_before_any_request(
    petrov: Callable[..., Done], toy: Any, source: Path, tmp_path: Path
) -> None:
    url = ("--url", f"http://{toy.address}")
    fails(petrov("predict", "toy", source, tmp_path / "out.txt", *url), 2, "ends in .npy")
    fails(petrov("predict", "toy", source, tmp_path / "nowhere" / "out.npy", *url), 2, "there is no folder")
    assert toy.seen == []


def test_a_missing_input_ends_with_2(petrov: Callable[..., Done], tmp_path: Path) -> None:
    fails(petrov("predict", "toy", tmp_path / "no.npy", tmp_path / "out.npy"), 2, "does not exist")
