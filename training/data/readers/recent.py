"""What is held of many files: the arrays of meshes that were read last, and other files that were open last.

A set of meshes may be larger than the memory. Each of its files is read when it is opened, for what it holds, and once
more when its values are; those of a small set are in memory all the time. A folder of HDF5 files may have more of them
than a process may open, and each that is open makes HDF5 slower: few are at one time, and the others opened once more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from training.data.readers.data_file import MESHES, DataFile, LazyArray, ReadError, Slices

Arrays = Mapping[str, NDArray[Any]]
Stamp = tuple[tuple[Path, int, int], ...]
HELD_BYTES = 2**28
"""Bytes of the arrays of mesh files in memory; those of the last one are there, however large."""
OPEN = 8
"""Files of which the contents are not in memory that are open at one time; each array of an archive counts, too."""


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
    expect_unchanged(path, stamp)
    return contents(again())


def expect_unchanged(path: Path, stamp: Stamp) -> None:
    """Refuse a file that has not the same stamp any more."""
    if stamp_of(*(each for each, *_ in stamp)) != stamp:
        raise ReadError(f"{path}: expected a file that stays as it is, but it was changed while it was read")


def rows(key: Hashable, read: Callable[[], Arrays], name: str, start: int, stop: int) -> NDArray[Any]:
    """Return samples of an array of the file with a key."""
    return RECENT.get(key, read)[name][start:stop]


@contextmanager
def open_several(
    paths: Sequence[Path], open_one: Callable[[Path], AbstractContextManager[DataFile]], most: int = OPEN
) -> Iterator[list[DataFile]]:
    """Open data files, of which at most `most` are open at one time. They have to stay as they are meanwhile.

    Args:
        paths: The files, in their order.
        open_one: Opens one of them.
        most: How many.
    """
    with ExitStack() as stack:
        if len(paths) <= most:
            yield [stack.enter_context(open_one(path)) for path in paths]
            return
        held = Held(open_one, most)
        stack.callback(held.close)
        yield [held.described(path) for path in paths]


class Held:
    """Files that were open last; one that is asked for again is opened again."""

    def __init__(self, open_one: Callable[[Path], AbstractContextManager[DataFile]], most: int) -> None:
        self.open_one, self.most, self.held = open_one, most, OrderedDict[Path, tuple[DataFile, ExitStack]]()
        self.lasting = ExitStack()  # meshes, whose arrays `RECENT` holds

    def get(self, path: Path) -> DataFile:
        """Return a file, which stays open until `most` others were asked for."""
        if path not in self.held:
            while len(self.held) >= self.most:
                self.held.popitem(last=False)[1][1].close()
            with ExitStack() as stack:
                self.held[path] = stack.enter_context(self.open_one(path)), stack.pop_all()
        self.held.move_to_end(path)
        return self.held[path][0]

    def described(self, path: Path) -> DataFile:
        """Return a file whose arrays are read from it while it is open, and from one that is opened again later."""
        stamp, file = stamp_of(path), self.get(path)
        if file.format in MESHES:
            self.lasting.enter_context(self.held.pop(path)[1])
            return file
        return self.later(file, stamp)

    def later(self, file: DataFile, stamp: Stamp, *place: int) -> DataFile:
        """Return a file, or a piece of it at a place, with arrays that are read from what is open then."""

        def again(one: LazyArray, *where: Any) -> LazyArray:
            first, last = (partial(self.rows, stamp, place, *where, along_last=along) for along in (False, True))
            return replace(one, rows=Slices(first, last) if isinstance(one.rows, Slices) else first)

        arrays, parts = (
            {name: again(one, kind, name) for name, one in getattr(file, kind).items()} for kind in ("arrays", "parts")
        )
        pieces = tuple(self.later(each, stamp, *place, index) for index, each in enumerate(file.pieces))
        return replace(file, arrays=arrays, parts=parts, pieces=pieces)

    def rows(
        self, stamp: Stamp, place: tuple[int, ...], kind: str, name: str, start: int, stop: int, *, along_last: bool
    ) -> Any:
        """Return samples of an array of a file, which has the same stamp still, or the number that it is.

        They are those along its last axis where `along_last` says so, and it can be read so.
        """
        [(path, *_)] = stamp
        expect_unchanged(path, stamp)
        file = self.get(path)
        for index in place:
            file = file.pieces[index]
        rows = getattr(file, kind)[name].rows
        return (rows.last if along_last else rows)(start, stop)

    def close(self) -> None:
        """Close all files."""
        with self.lasting:
            while self.held:
                self.held.popitem()[1][1].close()
