"""The order of the tests, and their distribution over the processes of pytest-xdist.

Some files compute, others wait for services, browsers and clocks. They alternate, so that while one process waits
another one has its processor; and what takes longest comes first, so that no process ends long after the others.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

#: Its files share what they export: one process exports it once.
TOGETHER = "tests/export/publication/"

#: Files and folders whose tests share one Triton of the toys and its gateway: one process starts them, which takes ten
#: seconds of a processor. They are called by the first of them.
SHARED = (
    "tests/clients/",
    "tests/serving/auth/",
    "tests/serving/catalogue/test_examples.py",
    "tests/serving/catalogue/test_watching.py",
    "tests/serving/codecs/",
    "tests/serving/http/",
    "tests/serving/inference/test_run.py",
    "tests/serving/inference/test_sequences.py",
    "tests/serving/open_inference/",
    "tests/serving/tesseract/",
    "tests/serving/test_commands.py",
    "tests/serving/test_soak.py",
    "tests/serving/triton/test_backends.py",
    "tests/serving/triton/test_device.py",
    "tests/serving/triton/test_http_client.py",
    "tests/serving/umbridge/",
    "tests/protocols/test_tesseract.py",
    "tests/deploy/test_prometheus.py",
    "tests/deploy/test_ray.py",
)

#: Files and folders that compute, the longest first by processor time.
COMPUTING = (
    TOGETHER,
    "tests/training/fit/test_fit.py",
    "tests/export/",
    "tests/training/fit/",
    "tests/training/report/",
    "tests/benchmarks/",
    "tests/research/",
    "tests/training/",
    "tests/physics/",
    "tests/schema/",
)

#: Those that wait, the longest first; the last entry is for all others. The links of nodes come before the browsers,
#: which abandon what they load when a network device comes or goes (ERR_NETWORK_CHANGED).
WAITING = (
    "tests/deploy/test_nodes.py",
    *SHARED[:1],
    "tests/pipeline/test_terminal.py",
    "tests/pipeline/test_playground.py",
    "tests/pipeline/test_trajectories.py",
    "tests/pipeline/test_points.py",
    "tests/pipeline/test_several_tensors.py",
    "tests/pipeline/",
    "tests/serving/catalogue/test_loading.py",
    "tests/serving/catalogue/",
    "tests/serving/triton/",
    "tests/protocols/",
    "tests/deploy/",
    "tests/",
)


class Distribution(LoadFileScheduling):
    """Files whole, in the order of `sort` instead of by their numbers of tests, and `TOGETHER` and `SHARED` as one."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def scope(nodeid: str) -> str:
    """Return what one process runs as a whole: the test's file, or several files by the first of them."""
    groups = ((TOGETHER,), SHARED)
    return next((group[0] for group in groups if nodeid.startswith(group)), nodeid.partition("::")[0])


def sort(items: list[pytest.Item]) -> None:
    """Sort tests by the order of their files; that within a file is as it was."""
    places = {each: place for place, each in enumerate(order(dict.fromkeys(scope(item.nodeid) for item in items)))}
    items.sort(key=lambda item: places[scope(item.nodeid)])


def order(files: Iterable[str]) -> list[str]:
    """Return files so that those that compute and those that wait are spread evenly, each the longest first."""
    kinds: tuple[list[str], list[str]] = ([], [])
    for file in files:
        kinds[not file.startswith(COMPUTING)].append(file)
    shares = {}
    for found, longest in zip(kinds, (COMPUTING, WAITING), strict=True):
        found.sort(key=lambda file, longest=longest: [file.startswith(each) for each in longest].index(True))
        shares |= {file: (number + 0.5) / len(found) for number, file in enumerate(found)}
    return sorted(shares, key=shares.__getitem__)
