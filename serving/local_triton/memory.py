"""What the models of a local Triton take: of the card as its driver says, or of the machine's memory.

Each instance is a process, whose arguments name its model. On several cards each model has an instance on each, and the
budget is that of one: a model counts as what it takes of the card on which that is most. A card's driver names
processes by the numbers that its host has for them, which are not ours inside some containers: nothing is known of a
model then.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

STUB = "triton_python_backend_stub"
MODEL_FILE, SERVER = 1, 5  # arguments of an instance's process: `REPOSITORY/MODEL/VERSION/FILE`, and Triton's number
QUESTION = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits")
SECONDS = 10.0  # that the driver may take; it is asked in a thread
MEBIBYTE = 2**20


def by_model(server: int, kind: Literal["gpu", "cpu"]) -> dict[str, int]:
    """Return the bytes that the instances of each model take, as far as they are known.

    Args:
        server: Number of Triton's process.
        kind: Whether memory of the cards or of the machine is meant.
    """
    found: dict[str, Counter[str]] = {}  # by model and card
    cards = on_cards() if kind == "gpu" else None
    for process, model in instances(server):
        sizes = {"": on_machine(process)} if cards is None else cards.get(process, {})
        found.setdefault(model, Counter()).update(sizes)
    most = {model: max(sizes.values(), default=0) for model, sizes in found.items()}
    return {model: size for model, size in most.items() if size}


def instances(server: int) -> Iterator[tuple[int, str]]:
    """Yield the number of each instance's process, and its model."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):  # it has just ended, or is another program
            arguments = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            if arguments[0].endswith(STUB) and arguments[SERVER] == str(server):
                yield int(folder.name), Path(arguments[MODEL_FILE]).parents[1].name


def on_cards(question: tuple[str, ...] = QUESTION) -> Mapping[int, Mapping[str, int]]:
    """Return the bytes that each process takes of each card; empty where the driver's program does not say."""
    found: dict[int, Counter[str]] = {}
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(question, capture_output=True, text=True, check=True, timeout=SECONDS)  # noqa: S603 - a fixed command
        for line in done.stdout.splitlines():
            with suppress(ValueError):  # `[N/A]`, where a card does not say
                card, process, mebibytes = line.split(",")
                size = int(mebibytes) * MEBIBYTE
                found.setdefault(int(process), Counter())[card] += size
    return found


def on_machine(process: int) -> int:
    """Return the bytes that a process takes, with its share of what it has in common with others; 0 if it has ended."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text("ascii").splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * 1024
    return 0
