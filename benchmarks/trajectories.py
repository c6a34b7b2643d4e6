"""The comparison of networks on trajectories of other people's solvers, at equal processor time.

The other networks learn single steps (`benchmarks.networks`); each candidate, a learning rate with AdamW or Muon,
is trained for `TUNING` seconds, and the one of the least error of rollouts on the validation trajectories is trained in
full. Petrov is what `fit --preset quick` makes of the problem file: its race and its
validation are part of the time. Test trajectories are used once per final training: a rollout starts from the first
frame. `python -m benchmarks.trajectories REQUEST` trains one network, with the request and the result as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.harness import Array, ResultFile, Row, interpreter, run
from benchmarks.loop import Settings, parted, settings_of_rates, train
from benchmarks.networks import BASELINES, rollout, rollout_errors, trajectories

SETS: dict[str, tuple[str | list[str], int, float]] = {
    "ks": ("u", 160, 360.0),
    "vorticity": ("vorticity", 160, 60.0),
    "gray_scott": (["a", "b"], 160, 300.0),
}
"""By name the array of the states, how many trajectories there are, and processor seconds of a training."""
HELD, TUNING = 16, 15.0  # trajectories for validation and as many for the test; processor seconds
FNO, UNET, CONVNEXT, PETROV = TITLES = ("FNO", "U-Net", "ConvNeXt U-Net", "Petrov")
CANDIDATES: dict[str, dict[str, Any]] = {
    FNO: {"network": "fno", "sizes": {"modes": 24}},
    UNET: {"network": "unet", "sizes": {}},
    CONVNEXT: {"network": "convnext", "sizes": {}},
}
RATES = {FNO: (2e-3, 5e-3), UNET: (2e-3, 5e-3), CONVNEXT: (1e-3, 3e-3)}
BATCH = 16
LEAST = 160  # steps of Petrov, an epoch; as many as the preset takes at least need more than a minute


def well(file: Path, fields: dict[str, NDArray[np.float32]], length: float, step: float) -> None:
    """Write scalar fields `[trajectory, frame, x, y]` on a periodic square in the layout of The Well."""
    import h5py  # noqa: PLC0415 -- not in the environments of all networks

    trajectories, frames, *sides = next(iter(fields.values())).shape
    with h5py.File(file, "w") as made:
        made.attrs.update(dataset_name=file.stem, grid_type="cartesian", n_spatial_dims=2, n_trajectories=trajectories)
        sizes = made.create_group("dimensions")
        sizes.attrs["spatial_dims"] = ["x", "y"]
        sizes["time"] = step * np.arange(frames, dtype=np.float32)
        for axis, side in zip("xy", sides, strict=True):
            sizes[axis] = (length / side) * np.arange(side, dtype=np.float32)
            edge = made.create_group(f"boundary_conditions/{axis}_periodic")
            edge.attrs.update(associated_dims=[axis], bc_type="PERIODIC", sample_varying=False, time_varying=False)
        for order, names in enumerate(([*fields], [], [])):
            made.create_group(f"t{order}_fields").attrs["field_names"] = names
        made.create_group("scalars").attrs["field_names"] = []
        for name, values in fields.items():
            stored = made["t0_fields"].create_dataset(name, data=values)
            stored.attrs.update(dim_varying=[True, True], sample_varying=True, time_varying=True)


def prepared(name: str, folder: Path) -> dict[str, Any]:
    """Return where the trajectories of a set are and what they mean; exponax makes them if there are none."""
    from benchmarks.own_data import PROBLEMS  # noqa: PLC0415 -- imports more than the baselines' environment has
    from training.problems.problem_file import read_problem_file  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    problem, file, (state, count, _) = folder / f"{name}.toml", folder / f"{name}.npz", SETS[name]
    problem.write_text((PROBLEMS / problem.name).read_text())
    if not file.exists():
        aside = folder / "aside"  # an interrupted run leaves no file that looks complete
        aside.mkdir(exist_ok=True)
        python = str(interpreter("exponax"))
        run([python, "-W", "ignore", "-m", "benchmarks.solvers", name, str(count), str(aside)])
        (aside / file.name).replace(file)
    described = read_problem_file(problem)
    if described.data.format == "well" and not file.with_suffix(".hdf5").exists():
        assert described.time is not None  # noqa: S101 -- sets of trajectories
        with np.load(file) as arrays:
            fields = {each: arrays[each] for each in arrays.files}
        well(file.with_suffix(".hdf5"), fields, described.axes[0].length, described.time.step)
    return {"file": str(file), "state": state, "problem": str(problem)}


def candidates(title: str) -> list[dict[str, Any]]:
    """Return the candidates of a network: its name, sizes, and settings of the loop."""
    if title == PETROV:
        return [{"network": "petrov"}]
    from benchmarks.own_data import MUON_RATES  # noqa: PLC0415 -- see `prepared`

    tried = settings_of_rates(BATCH, RATES[title], MUON_RATES.get(title, ()))
    return [CANDIDATES[title] | {"settings": each} for each in tried]


def compare(
    names: Sequence[str], titles: Sequence[str], seconds: float | None, seeds: int, kept: ResultFile, folder: Path
) -> Iterator[Row]:
    """Tune the other networks on each set, then train all of them."""
    from benchmarks.own_data import tuned_and_trained  # noqa: PLC0415

    for name in names:
        choices = {(name, title): candidates(title) for title in titles}
        data, times = {name: prepared(name, folder)}, [SETS[name][2] if seconds is None else seconds]
        yield from tuned_and_trained(choices, data, times, seeds, kept, 1, "benchmarks.trajectories", TUNING)


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Train a network and measure its rollouts.

    Args:
        request: `network` and its `sizes`, `settings` of the loop, `seconds`, `seed`, the `split` that is measured, and
            `prepared`.

    Returns:
        The mean relative L2 error per frame (`errors`), its standard error over the trajectories, the mean of all
        frames (`error`), parameters and processor seconds.
    """
    torch.set_num_threads(1)
    torch.manual_seed(request["seed"])
    data = request["prepared"]
    asked = {"file": data["file"], "state": data["state"], "parameter": None, "held": [HELD, HELD]}
    training, [states] = trajectories(asked | {"split": request["split"]})
    if request["network"] == "petrov":
        frames, facts = trained(request, parted([states[:, 0]], len(training.grid)), states.shape[1] - 1)
    else:
        network = BASELINES[request["network"]](training, **request["sizes"])
        used, steps = train(network, training, Settings(**request["settings"]), request["seconds"], request["seed"])
        count = sum(each.numel() for each in network.parameters())
        facts = {"parameters": count, "seconds": used, "epochs": steps * BATCH / len(training)}
        frames = rollout(network, states[:, 0], (), states.shape[1] - 1)
    return figures(frames, states[:, 1:], training.components) | facts


def trained(request: dict[str, Any], starts: list[Tensor], frames: int) -> tuple[Tensor, dict[str, Any]]:
    """Return the rollouts of what `python -m training fit` trains from a problem file, and how long that took."""
    from benchmarks.own_data import fitted  # noqa: PLC0415 -- only the environment of this project has what it imports

    operator, facts = fitted(request | {"settings": {"least": LEAST}}, "trajectories")
    rolled: Any = operator
    with torch.inference_mode():
        fields = rolled.rollout(starts, frames)
    facts |= {"parameters": sum(each.numel() for each in operator.parameters())}
    return fields[0] if len(fields) == 1 else torch.stack(fields, dim=-1), facts


def figures(frames: Tensor, truth: Tensor, components: int = 0) -> dict[str, Any]:
    """Return the errors of rollouts `[trajectory, frame, *grid]`, or with components on the last axis."""
    errors: Array = rollout_errors(frames, truth, components).numpy()
    spread = errors.std(axis=0, ddof=1) / len(errors) ** 0.5
    means, spreads = ([float(f"{each:.4g}") for each in some] for some in (errors.mean(axis=0), spread))
    return {"error": float(errors.mean()), "errors": means, "standard_errors": spreads}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
