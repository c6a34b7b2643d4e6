"""Run the examples of the README and of docs/ as printed, against the released models."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import physics.darcy
from serving.settings import Settings
from tests.conftest import one_instance

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
USAGE = ROOT / "docs/usage.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "clients/python/README.md", *(ROOT / "docs").rglob("*.md")]
COMMITTED = {
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
}
MODELS = (
    "darcy",
    "darcy_vjp",
    "darcy_jvp",
    "darcy_galerkin",
    "burgers",
    "burgers_exact",
    "listops",
    "memoriser",
    "kuramoto_sivashinsky",
)
PRINTED = "http://127.0.0.1:8080"
#: The pages that say what one can do, not those of figures; the blocks of umbridge.md run in tests/protocols, how.md is
#: held by test_how.py, nodes.md by tests/deploy.
FIGURES = ("umbridge", "benchmarks", "how", "nodes", "own-data-measured", "reference/tables")
EXAMPLES = sorted({*(ROOT / "docs").rglob("*.md")} - {ROOT / f"docs/{name}.md" for name in FIGURES})
#: Pages whose first example trains, or computes with torch or a service, as other tests do: they run in the deep suite.
LONG = ("attention", "derivatives", "layers", "memorisation", "models", "networks", "operate", "research", "training")
#: Fewer samples of examples that make some, by the page.
SMALLER = {"geometry": {"range(100)": "range(3)"}, "own-data": {"(2, 400, 48, 48)": "(2, 4, 48, 48)"}}


def blocks(page: Path, language: str, text: str) -> list[str]:
    """Return the code blocks of a page that are in a language and contain a text."""
    found = re.findall(r"```(\w*)\n(.*?)```", page.read_text(), re.DOTALL)
    return [block for name, block in found if re.fullmatch(language, name) and text in block]


@pytest.fixture(scope="module")
def url(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the released models that the examples use; `make test` has installed them."""
    repository = tmp_path_factory.mktemp("readme") / "model_repository"
    for model in MODELS:
        shutil.copytree(ROOT / "model_repository" / model, repository / model)
    one_instance(repository)
    with serve(repository) as service:
        yield service.url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a working directory that contains a permeability field."""
    np.save(tmp_path / "permeability.npy", physics.darcy.example(85, seed=3).astype(np.float32))
    return tmp_path


def test_the_usage_of_the_readme_runs_and_prints_what_it_says(url: str, tmp_path: Path) -> None:
    usage = README.read_text().partition("## Usage\n")[2].partition("\n## ")[0]
    python, printed, shell = re.findall(r"```(?:sh|python)?\n(.*?)```", usage, re.DOTALL)
    assert in_python(python, url, tmp_path) == printed
    [tested] = blocks(USAGE, "sh", "petrov example")
    assert {line.partition("#")[0].strip() for line in shell.splitlines()} <= {
        line.partition("#")[0].strip() for line in tested.splitlines()
    }


def test_an_example_of_texts_is_printed_with_its_labels(url: str, tmp_path: Path) -> None:
    text, label = in_shell(".venv/bin/petrov example listops", url, tmp_path).splitlines()
    assert text.startswith("[")
    assert label in set("0123456789")
    text, labels = in_shell(".venv/bin/petrov example memoriser", url, tmp_path).splitlines()
    predicted = in_shell(f'.venv/bin/petrov predict memoriser "{text}" -', url, tmp_path).splitlines()[1:]
    assert [row.split(",")[2] for row in predicted] == labels.split()  # it knows its sets by heart


def in_shell(script: str, url: str, folder: Path) -> str:
    """Run a shell block with the client's command, and return what it prints."""
    script = script.replace(".venv/bin/petrov", str(Path(sys.executable).parent / "petrov"))
    environment = os.environ | {"PETROV_URL": url, "COLUMNS": "200"}
    done = subprocess.run(
        ["bash", "-ec", script], cwd=folder, check=True, env=environment, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def in_python(code: str, url: str, folder: Path) -> str:
    """Run a Python block in an empty folder, and return what it prints."""
    command = [sys.executable, "-c", code.replace(PRINTED, url)]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_the_command_line_block_predicts(url: str, tmp_path: Path) -> None:
    [block] = blocks(USAGE, "sh", "petrov example")
    in_shell(block, url, tmp_path)
    assert is_pressure(tmp_path)


def test_the_score_block_writes_every_solution(url: str, folder: Path) -> None:
    [block] = blocks(USAGE, "sh", "petrov score")
    fields = np.stack([physics.darcy.example(43, seed=seed).astype(np.float32) for seed in range(3)])
    with h5py.File(folder / "fields.h5", "w") as file:
        file["coefficient"] = fields
    script = block.replace(".venv/bin/petrov", str(Path(sys.executable).parent / "petrov"))
    script = re.sub(r"http://(one|two):8080", url, script)
    subprocess.run(["bash", "-ec", script], cwd=folder, check=True)
    with h5py.File(folder / "pressures.h5") as file:
        assert file["solution"].shape == fields.shape


def test_the_curl_block_predicts_and_is_refused(url: str, folder: Path) -> None:
    if shutil.which("curl") is None and "CI" not in os.environ:
        pytest.skip("curl is not installed")
    [block] = blocks(USAGE, "sh", "curl")
    done = subprocess.run(
        ["bash", "-ec", block.replace(PRINTED, url)], cwd=folder, check=False, capture_output=True, text=True
    )
    assert is_pressure(folder)
    assert done.returncode == 22  # of curl, after a response of 4xx
    assert "initial" in done.stdout
    assert "64" in done.stdout


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=pytest.mark.deep if page.stem in LONG else ()) for page in EXAMPLES],
)
def test_a_page_begins_with_an_example_that_runs(page: Path, url: str, folder: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(folder / "heat.npz", k=rng.random((20, 8, 8)), T=rng.random((20, 8, 8)))
    language, code = re.findall(r"```(\w*)\n(.*?)```", page.read_text(), re.DOTALL)[0]
    code = code.replace(PRINTED, url).replace(".venv/bin/petrov", str(Path(sys.executable).parent / "petrov"))
    program = {"python": [sys.executable, "-c"], "sh": ["bash", "-ec"]}[language]
    code = code.replace(".venv/bin/python", sys.executable)
    for large, small in SMALLER.get(page.stem, {}).items():
        assert code.count(large) == 1
        code = code.replace(large, small)
    if "curl" in code and shutil.which("curl") is None and "CI" not in os.environ:
        pytest.skip("curl is not installed")
    environment = os.environ | {"PETROV_URL": url, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    subprocess.run([*program, code], cwd=folder, check=True, env=environment)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def without_code(page: Path) -> str:
    """Return the text of a page without its blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_exist(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", without_code(page)):
        file = (page.parent / target).resolve() if target else page
        assert file in COMMITTED, target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


def commands() -> list[list[str]]:
    """Return the words of every command in the documentation: lines of shell blocks, and code within lines."""
    blocks_ = [block for page in PAGES for block in blocks(page, "(?:sh)?", "")]
    lines = "\n".join(blocks_).replace("\\\n", " ").splitlines()
    spans = [span for page in PAGES for span in re.findall(r"`([^`\n]+)`", page.read_text())]
    return [line.partition("#")[0].split() for line in (*lines, *spans)]


def test_every_target_of_make_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = {
        *re.findall(r"^([a-z-]+):", makefile, re.MULTILINE),
        *re.findall(r"^CORPUS := (.*)$", makefile, re.MULTILINE),
    }
    used = {word for words in commands() if words[:1] == ["make"] for word in words[1:] if "=" not in word}
    assert {"serve", "train", "test"} <= used <= targets


@pytest.fixture(scope="module")
def options() -> dict[str, dict[str, list[str]]]:
    """Return the options of every command by package, from a process without the shape checks of the tests.

    Those of the package itself are under the empty name.
    """
    code = (
        "import json, typer.main, benchmarks.commands, export.__main__, export.released, research.commands,"
        " serving.__main__, training.commands\n"
        "apps = {'training': training.commands.app, 'benchmarks': benchmarks.commands.app,"
        " 'serving': serving.__main__.commands, 'research': research.commands.app, 'export': export.__main__.app,"
        " 'export.released': export.released.app}\n"
        "every = {package: typer.main.get_command(app) for package, app in apps.items()}\n"
        "print(json.dumps({package: {name: [option for parameter in command.params for option in parameter.opts]"
        " for name, command in {'': one, **getattr(one, 'commands', {})}.items()} for package, one in every.items()}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, dict[str, list[str]]] = json.loads(done.stdout)
    return found


def test_no_program_offers_a_completion_that_would_break_another(options: dict[str, dict[str, list[str]]]) -> None:
    """A shell completes a program by its name: the lines for `python -m training` break the completion of python."""
    assert [name for name, own in options.items() if "--install-completion" in own[""]] == []


@pytest.mark.parametrize("package", ["training", "benchmarks", "serving", "research", "export.released"])
def test_every_command_and_option_exists(package: str, options: dict[str, dict[str, list[str]]]) -> None:
    used = [words[words.index("-m") + 2 :] for words in commands() if package in words and "-m" in words]
    assert used
    for name, *arguments in filter(None, used):
        assert {argument for argument in arguments if argument.startswith("--")} <= set(options[package][name])


FOLDERS = "physics|training|export|serving|clients|deploy|benchmarks|tests|docs"
TESTS = {path.name for path in (ROOT / "tests").rglob("test_*.py")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_and_settings_exist(page: Path) -> None:
    text = page.read_text()
    paths = set(re.findall(rf"(?<![\w/.:-])(?:{FOLDERS})/[\w./-]*\w(?![\w<{{*])", text))
    assert {path for path in paths if not (ROOT / path).exists()} == set()
    assert {name for name in re.findall(r"\btest_\w+\.py", text) if name not in TESTS} == set()
    variables = {f"PETROV_{name.upper()}" for name in Settings.model_fields} | {"PETROV_URL", "PETROV_API_KEY"}
    assert set(re.findall(r"PETROV_[A-Z_]*[A-Z]", text)) <= variables


def test_the_changelog_has_each_kind_of_change_once_and_names_pages_that_exist() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert [path for path in set(re.findall(r"docs/[\w./-]*\.(?:md|ipynb)", text)) if not (ROOT / path).exists()] == []
    unreleased = text.partition("## Unreleased\n")[2].partition("\n## ")[0]
    kinds = re.findall(r"^### (.*)", unreleased, re.MULTILINE)
    assert kinds == ["Added", "Changed", "Removed", "Fixed", "Security"]
    assert unreleased.partition("### ")[0].strip() == ""  # nothing stands above them


def is_pressure(folder: Path) -> bool:
    """Return whether `pressure.npy` is near the solution for `permeability.npy`."""
    found = np.load(folder / "pressure.npy")
    truth = physics.darcy.solve(np.load(folder / "permeability.npy"))
    return bool(np.linalg.norm(found - truth) < 5e-2 * np.linalg.norm(truth))
