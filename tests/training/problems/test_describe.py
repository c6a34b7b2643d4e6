"""`make describe` and `python -m training describe`: a problem file from a data file, without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.toy_meshes import write_stars
from training.data.prepare import data_files, prepare
from training.problems.problem_file import read_problem_file

ROOT = Path(__file__).parents[3]
#: Run in an environment without the packages that only training needs.
WITHOUT_TORCH = """
import sys
sys.modules |= dict.fromkeys(("torch", "lightning", "jaxtyping", "matplotlib"))
from training.commands import app, main
"""
COMMAND = f"{WITHOUT_TORCH}main()"
BETWEEN = "-" * 60
#: Describe each file that is named, in one process.
ONE_BY_ONE = f"""{WITHOUT_TORCH}
for name in sys.argv[1:]:
    app(["describe", name], standalone_mode=False)
    print("{BETWEEN}", flush=True)
"""


def run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def make(folder: Path, **variables: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `make describe` with the installed environment."""
    installed = {"READ": "", "APP": "", "BIN": Path(sys.prefix) / "bin"}
    settings = [f"{name}={value}" for name, value in (installed | variables).items()]
    return run("make", "--no-print-directory", "-f", ROOT / "Makefile", "describe", *settings, folder=folder)


def write_heat(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    k = np.random.default_rng(0).random((30, 8, 8)) + 1
    with h5py.File(path, "w") as file:
        file["k"], file["T"] = k, 1 / k
    return path


def test_make_writes_a_problem_file_where_it_is_called_and_keeps_it(tmp_path: Path) -> None:
    write_heat(tmp_path / "my data" / "heat.h5")
    done = make(tmp_path, FILE="my data/heat.h5")
    assert done.returncode == 0, done.stderr
    assert "which arrays are outputs (line " in done.stderr
    assert "are not there" not in done.stderr
    done = make(tmp_path, FILE="my data/heat.h5", OUTPUTS="T")  # as the draft has not been edited
    assert done.returncode == 0, done.stderr
    assert "make train export serve PROBLEM=heat.toml" in done.stderr
    assert "which arrays" not in done.stderr
    assert (tmp_path / "heat.toml").read_text() == done.stdout
    problem = read_problem_file(tmp_path / "heat.toml")
    assert problem.data.files == ("my data/heat.h5",)
    assert prepare(problem, tmp_path, tmp_path / "data").exists()

    (tmp_path / "heat.toml").write_text("mine")
    done = make(tmp_path, FILE="my data/heat.h5")
    assert done.returncode
    assert "heat.toml exists, and is not overwritten" in done.stderr
    assert (tmp_path / "heat.toml").read_text() == "mine"


@pytest.mark.deep
def test_an_unedited_draft_is_written_anew_for_another_file_of_the_same_name(tmp_path: Path) -> None:
    write_heat(tmp_path / "heat.h5")
    assert make(tmp_path, FILE="heat.h5").returncode == 0
    with h5py.File(tmp_path / "heat.h5", "w") as file:
        file["flux"] = file["load"] = np.random.default_rng(1).random((30, 9, 9))
    done = make(tmp_path, FILE="heat.h5", OUTPUTS="flux")
    assert done.returncode == 0, done.stderr
    assert read_problem_file(tmp_path / "heat.toml").output_names == ("flux",)
    text = (tmp_path / "heat.toml").read_text()
    (tmp_path / "heat.toml").write_text(text.replace('units = "1"', 'units = "W"'))
    assert "is not overwritten" in make(tmp_path, FILE="heat.h5", OUTPUTS="load").stderr


def test_checking_a_problem_file_needs_no_torch_and_says_what_was_read_and_guessed(tmp_path: Path) -> None:
    write_heat(tmp_path / "my data [1]" / "heat.h5")
    named = ("--outputs", "T", "--write")
    done = run(sys.executable, "-c", COMMAND, "describe", "my data [1]/heat.h5", *named, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "heat.toml").rename(tmp_path / "my heat.toml")
    done = run(sys.executable, "-c", COMMAND, "check", "my heat.toml", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "24 training, 3 validation and 3 test samples" in said
    assert "axes.row.length was guessed: 1.0" in said
    assert "make train export serve PROBLEM='my heat.toml'" in said
    written = (tmp_path / "my heat.toml").read_text().replace('key = "k"', 'key = "K"')
    (tmp_path / "my heat.toml").write_text(written)
    done = run(sys.executable, "-c", COMMAND, "check", "my heat.toml", folder=tmp_path)
    said = " ".join(done.stderr.split())
    assert "expected an array 'K' but found T [30 x 8 x 8] float64, k [30 x 8 x 8] float64" in said


def test_an_unconfirmed_problem_file_is_refused_before_torch_is_installed_or_imported(tmp_path: Path) -> None:
    write_heat(tmp_path / "heat.h5")
    assert make(tmp_path, FILE="heat.h5").returncode == 0
    (tmp_path / "heat.toml").rename(tmp_path / "my heat.toml")
    begun = run(sys.executable, "-c", COMMAND, "fit", "my heat.toml", folder=tmp_path)
    assert begun.returncode == 1
    assert "which arrays are outputs" in " ".join(begun.stderr.split())
    begun = run(sys.executable, "-c", COMMAND, "fit", "heat.toml", folder=tmp_path)
    assert (begun.returncode, begun.stderr) == (1, "heat.toml: expected a TOML file but found none\n")
    installed = ("SERVE=", "READ=", "APP=torch", f"BIN={Path(sys.prefix) / 'bin'}")
    done = run(
        "make",
        "--no-print-directory",
        "-f",
        ROOT / "Makefile",
        "train",
        "PROBLEM=my heat.toml",
        *installed,
        folder=tmp_path,
    )
    assert done.returncode
    assert "which arrays are outputs" in done.stderr
    assert "torch" not in done.stdout


def test_make_exports_the_run_that_is_named_and_no_other_model(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\n")  # which installs the released models
    (tmp_path / "python").chmod(0o755)

    def make_export(*settings: str) -> subprocess.CompletedProcess[str]:
        command = ("make", "--no-print-directory", "-f", ROOT / "Makefile", "export", *settings)
        return run(*command, "SERVE=", "APP=", f"BIN={tmp_path}", folder=tmp_path)

    def export(text: str, *settings: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "heat.toml").write_text(text)
        return make_export("PROBLEM=heat.toml", *settings)

    for name in ('name = "heat"', "  name='heat'  # of the model"):
        done = export(f"{name}\n[data]\n")
        assert done.returncode
        assert "no finished run in runs/heat-quick: make train PROBLEM=heat.toml PRESET=quick first" in done.stderr
    for text in ("[data]\n", 'name = "x; touch ran; true"\nname = "heat"\n'):  # which the shell would run
        done = export(text)
        assert done.returncode
        assert "heat.toml: expected a problem file, which names the model in a to z, 0 to 9 and _" in done.stderr
    assert not (tmp_path / "ran").exists()
    done = export('name = "heat"\n', "MODEL=plate")
    assert done.returncode
    assert "MODEL=plate: expected no MODEL beside PROBLEM=heat.toml" in done.stderr
    for named, run_folder in (("MODEL=heat", "heat-quick"), ("PRESET=laptop", "darcy-laptop")):
        done = make_export(named)  # which exported the released models, and not what was named
        assert done.returncode
        assert f"no finished run in runs/{run_folder}: make train MODEL=" in done.stderr
    assert make_export().returncode == 0


def test_make_releases_all_files_of_a_run_that_has_ended(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\n")  # which exports
    (tmp_path / "python").chmod(0o755)
    trained, released = tmp_path / "runs/heat-quick", tmp_path / "checkpoints/heat"
    for folder, names in ((trained, ("weights", "examples")), (released, ("weights", "calibration"))):
        folder.mkdir(parents=True)
        for name in names:
            (folder / f"{name}.safetensors").write_text(folder.name)
    (trained / "config.json").touch()
    (trained / "recipe.json").touch()

    def release(target: str) -> subprocess.CompletedProcess[str]:
        command = ("make", "--no-print-directory", "-f", ROOT / "Makefile", target, "MODEL=heat")
        return run(*command, "SERVE=", "APP=", f"BIN={tmp_path}", folder=tmp_path)

    for target in ("release", "export"):
        done = release(target)
        assert done.returncode
        assert "the training in runs/heat-quick has not ended: make train MODEL=heat PRESET=quick" in done.stderr
    (trained / "recipe.json").unlink()
    assert release("release").returncode  # there is no card
    assert {path.name: path.read_text() for path in released.glob("*.safetensors")} == dict.fromkeys(
        ("weights.safetensors", "calibration.safetensors"), "heat"
    )
    (trained / "card.json").touch()
    done = release("release")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in released.iterdir()} == {
        *("weights.safetensors", "config.json", "card.json", "examples.safetensors")
    }
    assert (released / "weights.safetensors").read_text() == "heat-quick"


def test_make_asks_for_a_file_before_it_installs_anything(tmp_path: Path) -> None:
    done = make(tmp_path, READ="packages", APP="torch")
    assert done.returncode
    assert "make describe FILE=heat.h5" in done.stderr


@pytest.mark.deep
def test_a_file_elsewhere_and_a_folder_are_named_from_here(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    write_heat(tmp_path / "else[1]" / "heat.h5")
    write_stars(tmp_path / "stars", 3)
    sources = ("../else[1]/heat.h5", "T", "else*/heat.h5"), (tmp_path / "stars", "solution", "stars/*.vtu")
    for source, output, pattern in sources:
        done = make(tmp_path / "here", FILE=source, OUTPUTS=output)
        assert done.returncode == 0, done.stderr
        path = tmp_path / "here" / f"{Path(source).stem}.toml"
        files = data_files(read_problem_file(path), path.parent)
        assert [file.resolve() for file in files] == sorted(tmp_path.glob(pattern))


@pytest.mark.deep
def test_describing_needs_no_torch(tmp_path: Path) -> None:
    names = ("poisson.h5", "heat.npz", "heat.nc", "stars")
    for name in ("poisson.h5", "heat.nc"):
        write_heat(tmp_path / name)
    np.savez(tmp_path / "heat.npz", k=np.ones((30, 8, 8)), T=np.ones((30, 8, 8)))
    write_stars(tmp_path / "stars", 2)
    done = run(sys.executable, "-c", ONE_BY_ONE, *names, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    drafts = done.stdout.split(BETWEEN)[:-1]
    assert len(drafts) == len(names)
    assert all("files = [" in draft for draft in drafts)
    assert not list(tmp_path.glob("*.toml"))


def test_a_file_that_needs_torch_says_so(tmp_path: Path) -> None:
    (tmp_path / "heat.pt").write_bytes(b"PK")
    done = run(sys.executable, "-c", COMMAND, "describe", "heat.pt", folder=tmp_path)
    assert done.returncode == 1
    assert "make describe FILE=heat.pt installs it" in " ".join(done.stderr.split())


@pytest.mark.deep
def test_several_files_are_named_by_a_pattern(tmp_path: Path) -> None:
    for index in range(3):
        write_heat(tmp_path / f"heat{index}.h5")
    done = make(tmp_path, FILE="heat?.h5", OUTPUTS="T")
    assert done.returncode == 0, done.stderr
    assert read_problem_file(tmp_path / "heat.toml").data.files == ("heat*.h5",)
    (tmp_path / "heat-old.h5").write_bytes(b"")
    assert make(tmp_path, FILE="heat[12].h5", OUTPUTS="T").returncode == 0
    assert read_problem_file(tmp_path / "heat1.toml").data.files == ("heat1.h5", "heat2.h5")


def test_chunks_that_a_file_lacks_are_named_at_first_sight(tmp_path: Path) -> None:
    with h5py.File(write_heat(tmp_path / "heat.h5"), "a") as file:
        file.create_dataset("q", (30, 8, 8), np.float64, chunks=(1, 8, 8))[:20] = 1.0
    done = run(sys.executable, "-c", COMMAND, "describe", tmp_path / "heat.h5", "--outputs", "T", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "heat.h5: 10 of 30 chunks of 'q' are not there, and read as 0.0: nothing wrote them" in said
    assert "are not there" not in done.stdout


def test_a_file_name_of_other_bytes_than_utf_8_is_named(tmp_path: Path) -> None:
    write_heat(tmp_path / os.fsdecode(b"m\xfcller.h5"))
    done = make(tmp_path, FILE=os.fsdecode(b"m\xfcller.h5"))
    assert done.returncode
    assert "m\\udcfcller.h5" in done.stderr
    assert "expected names in UTF-8" in done.stderr
    assert "Traceback" not in done.stderr
    assert not [*tmp_path.glob("*.toml")]
