"""The command: its output, its files and its exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from scipy import io

from petrov_client._codecs import encode_npy as encode
from petrov_client._codecs import encode_safetensors
from petrov_client._commands import cli
from physics import darcy
from serving.version import VERSION
from tests import toy_fields, toy_gauges
from tests.clients.conftest import WARNING, Done
from tests.conftest import Gateway

NPY = {"Content-Type": "application/x-npy"}
FIELD = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4)


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
    smooth = blur(fields)
    file, about = done.stdout.splitlines()
    span = f"{smooth.min():.3g} to {smooth.max():.3g}"
    assert (done.returncode, file) == (0, f"solution [20, 9, 11] {span} -> {tmp_path / 'out.npy'}")
    assert re.fullmatch(r"blur version 1, \d+\.\d\d s", about)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy", allow_pickle=False), smooth, rtol=1e-5)
    assert "blur" in petrov("models", "--url", url).stdout
    assert "coefficient" in petrov("model", "blur", "--url", url).stdout


def test_a_folder_of_zarr_is_an_input(petrov: Callable[..., Done], toy: Any, tmp_path: Path) -> None:
    folder, out, url = tmp_path / "in.zarr", tmp_path / "out.npy", f"http://{toy.address}"
    done = petrov("predict", "toy", folder, out, "--url", url)
    assert "does not exist" in " ".join(done.stderr.split())
    zarr.open_group(str(folder), mode="w").create_array("coefficient", data=np.asarray(FIELD))
    done = petrov("predict", "toy", folder, out, "--url", url)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(out, allow_pickle=False), 2 * FIELD)


def test_models_are_listed(petrov: Callable[..., Done], toy: Any) -> None:
    done = petrov("models", "--url", f"http://{toy.address}")
    assert done.returncode == 0, done.stderr
    for text in ("toy v1 v2", "coefficient", "solution", "2 to 512 points, 2-D"):
        assert text in done.stdout


def test_one_model_is_shown(petrov: Callable[..., Done], toy: Any) -> None:
    done = petrov("model", "toy", PETROV_URL=f"http://{toy.address}")
    assert done.returncode == 0, done.stderr
    for text in ("coefficient", "batch, row, column", "permeability, positive", "85 x 85", "0.0123", WARNING):
        assert text in done.stdout


@pytest.mark.parametrize("arguments", [("models",), ("model", "drift"), ("model", "blur"), ("predict", "--help")])
def test_everything_fits_into_80_columns(petrov: Callable[..., Done], gateway: Any, arguments: tuple[str, ...]) -> None:
    url = () if "--help" in arguments else ("--url", gateway.url)
    done = petrov(*arguments, *url, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "…" not in done.stdout


def test_a_model_of_several_tensors_is_shown(petrov: Callable[..., Done], gateway: Any) -> None:
    shown = petrov("model", "drift", "--url", gateway.url, COLUMNS="80").stdout
    for text in ("density    batch, row, column", "component: x, y", "kg/m3", "time   0 to 2   1         s", "60 x 90"):
        assert text in shown
    listed = petrov("models", "--url", gateway.url, COLUMNS="80").stdout
    for text in ("drift v1", "time = 1", "flux", "4 to 128 points, 2-D"):
        assert text in listed


def test_models_in_json_are_for_programs(petrov: Callable[..., Done], gateway: Any) -> None:
    listed = json.loads(petrov("models", "--json", "--url", gateway.url).stdout)
    drift = next(model for model in listed if model["name"] == "drift")
    assert [each["name"] for each in (*drift["inputs"], *drift["parameters"])] == ["density", "velocity", "time"]
    assert "card" not in drift
    shown = json.loads(petrov("model", "drift", "--json", "--url", gateway.url).stdout)
    assert shown["card"]["title"] == shown["title"] == "A density that drifts"


def test_the_error_on_the_card_is_printed_where_the_model_reports_none(
    petrov: Callable[..., Done], gateway: Any, tmp_path: Path
) -> None:
    np.save(tmp_path / "in.npy", np.ones((16, 16)))
    done = petrov("predict", "blur", tmp_path / "in.npy", tmp_path / "out.npy", "--url", gateway.url)
    assert done.stdout.endswith(" s, mean relative error of test samples 0\n")


def test_an_example_is_written_and_predicted(petrov: Callable[..., Done], gateway: Any, tmp_path: Path) -> None:
    source, truth, out = (tmp_path / name for name in ("in.npz", "truth.npz", "out.npz"))
    done = petrov("example", "drift", source, truth, "--index", 1, "--url", gateway.url)
    assert done.returncode == 0, done.stderr
    assert re.match(r"density \[60, 90\] \S+ to \S+, velocity \[2, 60, 90\] .*, time \[\] ", done.stdout)
    assert petrov("predict", "drift", source, out, "--url", gateway.url).returncode == 0
    for name, array in np.load(out).items():
        np.testing.assert_allclose(array, np.load(truth)[name], rtol=1e-5)


def test_a_new_example_has_a_seed_a_grid_and_a_reference(
    petrov: Callable[..., Done], gateway: Any, tmp_path: Path
) -> None:
    source, out, url = tmp_path / "in.npy", tmp_path / "out.npy", ("--url", gateway.url)
    assert petrov("example", "blur", source, "--seed", 3, "--grid", 20, *url).returncode == 0
    np.testing.assert_array_equal(np.load(source), darcy.example(20, 3).astype(np.float32))
    done = petrov("reference", "blur", source, out, *url)
    assert re.match(r"solution \[20, 20\] .*\nclassical solver, \d+\.\d\d s\n", done.stdout)
    np.testing.assert_allclose(np.load(out), darcy.solve(np.load(source)), rtol=1e-4)
    fails(petrov("example", "blur", source, tmp_path / "truth.npy", *url), 2, "--index chooses one")


def test_an_example_needs_a_file_and_http(petrov: Callable[..., Done], gateway: Any) -> None:
    fails(petrov("example", "blur", "--url", gateway.url), 2, "expected a file for the inputs")
    fails(petrov("example", "blur", "in.npy", "--url", "grpc://127.0.0.1:1"), 2, "needs the gateway's HTTP address")


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_several_arrays_are_predicted_by_name(
    petrov: Callable[..., Done], gateway: Any, tmp_path: Path, scheme: str, suffix: str
) -> None:
    url = gateway.url if scheme == "http" else f"grpc://127.0.0.1:{gateway.settings.grpc_port}"
    inputs = toy_fields.samples(11, (12, 9))
    source, target = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    save(source, inputs | {"truth": inputs["density"]})
    done = petrov("predict", "drift", source, target, "--url", url)
    assert re.match(r"moved \[11, 12, 9\] \S+ to \S+, flux \[11, 2, 12, 9\] \S+ to \S+ -> ", done.stdout)
    assert f" -> {target}\ndrift version 1, " in done.stdout
    assert done.stderr == f"petrov: ignored in {source}: truth\n"
    found = load(target)
    for name, expected in toy_fields.compute(**inputs).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-5)


def test_one_field_and_a_parameter_of_the_command(petrov: Callable[..., Done], gateway: Any, tmp_path: Path) -> None:
    inputs = toy_fields.samples(1, (12, 9)) | {"time": np.array([0.25], np.float32)}
    save(tmp_path / "in.npz", {name: inputs[name][0] for name in ("density", "velocity")})
    command = ("predict", "drift", tmp_path / "in.npz", tmp_path / "out.npz", "--url", gateway.url)
    assert petrov(*command, "-p", "time=0.25").returncode == 0
    moved = np.load(tmp_path / "out.npz")["moved"]
    np.testing.assert_allclose(moved, toy_fields.compute(**inputs)["moved"][0], rtol=1e-5)
    fails(petrov(*command, "-p", "time=9"), 3, "petrov: time is 9.0; expected 0 to 2")
    fails(petrov(*command, "-p", "time"), 2, "expected NAME=NUMBER but got time")
    fails(petrov(*command, "-p", "speed=1"), 3, 'takes "density", "velocity", "time" and no "speed"')


def test_what_is_known_about_errors_is_printed_and_written(
    petrov: Callable[..., Done], gateway: Any, gauged: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    np.save(tmp_path / "in.npy", gauged)
    command = ("predict", "gauge", tmp_path / "in.npy")
    done = petrov(*command, tmp_path / "out.h5", "--url", gateway.url)
    assert done.returncode == 0, done.stderr
    file, about = done.stdout.splitlines()
    assert re.fullmatch(
        r"solution \[20, 8, 9\] [\d.]+ to [\d.]+, error_bound, solve_bound, misfit, error_estimate, novelty -> .*", file
    )
    assert file.endswith(f" -> {tmp_path / 'out.h5'}")
    assert re.match(r"gauge version 1, \d+\.\d\d s, error_bound 0\.00", about)
    assert about.endswith("1 of 20 inputs unlike the training data")
    found = load(tmp_path / "out.h5")
    for name, values in toy_gauges.quality(gauged).items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-7)
    plain = petrov(*command, tmp_path / "out.npy", "--url", gateway.url).stdout.splitlines()
    assert plain[0] == f"{file.partition(', error_bound')[0]} -> {tmp_path / 'out.npy'}"
    assert plain[1].partition(" s, ")[2] == about.partition(" s, ")[2]
    refused = petrov(*command, tmp_path / "out.npz", "--outside", "refuse", "--url", gateway.url)
    fails(refused, 3, "it is unlike the training data")
    solved = petrov(*command, tmp_path / "out.npz", "--tolerance", "1e-4", "--url", gateway.url)
    assert "error_estimate unknown" in solved.stdout
    assert (
        "reports   error_bound, solve_bound, misfit, error_estimate, novelty"
        in petrov("model", "gauge", "--url", gateway.url).stdout
    )


def test_a_wrong_name_is_named(petrov: Callable[..., Done], gateway: Any, tmp_path: Path) -> None:
    url, inputs = ("--url", gateway.url), toy_fields.samples(1, (12, 9))
    save(tmp_path / "in.npz", {"rho": inputs["density"], "velocity": inputs["velocity"]})
    done = petrov("predict", "drift", tmp_path / "in.npz", tmp_path / "out.npz", *url)
    fails(done, 2, f'petrov: expected "density", "velocity" in {tmp_path / "in.npz"} but found "rho", "velocity"; ')
    fails(done, 2, 'missing: "density"\n')
    np.save(tmp_path / "in.npy", inputs["density"])
    done = petrov("predict", "drift", tmp_path / "in.npy", tmp_path / "out.npz", *url)
    fails(done, 2, 'but found "density"; missing: "velocity"')
    save(tmp_path / "in.npz", inputs)
    done = petrov("predict", "drift", tmp_path / "in.npz", tmp_path / "out.npy", *url)
    fails(done, 2, 'ends in .npz or .nc4 or .nc or .mat or .hdf5 or .h5 for "moved", "flux"')


def save(path: Path, arrays: dict[str, Any]) -> None:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
        return
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def load(path: Path) -> dict[str, Any]:
    if path.suffix == ".npz":
        return dict(np.load(path))
    with h5py.File(path) as file:
        return {name: dataset[...] for name, dataset in file.items()}


def test_a_file_is_predicted_into_a_file(petrov: Callable[..., Done], toy: Any, source: Path, tmp_path: Path) -> None:
    done = petrov("predict", "toy", source, tmp_path / "out.npy", "--url", f"http://{toy.address}", PETROV_API_KEY="k")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("solution [3, 4]")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy", allow_pickle=False), 2 * FIELD)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npy", "out.npy"]
    assert {headers["authorization"] for _, _, headers in toy.seen} == {"Bearer k"}


def test_an_empty_key_is_none(petrov: Callable[..., Done], toy: Any) -> None:
    assert petrov("models", "--url", f"http://{toy.address}", PETROV_API_KEY="").returncode == 0
    assert not [headers for _, _, headers in toy.seen if "authorization" in headers]


def test_a_file_may_lack_the_first_input_where_it_has_a_default(
    petrov: Callable[..., Done], toy: Any, tmp_path: Path
) -> None:
    status, headers, body = toy.replies["/v1/models/toy"][0]
    document = json.loads(body)
    given = document["card"]["inputs"][0]
    document["card"]["inputs"] = [given | {"name": "source", "default": 0.0}, given, given | {"name": "more"}]
    safetensors = {"Content-Type": "application/vnd.safetensors"}
    toy.replies["/v1/models/toy"] = [(status, headers, json.dumps(document).encode())]
    toy.replies["/v1/models/toy/predict"] = [(200, safetensors, encode_safetensors({"solution": 2 * FIELD[None]}))]
    save(tmp_path / "in.npz", {"coefficient": FIELD, "more": FIELD})
    done = petrov("predict", "toy", tmp_path / "in.npz", tmp_path / "out.npz", "--url", f"http://{toy.address}")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(load(tmp_path / "out.npz")["solution"], 2 * FIELD)


@pytest.mark.parametrize("name", ["in.csv", "in.pvd", "nothing.vts"])
def test_a_file_of_another_suffix_is_told_which_hold_numbers(
    petrov: Callable[..., Done], toy: Any, tmp_path: Path, name: str
) -> None:
    (tmp_path / "in.csv").write_text("1,2\n")
    (tmp_path / "in.pvd").write_text("<VTKFile/>")
    done = petrov("predict", "toy", tmp_path / name, tmp_path / "out.npy", "--url", f"http://{toy.address}")
    fails(done, 2, 'petrov: "toy" takes numbers and no text: expected a file that ends in .e or ')
    fails(done, 2, f"but got {tmp_path / name}"[:60])


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_letters_that_an_output_does_not_have_are_escaped(
    toy: Any, description: Callable[..., Any], encoding: str
) -> None:
    """As of a pipe in Windows, or in a locale of another alphabet."""
    status, headers, body = description()
    toy.replies["/v1/models/toy"] = [
        (status, headers, body.replace(b"A toy", "\N{GREEK CAPITAL LETTER DELTA}²".encode()))
    ]

    def printed(*arguments: str) -> str:
        command = [sys.executable, "-m", "petrov_client", "model", "toy", "--url", f"http://{toy.address}", *arguments]
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(command, check=True, capture_output=True, env=environment)
        return done.stdout.decode(encoding)

    assert "\\u0394" in printed()
    assert json.loads(printed("--json"))["title"] == "\N{GREEK CAPITAL LETTER DELTA}²"


def test_hdf5_goes_in_and_out_by_the_names_of_the_card(petrov: Callable[..., Done], toy: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["coefficient"], file["other"] = FIELD, np.zeros(3)
    done = petrov("predict", "toy", tmp_path / "in.h5", tmp_path / "out.h5", "--url", f"http://{toy.address}")
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_array_equal(file["solution"][...], 2 * FIELD)
        assert dict(file["solution"].attrs) == {"units": "1", "meaning": "pressure"}


def test_matlab_goes_in_and_out_whichever_version_wrote_it(
    petrov: Callable[..., Done], toy: Any, tmp_path: Path
) -> None:
    io.savemat(tmp_path / "in.mat", {"coefficient": FIELD, "other": "text"})
    with h5py.File(tmp_path / "new.mat", "w", userblock_size=512) as file:  # 7.3, with the axes in reverse
        file["coefficient"] = FIELD.T
    with (tmp_path / "new.mat").open("r+b") as head:
        head.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    for name in ("in.mat", "new.mat"):
        done = petrov("predict", "toy", tmp_path / name, tmp_path / "out.mat", "--url", f"http://{toy.address}")
        assert done.returncode == 0, done.stderr
        found = io.loadmat(tmp_path / "out.mat")["solution"]
        assert (found == 2 * FIELD).all()
    io.savemat(tmp_path / "in.mat", {"coefficient": FIELD}, do_compression=True)
    whole = (tmp_path / "in.mat").read_bytes()
    for name, content in (("none.mat", bytes(200)), ("cut.mat", whole[:-9]), ("bits.mat", whole[:-9] + bytes(9))):
        (tmp_path / name).write_bytes(content)
        done = petrov("predict", "toy", tmp_path / name, tmp_path / "out.mat", "--url", f"http://{toy.address}")
        fails(done, 2, f"petrov: expected a MATLAB file in {tmp_path / name} but: ")


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
    done = petrov("models", "--url", f"{scheme}://{closed_port}")
    fails(done, 5, f"petrov: no response from {closed_port}")
    assert done.stderr.endswith(": does a service run there? --url or PETROV_URL names another address\n")


def test_an_address_of_nothing_ends_with_2(petrov: Callable[..., Done]) -> None:
    fails(petrov("models", "--url", "localhost"), 2, "petrov: expected an address such as")


@pytest.mark.parametrize(
    ("name", "content"), [("a.npy", b"text"), ("empty.npy", b""), ("a.h5", b"text"), ("a.npz", b"PK")]
)
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
    np.savez(tmp_path / "objects.npz", coefficient=np.array([print], dtype=object))
    done = petrov("predict", "toy", tmp_path / "objects.npz", tmp_path / "out.npy", "--url", f"http://{toy.address}")
    fails(done, 2, f'petrov: expected numbers in "coefficient" in {tmp_path / "objects.npz"} but: ')


def test_an_impossible_output_file_is_refused_before_any_request(
    petrov: Callable[..., Done], toy: Any, source: Path, tmp_path: Path
) -> None:
    url = ("--url", f"http://{toy.address}")
    fails(petrov("predict", "toy", source, tmp_path / "out.txt", *url), 2, "ends in .npz or .npy or")
    fails(petrov("predict", "toy", source, tmp_path / "nowhere" / "out.npy", *url), 2, "there is no folder")
    assert toy.seen == []


def test_a_missing_input_ends_with_2(petrov: Callable[..., Done], tmp_path: Path) -> None:
    fails(petrov("predict", "toy", tmp_path / "no.npy", tmp_path / "out.npy"), 2, "does not exist")


@pytest.mark.filterwarnings("ignore::petrov_client.OutsideTrainingWarning")
def test_a_rollout_that_ends_early_keeps_its_frames_on_request(
    petrov: Callable[..., Done], gateway: Gateway, tmp_path: Path
) -> None:
    np.save(tmp_path / "start.npy", np.full((1, 16), 1e30, np.float32))  # times 9 it is beyond float32 in frame 9
    command = ("rollout", "growth", tmp_path / "start.npy", tmp_path / "out.h5", "--url", gateway.url, "--frames", 40)
    done = petrov(*command, "--parameter", "rate=9")
    assert (done.returncode, "is not finite" in done.stderr) == (4, True)
    assert {path.name for path in tmp_path.iterdir()} == {"start.npy", "out.h5.partial"}
    done = petrov(*command, "--parameter", "rate=9", "--partial", "--resume")  # no frame is computed again
    assert (done.returncode, "after frame 8 of 40" in done.stderr) == (4, True)
    assert done.stdout.startswith("state [1, 8, 16] 9e+30 to ")
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["state"].shape == (1, 8, 16)


def test_a_warning_is_a_line_without_code(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def command(prog_name: str) -> None:
        said.append(warnings.formatwarning(f"{prog_name} is not sure", UserWarning, "cli.py", 1))
        raise SystemExit(0)

    usual = warnings.formatwarning
    monkeypatch.setattr(cli, "app", command)
    with pytest.raises(SystemExit):
        cli.run()
    assert said == ["petrov: petrov is not sure\n"]
    assert warnings.formatwarning is usual
