"""What identifies a checkpoint: the files that decide what it computes, without reading any tensor."""

from __future__ import annotations

import hashlib
from pathlib import Path

WEIGHTS, CONFIG, CALIBRATION = "weights.safetensors", "config.json", "calibration.safetensors"


def digest(folder: Path) -> str:
    """Compute the SHA-256 of a checkpoint's weights, config and calibration."""
    paths = [folder / name for name in (WEIGHTS, CONFIG, CALIBRATION)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths if path.exists())).hexdigest()
