"""The versions of the released models, committed beside their checkpoints: a machine serves them without torch.

.. code-block:: text

    checkpoints/darcy/published/
      darcy/       model.onnx   card.json   certificate.json
      darcy_vjp/   model.onnx   card.json   certificate.json   and its other companions, see export.versions
      refused.json                                             why others failed their comparison with the network

They are the ONNX graphs that `python -m export` makes, and become versions of a repository as those do. On another
kind of processor it makes the same graphs, some constants of which are rounded differently.
`python -m export.released install` copies them there, and `python -m export.released renew` makes them anew.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from export import triton_config
from export.triton_config import (
    CARD,
    CERTIFICATE,
    CONFIG,
    damaged,
    made_of,
    newest,
    prune,
    staging,
    tensors_of,
    versions,
)
from training.files import digest, read_json, write_json

FOLDER = "published"
GRAPH, EXAMPLES = "model.onnx", "examples.safetensors"
FILES = (GRAPH, CARD, CERTIFICATE)
REFUSED = "refused.json"  # the checkpoint, and by companion why it has no graph

app = typer.Typer(help=(__doc__ or "").partition("\n\n")[0], add_completion=False, pretty_exceptions_show_locals=False)
Checkpoints = Annotated[list[Path], typer.Argument(metavar="CHECKPOINT...", help="Checkpoint folders.")]


class ReleaseError(ValueError):
    """A checkpoint has no published version that can be installed: the message says why."""


@app.command("install")
def install_all(
    folders: Checkpoints,
    repository: Annotated[Path, typer.Option(help="The model repository.")] = Path("model_repository"),
) -> None:
    """Copy the released versions to the model repository; present ones are left alone.

    The configs of all models there, also of a user's, say afterwards what to do on a GPU.
    """
    for folder in folders:
        try:
            for version in install(folder, repository):
                typer.echo(f"{version.parent.name} version {version.name}: published")
        except ReleaseError as error:
            typer.echo(f"{folder} is not published: {error}", err=True)
        except OSError as error:
            typer.echo(f"{folder} cannot be published to {repository}: {error.strerror or error}", err=True)
            raise typer.Exit(1) from error
    for config in sorted(repository.glob(f"*/{CONFIG}")):
        try:
            if triton_config.renew(config):
                typer.echo(f"{config.parent.name}: its config says what to do on a GPU")
        except (OSError, ValueError) as error:
            typer.echo(f"{config} is left as it is: {error}", err=True)


@app.command("renew")
def renew_all(folders: Checkpoints) -> None:
    """Export checkpoints, and keep their ONNX graphs beside them."""
    for folder in folders:
        renew(folder)
        typer.echo(f"{folder / FOLDER}: renewed")


@app.command("verify")
def verify_all(
    folders: Checkpoints,
    plain: Annotated[bool, typer.Option(help="Leave out the companions, which take most of the time.")] = False,
) -> None:
    """Compare the released graphs with a fresh export: the same operators of the same values, but for rounding."""
    faults = [fault for folder in folders for fault in differences(folder, plain=plain)]
    for fault in faults:
        typer.echo(f"{fault} differs from a fresh export; `python -m export.released renew` makes it anew", err=True)
    raise typer.Exit(1 if faults else 0)


def install(folder: Path, repository: Path) -> list[Path]:
    """Publish the released version of a checkpoint, with the graphs beside it, and return the new version folders."""
    name, sources = folder.resolve().name, released(folder)
    with staging(repository, name) as aside:
        present = newest(repository / name)
        same = holds(present, sources[-1])
        number = int(present.name) + (not same and not damaged(present))  # a wreck is replaced
        missing = [source for source in sources if not holds(repository / source.name / str(number), source)]
        for source in missing:
            if not (repository / source.name / CONFIG).is_file():
                raise ReleaseError(f"{repository / source.name} has no {CONFIG}; `make export` writes it")
            staged = aside / source.name / str(number)
            staged.mkdir(parents=True)
            shutil.copyfile(source / GRAPH, staged / GRAPH)
            for part in (CARD, CERTIFICATE):
                write_json(staged / part, read_json(source / part) | {"version": number}, finite=True)
            if source.name == name and (folder / EXAMPLES).is_file():
                shutil.copyfile(folder / EXAMPLES, staged / EXAMPLES)
        return [move(aside / source.name / str(number), repository / source.name, aside) for source in missing]


def released(folder: Path) -> list[Path]:
    """Return the folders of a checkpoint's released version: the graphs beside it, then the model."""
    name = folder.resolve().name
    models = [path.parent for path in (folder / FOLDER).glob(f"*/{CARD}")]
    found = sorted(models, key=lambda path: (path.name == name, path.name))
    if not found or found[-1].name != name:
        raise ReleaseError("it has no released version; `make export` publishes it")
    if any(made_of(path) != digest(folder) for path in found):
        raise ReleaseError(
            f"{folder / FOLDER} is damaged or of another checkpoint; "
            f"`python -m export.released renew {folder}` makes it anew"
        )
    return found


def holds(version: Path, source: Path) -> bool:
    """Return whether a version has graph and card of a released one, and is whole."""
    try:
        found, expected = (read_json(path / CERTIFICATE) for path in (version, source))
        card, released_card = (read_json(path / CARD) | {"version": None} for path in (version, source))
    except (OSError, ValueError):
        return False
    same = all(found.get(part) == expected.get(part) for part in ("artefact", "checkpoint"))
    return same and card == released_card and made_of(version) is not None


def move(staged: Path, model: Path, aside: Path) -> Path:
    """Move a version to its model's folder in one step, and take out those that its config does not describe."""
    target, own = model / staged.name, tensors_of(staged)
    if target.exists():  # damaged, or beside an earlier version
        target.rename(aside / f"{model.name}.{target.name}.replaced")
    staged.rename(target)
    prune(model, own, aside)
    return target


def renew(folder: Path) -> None:
    """Export a checkpoint into an empty repository, and replace its released version."""
    from export.repository import publish  # noqa: PLC0415 - needs torch, which a machine that only serves does not have

    with TemporaryDirectory() as aside:
        repository = Path(aside) / "model_repository"
        refused = {name: why for each in publish(folder, repository) for name, why in each.refused.items()}
        target = folder / FOLDER
        shutil.rmtree(target, ignore_errors=True)
        for model in sorted(repository.iterdir()):
            version = model / str(versions(model)[-1])
            if (version / GRAPH).is_file():
                (target / model.name).mkdir(parents=True)
                for name in FILES:
                    shutil.copyfile(version / name, target / model.name / name)
        if refused:
            write_json(target / REFUSED, {"checkpoint": digest(folder), "refused": refused}, finite=True)


def refusals(folder: Path) -> dict[str, str]:
    """Return by companion why the export of a checkpoint refused it; none where that was of another checkpoint."""
    path = folder / FOLDER / REFUSED
    found = read_json(path) if path.is_file() else {}
    return dict(found["refused"]) if found.get("checkpoint") == digest(folder) else {}


def differences(folder: Path, *, plain: bool = False) -> list[Path]:
    """Return the released graphs that a fresh export does not make, or lacks; without companions if `plain`."""
    # These need torch, too.
    import onnx  # noqa: PLC0415

    from export.graphs import to_onnx  # noqa: PLC0415
    from export.graphs.deployable import Deployable  # noqa: PLC0415
    from export.graphs.equality import equal  # noqa: PLC0415
    from export.signature import Signature  # noqa: PLC0415
    from export.versions import companion_graph, companions  # noqa: PLC0415
    from training import checkpoint  # noqa: PLC0415

    trained, name, refused = checkpoint.load(folder), folder.resolve().name, refusals(folder)
    signature = Signature.of_checkpoint(trained)
    found = {path.parent.name: path.read_bytes() for path in (folder / FOLDER).glob(f"*/{GRAPH}")}
    graph = to_onnx.graph_of(Deployable(trained.deployed, signature.argument_names), signature)
    fresh = {name: graph}
    if plain:
        found = {each: data for each, data in found.items() if each == name}
    for companion in () if plain else companions(trained, signature):
        own = f"{name}_{companion}"
        if own in found or companion not in refused:
            fresh[own] = companion_graph(trained, signature, companion, onnx.load_model_from_string(graph))
    same = {each for each in fresh.keys() & found.keys() if equal(fresh[each], found[each])}
    return [folder / FOLDER / each / GRAPH for each in sorted({*fresh, *found} - same)]


if __name__ == "__main__":
    app()
