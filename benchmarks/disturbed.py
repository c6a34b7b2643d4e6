"""What a killed training, or a slowed one, loses: its error beside that of a training that nothing disturbs.

Each training is `fit --preset quick` of a problem file, race included, of the same seed and the same processor time.
One is killed when half of its time is used, and resumed. During the middle half of another one, a second process runs
on every core.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import ResultFile, Row
from benchmarks.loop import figures, measure
from benchmarks.networks import fields
from benchmarks.own_data import complete, fit_command, prepared, training
from training.checkpoint import load_operator

ALONE, KILLED, SLOWED = TITLES = ("undisturbed", "killed at half, and resumed", "a second process on every core")
BUSY = (sys.executable, "-c", "while True: pass")


def compare(names: Sequence[str], seconds: float, seeds: int, kept: ResultFile, folder: Path) -> Iterator[Row]:
    """Train every problem in each way, one training after another."""
    data = {name: prepared(name, folder) for name in names}
    candidate = {"network": "petrov"}  # which complete() runs in this environment
    rows = [
        training(name, title, candidate | {"way": title}, seconds, seed, "test")
        for seed in range(seeds)
        for name in names
        for title in TITLES
    ]
    yield from complete(rows, kept, data, 1, "benchmarks.disturbed")


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Train a network in one way and measure it.

    Args:
        request: `way` (one of `TITLES`), `seconds`, `seed`, `split` and `prepared`, as `prepared` describes the data.
    """
    torch.set_num_threads(1)
    way, seconds = request["way"], request["seconds"]
    run = Path("runs") / f"disturbed-{TITLES.index(way)}-{Path(request['prepared']['problem']).stem}-{request['seed']}"
    shutil.rmtree(run, ignore_errors=True)
    command, began = fit_command(request, run), time.perf_counter()
    if way == KILLED:
        process = subprocess.Popen(command, stdout=sys.stderr)  # noqa: S603 -- our own command
        reached(process, seconds / 2)
        process.kill()
        process.wait()
    process = subprocess.Popen(command, stdout=sys.stderr)  # noqa: S603
    if way == SLOWED:
        reached(process, seconds / 4)
        with ExitStack() as busy:
            for _ in range(os.cpu_count() or 1):
                other = busy.enter_context(subprocess.Popen(BUSY))  # noqa: S603
                busy.callback(other.kill)
            reached(process, 3 * seconds / 4)
    if process.wait():
        raise RuntimeError(f"{' '.join(command)}: ended with status {process.returncode}")
    found, (_, held) = load_operator(run), fields(request)
    facts = {"epochs": found.card.training["epochs"], "wall_seconds": round(time.perf_counter() - began, 1)}
    return figures(measure(found.operator.eval(), held), facts)


def reached(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait until a process has used as much processor time."""
    ticks = os.sysconf("SC_CLK_TCK")
    while process.poll() is None:
        user, system = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        if (int(user) + int(system)) / ticks >= seconds:
            return
        time.sleep(0.1)
    raise RuntimeError(f"expected a training of at least {seconds:g} processor seconds but it ended before")


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
