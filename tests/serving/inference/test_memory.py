"""What is counted for a request is what it takes, in every format."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SLACK = 4 * 2**20  # of the allocator; bodies become 16 MiB and more, so typed contents of gRPC, 256 KiB, show nothing


def test_no_format_takes_more_memory_than_is_counted_for_it(tmp_path: Path) -> None:
    """From the first byte of a body to the last one of the response, except for what Triton's replies hold."""
    program = Path(__file__).with_name("memory.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, program, tmp_path], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 16
    assert [row for row in rows if row[1] > row[2] + SLACK] == []
    # Nothing is counted that could not be: else few bodies would be admitted.
    assert [row for row in rows if row[2] > 8 * max(row[1], SLACK)] == []
