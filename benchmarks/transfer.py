"""Whether an earlier model, or coarse samples beside the fine ones, help to learn few samples in the same time.

The problems are `heat` and `darcy`. The earlier model has learned 800 samples of other inputs: smoother conductivity,
larger regions of one permeability. It is trained further on the new samples, with its normalisers. Coarse samples have
half of the points per axis; they are learned in the first half of the time, the few fine ones in the second.

The learning rate of each way is chosen on 20 validation samples, in a third of the time, and so are the weights of a
training that are kept. Every seed draws its own training samples, the same for all ways. Test samples are used once
per final training. Each training is a process of one thread. The network is that of `quick`, without attention.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from benchmarks.harness import OWN, ResultFile, Row, result_of
from benchmarks.loop import Samples, Settings, measure, train
from benchmarks.networks import fields
from benchmarks.own_data import complete, opened, operator, prepared, training, tuned_and_trained
from training.fit.presets import PRESETS, RATE, fitting

SCRATCH, EARLIER, COARSE = TITLES = ("from scratch", "from the earlier model", "coarse samples first")
AS_IS = "the earlier model as it is"
EARLIER_SECONDS, COARSE_SAMPLES, HELD = 120.0, 400, 20
LOWER = (2e-3, 5e-4)  # learning rates of a network that has learned something
RATES = {SCRATCH: (RATE, 2e-3), EARLIER: LOWER, COARSE: LOWER}


def compare(
    names: Sequence[str],
    counts: Sequence[int],
    seconds: float,
    seeds: int,
    kept: ResultFile,
    folder: Path,
    workers: int = 1,
) -> Iterator[Row]:
    """Choose rates, then train on few samples in every way."""
    data = {name: related(name, folder) for name in names}
    facts = {"network": "operator", "settings": {}, "samples": 0}
    as_is = [training(name, AS_IS, {**facts, "way": AS_IS}, 0.0, 0, "test") for name in names]
    yield from complete(as_is, kept, data, workers, "benchmarks.transfer")
    for count in counts:
        choices = {
            (name, title): candidates(title, count, batch(data[name], count)) for name in names for title in TITLES
        }
        tried = round(seconds / 3, 1)
        yield from tuned_and_trained(choices, data, [seconds], seeds, kept, workers, "benchmarks.transfer", tried)


def candidates(title: str, count: int, batch: int) -> list[dict[str, Any]]:
    """Return the candidates of a way to train on some samples."""
    facts = {"network": "operator", "way": title, "samples": count}  # which complete() runs in this environment
    return [facts | {"settings": {"batch": batch, "learning_rate": rate}} for rate in RATES[title]]


def batch(data: dict[str, Any], count: int) -> int:
    """Return the batch of the preset, for as few samples."""
    return min(fitting(opened(data), PRESETS["quick"]).batch, max(1, count // 8))


def related(name: str, folder: Path) -> dict[str, Any]:
    """Return a problem's samples, with those of the earlier model, its weights, and the coarse ones."""
    found = prepared(name, folder)
    for kind, samples in (("earlier", 1000), ("coarse", COARSE_SAMPLES)):
        found[kind] = prepared(name, folder / f"{name}-{kind}", f"{name}-{kind}", samples)
    weights = folder / f"{name}-earlier" / "weights.safetensors"
    if not weights.exists():
        facts = {"seconds": EARLIER_SECONDS, "seed": 0, "split": "test", "weights": str(weights)}
        settings = {"batch": batch(found["earlier"], 800), "learning_rate": RATE}
        made = result_of("benchmarks.transfer", OWN, {"prepared": found["earlier"], "settings": settings, **facts})
        weights.with_suffix(".json").write_text(json.dumps(made, indent=1))
    return found | {"weights": str(weights)}


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Train a network and measure it.

    Args:
        request: `way` (one of `TITLES`, or `AS_IS`), `samples`, `settings` of the loop, `seconds`, `seed`, `split` and
            `prepared`, as `related` describes the data. Without a way the earlier model is trained: `weights` is its
            file.
    """
    torch.set_num_threads(1)
    torch.manual_seed(request["seed"])
    data, seconds, way = request["prepared"], request["seconds"], request.get("way")
    whole, validation = fields({"prepared": data, "split": "validation"})
    few = whole
    if way in TITLES:
        order = np.random.default_rng(request["seed"]).permutation(len(whole))
        few = whole[torch.from_numpy(order[: request["samples"]])]
    held, steps, used = validation[:HELD], 0, 0.0
    if way in {EARLIER, AS_IS}:
        network = network_of(data["earlier"], few)
        network.load_state_dict(load_file(data["weights"]))
    elif way == COARSE:
        coarse = every(data["coarse"])
        network = network_of(data, coarse)
        first = Settings(batch=batch(data, len(coarse)), learning_rate=RATE)
        used, steps = train(network, coarse, first, seconds / 2, request["seed"])
    else:
        network = network_of(data, few)
    if way != AS_IS:
        chosen = None if way is None else held
        more = train(network, few, Settings(**request["settings"]), seconds - used, request["seed"], held=chosen)
        used, steps = used + more[0], steps + more[1]
    if way is None:
        save_file(network.state_dict(), request["weights"])
    measured = held if request["split"] == "validation" else fields({"prepared": data, "split": "test"})[1]
    found = measure(network, measured)
    facts = {"samples": len(found), "steps": steps, "seconds": used}
    return {"error": float(found.mean()), "standard_error": float(found.std() / len(found) ** 0.5)} | facts


def network_of(data: dict[str, Any], samples: Samples) -> Any:
    """Return the network that the preset chooses for some data, without attention, with the statistics of samples."""
    return operator(data, samples, layers=0)


def every(data: dict[str, Any]) -> Samples:
    """Return all samples, those of every split."""
    parts = [fields({"prepared": data, "split": split}) for split in ("validation", "test")]
    each = [parts[0][0], parts[0][1], parts[1][1]]
    inputs = [torch.cat(columns) for columns in zip(*(one.inputs for one in each), strict=True)]
    return Samples(inputs, torch.cat([one.output for one in each]))


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
