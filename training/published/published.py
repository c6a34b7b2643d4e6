"""The interface of a published sample set, and the folders where its files are looked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

VARIABLE = "DATA_PATH"
"""The environment variable that names the folder with published files."""

Array = NDArray[np.float32]
Stream = Literal["train", "test"]


@runtime_checkable
class Published(Protocol):
    """Samples of a problem that others computed."""

    @property
    def points(self) -> str:
        """Where the grid points lie, in words."""

    @property
    def files(self) -> str:
        """The names of the files."""

    def available(self, mesh: int) -> bool:
        """Return whether the samples are used for requests with `mesh` points per axis.

        Raises:
            ValueError: A file lacks an array.
        """

    def read(self, stream: Stream, name: str, counts: Mapping[str, int]) -> Array:
        """Read the requested samples of one quantity.

        Args:
            stream: Training (and validation) samples, or test samples.
            name: The quantity's name on the wire.
            counts: How many samples of each stream are requested.

        Returns:
            Fields `[sample, *grid]`, fewer than requested where the files hold fewer.

        Raises:
            ValueError: A file is missing or holds something else.
        """


def data_folder() -> Path | None:
    """Return the folder that the user named for published files."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None
