"""The blocks of docs/umbridge.md run, one after another, against the released `darcy`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Gateway

PAGE = Path(__file__).parents[2] / "docs/umbridge.md"
CHECKS = """
import json
print(json.dumps([
    list(sampler.get_chain().shape), darcy.get_input_sizes({"grid": [30, 40]}), len(solution),
    list(permeability.grad.shape), len(at_sensors), sum(g * s for g, s in zip(gradient, x)),
]))
"""


def test_the_blocks_run(released: Gateway, run_client: Callable[..., Any], tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 4
    program = tmp_path / "page.py"
    program.write_text("\n".join([*blocks, CHECKS]).replace("http://127.0.0.1:8080", released.url))
    chain, sizes, points, shape, sensors, slope = run_client(str(program))
    assert (chain, sizes, points, shape, sensors) == ([2, 64, 32], [1200], 1200, [85, 85], 64)
    assert slope != 0
