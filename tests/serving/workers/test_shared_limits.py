"""The table that workers share: limits over all of them, rates, and what a worker leaves behind that has died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from serving.workers.limits import SharedAdmission, SharedBucket
from serving.workers.table import State, Table
from tests.refusals import refused

ROOT = Path(__file__).parents[3]


@pytest.fixture
def tables(tmp_path: Path) -> list[Table]:
    """Return the table as two workers see it."""
    with closing(Table.create(tmp_path)) as first, closing(Table(tmp_path)) as second:
        yield [first, second]


def test_requests_and_bytes_in_flight_count_over_all_workers(tables: list[Table]) -> None:
    first, second = (SharedAdmission(2, 100, table, slot) for slot, table in enumerate(tables))
    with first.admit() as ticket, second.admit():
        for full in (first, second):
            with refused("overloaded", match="2 requests are in flight"), full.admit():
                pass
        ticket.hold(60)
    with second.admit() as ticket:
        ticket.hold(100)
        with first.admit() as other, refused("overloaded", match="100 bytes"):
            other.hold(1)
    assert [tables[0].total(column) for column in ("requests", "bytes")] == [0, 0]


def test_what_a_worker_had_in_flight_is_forgotten_with_it(tables: list[Table]) -> None:
    first, second = (SharedAdmission(1, 100, table, slot) for slot, table in enumerate(tables))
    tables[0].begin(0, start=3)
    first.begin()
    with refused("overloaded"):
        second.begin()
    tables[1].clear(0)
    second.begin()
    assert tables[1].columns["start"][0] == 3


def test_a_rate_is_one_for_all_workers(tables: list[Table]) -> None:
    first, second = (SharedBucket(2.0, 5, 100.0, "alice", table) for table in tables)
    other = SharedBucket(2.0, 5, 100.0, "bob", tables[0])
    assert [first.take(3, 100.0), second.take(2, 100.0)] == [0, 0]
    assert [first.wait(1, 100.0), second.take(4, 100.0)] == [0.5, 2.0]
    assert other.take(5, 100.0) == 0
    assert second.take(1, 100.5) == 0
    assert first.take(1, 100.5) == 0.5


def test_rates_beyond_the_size_of_the_table_replace_the_oldest(tables: list[Table]) -> None:
    """A rate that is in use keeps its level, however many others come and go."""
    table = tables[0]
    kept = SharedBucket(1e-6, 7, 0.0, "kept", table)
    assert kept.take(7, 0.0) == 0
    for number in range(6000):
        now = float(number)
        SharedBucket(1.0, 1, now, f"{number}", table).take(1, now)
        if number % 10 == 0:
            assert kept.wait(7, now) > 0


def test_a_worker_that_dies_with_the_lock_does_not_keep_it(tables: list[Table], tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, time\n"
        "from serving.workers.table import Table\n"
        "with Table(pathlib.Path(sys.argv[1])).locked():\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        os.kill(holder.pid, signal.SIGKILL)
        with tables[0].locked():
            assert tables[0].total("requests") == 0


def test_the_service_is_ready_when_all_that_accept_connections_are(tables: list[Table]) -> None:
    states = tables[0].columns["state"]
    ready = []
    for change in ((0, State.ACCEPTING), (0, State.READY), (1, State.ACCEPTING), (1, State.READY), (0, State.STARTING)):
        states[change[0]] = change[1]
        ready.append(tables[1].ready())
    assert ready == [False, True, False, True, True]
    assert tables[1].accepting() == [1]
