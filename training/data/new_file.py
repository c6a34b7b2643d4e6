"""New HDF5 files of samples: whole, or not there, where the disk becomes full, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py

from training.data.without_faults import WithoutFaults
from training.files import remove_parts, replacing
from training.messages import UserError


@contextmanager
def new_hdf5(path: Path) -> Iterator[h5py.File]:
    """Make an HDF5 file, which appears once it is whole, in a process that holds the lock of its `path`.

    Raises:
        UserError: It cannot be written to its end.
    """
    remove_parts(path)  # of processes that were killed: those of samples are large, and no other writes them now
    with replacing(path) as aside, WithoutFaults(aside) as target:
        with h5py.File(target, "w") as file:
            yield file
        if target.fault is not None:
            raise UserError(f"{path}: expected to write all samples but: {target.fault.strerror}") from target.fault
