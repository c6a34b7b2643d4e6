"""What mesh files hold, in memory while it is among what was read last, and read again where it is not.

A set of meshes may be larger than the memory. Each of its files is read when it is opened, for what it holds, and once
more when its values are; those of a small set are in memory all the time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from training.data.readers.data_file import DataFile, ReadError

Arrays = Mapping[str, NDArray[Any]]
Stamp = tuple[tuple[Path, int, int], ...]
HELD_BYTES = 2**28
"""Bytes of the arrays of mesh files in memory; those of the last one are there, however large."""


class Recent:
    """The arrays of the files that were read last, by name.

    Example:
        >>> recent = Recent(most=200)
        >>> for number in (1, 2, 1, 3):
        ...     values = recent.get(number, lambda: {"x": np.zeros(10)})
        >>> [*recent.held]
        [1, 3]
    """

    def __init__(self, most: int) -> None:
        self.most, self.held = most, OrderedDict[Hashable, Arrays]()
        self.size = 0  # bytes of all arrays

    def get(self, key: Hashable, read: Callable[[], Arrays]) -> Arrays:
        """Return the arrays of a key, which `read` returns where they are no longer held."""
        if key not in self.held:
            self.held[key] = read()
            self.size += size(self.held[key])
            while len(self.held) > 1 and self.size > self.most:
                self.forget(next(iter(self.held)))
        self.held.move_to_end(key)
        return self.held[key]

    def forget(self, key: Hashable) -> None:
        """Hold the arrays of a key no longer."""
        self.size -= size(self.held.pop(key, {}))


def size(arrays: Arrays) -> int:
    """Return how many bytes arrays have."""
    return sum(array.nbytes for array in arrays.values())


RECENT = Recent(HELD_BYTES)


def stamp_of(*paths: Path) -> Stamp:
    """Return what tells files from what they are once they have been changed."""
    return tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in paths)


def reread(file: DataFile, key: Hashable, stamp: Stamp, again: Callable[[], DataFile]) -> DataFile:
    """Return a file whose arrays are held by `RECENT`, and come from the file that `again` opens once they are not.

    Args:
        file: It, with arrays in memory.
        key: Of its arrays.
        stamp: Of the files that it is read from.
        again: Returns it anew.
    """
    RECENT.get(key, lambda: contents(file))
    read = partial(contents_again, file.path, stamp, again)
    arrays, parts = (
        {name: replace(one, rows=partial(rows, key, read, name)) for name, one in some.items()}
        for some in (file.arrays, file.parts)
    )
    return replace(file, arrays=arrays, parts=parts)


def contents(file: DataFile) -> Arrays:
    """Return all arrays of a file."""
    return {name: one.read() for name, one in {**file.arrays, **file.parts}.items()}


def contents_again(path: Path, stamp: Stamp, again: Callable[[], DataFile]) -> Arrays:
    """Return all arrays of the file that `again` opens, which has the same stamp still.

    Raises:
        ReadError: It was changed.
    """
    if stamp_of(*(each for each, *_ in stamp)) != stamp:
        raise ReadError(f"{path}: expected a file that stays as it is, but it was changed while it was read")
    return contents(again())


def rows(key: Hashable, read: Callable[[], Arrays], name: str, start: int, stop: int) -> NDArray[Any]:
    """Return samples of an array of the file with a key."""
    return RECENT.get(key, read)[name][start:stop]
