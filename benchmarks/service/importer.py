"""The importer tried on checkpoints that the published implementation trains and saves itself.

The package (`galerkin-transformer`, in an environment of its own) trains its Burgers example for a short time on
samples of this project, in its own file format, and saves its state dict. The file is imported, exported, certified
and served by Triton, and the served outputs are compared with those of the package's own forward pass. The training is
far too short for the published errors.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.io import savemat
from tritonclient.grpc import InferenceServerClient, InferInput

from benchmarks.baselines.environment import versions
from benchmarks.baselines.process import Baseline
from benchmarks.service.running import running
from export.repository import publish
from physics.numerics.norms import relative_l2
from research.importing import reference
from training.data import generate, store
from training.problems.registry import PROBLEMS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.report.page import Table
    from research.importing.arguments import Example

ENVIRONMENT, SUBJECT = "reference", "benchmarks.baselines.subjects.reference_training:Training"
WEIGHTS = "model.pt"
PROBLEM: Example = "burgers"
MESH, SEED = 8192, 1127802
POINTS, BATCH, TEST = 512, 4, 100
BLOCK = 50  # fields of a request
HEADER = (
    "attention",
    "parameters",
    "steps",
    "package's error",
    "its error without attention dropout",
    "served error",
    "largest difference",
)


@dataclass(frozen=True)
class Trial:
    """One checkpoint, from its training to its served outputs.

    Attributes:
        attention: The type of attention.
        parameters: Of the network.
        train: Training samples.
        epochs: Passes over them.
        steps: Steps of the training.
        seconds: Processor time of the training.
        package_error: Mean relative L2 error on the test samples of the package's forward pass, dropout included.
        quiet_error: The same without its attention's dropout.
        served_error: The same of Triton's outputs.
        difference: Largest difference between the last two, as a share of the largest entry.
    """

    attention: str
    parameters: int
    train: int
    epochs: int
    steps: int
    seconds: float
    package_error: float
    quiet_error: float
    served_error: float
    difference: float


def measure(data: Path, *, quick: bool) -> list[Trial]:
    """Train, import, export, serve and compare a network of each type.

    Args:
        data: The folder of the samples; missing ones are made.
        quick: Fewer samples, and one type.
    """
    train, epochs = (32, 1) if quick else (128, 2)
    request = generate.Request(PROBLEMS[PROBLEM], MESH, train, TEST, SEED)
    stored = generate.prepare(request, data)
    with tempfile.TemporaryDirectory() as name:
        samples = Path(name) / "burgers_data_R10.mat"
        write_published(stored, train, samples)
        kinds = ("galerkin",) if quick else ("galerkin", "fourier")
        return [trial(kind, Path(name) / kind, samples, stored, train, epochs) for kind in kinds]


def write_published(stored: Path, train: int, to: Path) -> None:
    """Write samples in the published layout: arrays `a` and `u`, the training samples first."""
    parts = [store.read(stored, "train", train, MESH), store.read(stored, "test", TEST, MESH)]
    savemat(
        to,
        {
            "a": np.concatenate([part.inputs for part in parts]),
            "u": np.concatenate([part.outputs for part in parts]),
        },
    )


def trial(kind: str, folder: Path, samples: Path, stored: Path, train: int, epochs: int) -> Trial:
    """Take one type of attention through all steps.

    Args:
        kind: The type.
        folder: Where its files go.
        samples: The samples for the package.
        stored: The same samples in this project's layout.
        train: Training samples.
        epochs: Passes over them.
    """
    folder.mkdir()
    sizes = {"train": train, "test": TEST, "points": POINTS, "epochs": epochs, "batch": BATCH}
    with Baseline(SUBJECT, ENVIRONMENT) as package:
        facts = package.prepare(samples=str(samples), folder=str(folder), attention=kind, **sizes)
        [seconds] = package.run(1).processor
        package.write_output(folder / "outputs.npy")
    noisy, quiet = np.load(folder / "outputs.npy")
    test = store.read(stored, "test", TEST, POINTS)
    served = serve(imported(folder, kind), folder / "repository", test.inputs)
    return Trial(
        attention=kind,
        parameters=facts["parameters"],
        train=train,
        epochs=epochs,
        steps=facts["steps"],
        seconds=seconds,
        package_error=mean_error(noisy, test.outputs),
        quiet_error=mean_error(quiet, test.outputs),
        served_error=mean_error(served, test.outputs),
        difference=float(np.abs(served - quiet).max() / np.abs(quiet).max()),
    )


def mean_error(found: NDArray[np.float32], truth: NDArray[np.float32]) -> float:
    """Return the mean relative L2 error of fields."""
    return float(relative_l2(found, truth).mean())


def imported(folder: Path, kind: str) -> Path:
    """Import the package's file, and return the checkpoint's folder."""
    config, out = folder / "config.json", folder / f"reference_{kind}"
    config.write_text(json.dumps({"attention_type": kind}))
    request = reference.Request(folder / WEIGHTS, PROBLEM, config=config, grid=POINTS)
    reference.save(reference.import_reference(request), out)
    return out


def serve(checkpoint: Path, repository: Path, fields: NDArray[np.float32]) -> NDArray[np.float32]:
    """Export a checkpoint, serve it, and return Triton's outputs [field, point]."""
    [first, *_] = publish(checkpoint, repository)
    with running(repository) as addresses, InferenceServerClient(addresses.triton_grpc) as client:
        found = [predict(client, first.model, block) for block in np.split(fields, len(fields) // BLOCK)]
    return np.concatenate(found)


def predict(client: Any, model: str, fields: NDArray[np.float32]) -> NDArray[np.float32]:
    """Send one request."""
    tensor = InferInput("initial", list(fields.shape), "FP32").set_data_from_numpy(np.ascontiguousarray(fields))
    output: NDArray[np.float32] = client.infer(model, [tensor]).as_numpy("final")
    return output


def document(found: list[Trial]) -> dict[str, Any]:
    """Return everything that was measured."""
    return {"package": versions(ENVIRONMENT)["galerkin-transformer"], "trials": [asdict(each) for each in found]}


def table(found: list[Trial]) -> Table:
    """Return header and rows."""
    return HEADER, [row(each) for each in found]


def row(each: Trial) -> tuple[str, ...]:
    """Return one checkpoint's row."""
    errors = (f"{error:.4f}" for error in (each.package_error, each.quiet_error, each.served_error))
    return (each.attention, f"{each.parameters:,}", str(each.steps), *errors, f"{each.difference:.0e}")
