"""The elements of MATLAB files of version 5 to 7, looked at before SciPy reads them: SciPy believes what they say.

A file is a list of elements, each with a tag: a type, and how many bytes follow. An array is an element that holds
others, whose number its class, its sides and a flag decide. A type that is none, or an element that is not there, leads
SciPy to memory that is not the file's, and the program ends. Compressed variables are inflated here once, in pieces, to
their checksum.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

MATRIX, COMPRESSED = 14, 15
#: Types of elements of numbers, and of names; texts may be either of the last two rows.
NUMBERS = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 12, 13})
NAMES, TEXTS = frozenset({1, 2, 16}), NUMBERS | {16, 17, 18}
CELL, STRUCT, OBJECT, CHARACTERS, SPARSE, FUNCTION, OPAQUE = 1, 2, 3, 4, 5, 16, 17
NUMERIC = range(6, 16)  # the classes of arrays of numbers
COMPLEX = 0x800  # the flag of an array that has two parts
LONGEST, MOST_SIDES, DEEPEST = 2**20, 32, 64  # bytes of names, sides of an array, arrays in one another
PIECE = 2**18


def complex_variables(path: Path) -> list[bool]:
    """Return which variables of a file are complex, after a check that all elements are there and in their places.

    Raises:
        ValueError: An element is not what it has to be.
        zlib.error: Compressed bytes are damaged.
    """
    found, size = [], path.stat().st_size
    with path.open("rb") as file:
        order = "<" if file.read(128)[126:] == b"IM" else ">"
        while (start := file.tell()) < size:
            elements = _Elements(file, order, size - start)
            try:
                kind, length, _ = elements.tag({MATRIX, COMPRESSED})
                if kind == COMPRESSED:
                    inflated = io.BufferedReader(_Inflated(file, length), PIECE)
                    elements = _Elements(inflated, order, None)
                    _, inside, _ = elements.tag({MATRIX})
                    found.append(elements.array(inside))
                    while inflated.read(PIECE):
                        pass
                else:
                    found.append(elements.array(length))
            except ValueError as error:
                raise ValueError(f"in the variable {elements.name!r} at byte {start}, {error}") from error
            file.seek(start + 8 + length)
    return found


class _Elements:
    """Elements that are read one after the other, in bytes of which `left` are left; None where that is not known."""

    def __init__(self, file: io.BufferedIOBase, order: str, left: int | None) -> None:
        self.file, self.order, self.left, self.name = file, order, left, ""

    def take(self, count: int, most: int = LONGEST) -> bytes:
        """Read so many bytes."""
        self.claim(count)
        if count > most:
            raise ValueError(f"expected a name of at most {most:,} bytes but found {count:,}")
        found = self.file.read(count)
        if len(found) < count:
            raise ValueError(f"expected {count:,} bytes but the file ends after {len(found):,} of them")
        return found

    def skip(self, count: int) -> None:
        """Go on behind so many bytes."""
        self.claim(count)
        if self.file.seekable():
            self.file.seek(count, io.SEEK_CUR)
            return
        while count:
            found = len(self.file.read(min(count, PIECE)))
            if not found:
                raise ValueError(f"expected {count:,} bytes more but the compressed bytes end")
            count -= found

    def claim(self, count: int) -> None:
        """Count bytes as read that have to be there."""
        if self.left is None:
            return
        if count > self.left:
            raise ValueError(f"expected {count:,} bytes but there are {self.left:,}")
        self.left -= count

    def tag(self, kinds: Collection[int]) -> tuple[int, int, bytes]:
        """Read a tag: the type of an element, its length and, of a short one, its bytes."""
        word = self.take(8)
        kind, length = struct.unpack(f"{self.order}II", word)
        short = kind >> 16
        if short:
            kind, length = kind & 0xFFFF, short
        if kind not in kinds:
            expected = ", ".join(map(str, sorted(kinds)))
            raise ValueError(f"expected an element of the types {expected} but found {kind}")
        if short > 4:
            raise ValueError(f"expected a short element of at most 4 bytes but found {short}")
        return kind, length, word[4 : 4 + short] if short else b""

    def words(self, kinds: Collection[int]) -> bytes:
        """Read an element that describes an array."""
        _, length, inside = self.tag(kinds)
        if inside or not length:
            return inside
        found = self.take(length)
        self.skip(min(-length % 8, self.left or 0))
        return found

    def values(self, kinds: Collection[int]) -> int:
        """Go on behind an element, and return its length."""
        _, length, inside = self.tag(kinds)
        if not inside:
            self.skip(length)
            self.skip(min(-length % 8, self.left or 0))
        return length

    def array(self, length: int, depth: int = 0) -> bool:
        """Go on behind an array of so many bytes, and return whether it is complex."""
        if self.left is not None and length > self.left:
            raise ValueError(f"expected {length:,} bytes but there are {self.left:,}")
        if depth > DEEPEST:
            raise ValueError(f"expected arrays in at most {DEEPEST} others but found more")
        behind = None if self.left is None else self.left - length
        self.left = length
        flags = self._described(depth) if length else 0
        if self.left:
            raise ValueError(f"expected {length - self.left:,} bytes but found {length:,}")
        self.left = behind
        return bool(flags & COMPLEX)

    def _described(self, depth: int) -> int:
        """Go on behind the elements of an array, and return its flags."""
        said = self.words({6})
        if len(said) != 8:
            raise ValueError(f"expected 8 bytes of flags but found {len(said)}")
        flags = int(struct.unpack(f"{self.order}I", said[:4])[0])
        kind, parts = flags & 0xFF, 2 if flags & COMPLEX else 1
        if kind == OPAQUE:  # it has neither sides nor a name
            for _ in range(3):
                self.words(NAMES)
            self._arrays(1, depth)
            return flags
        sides = self._integers()
        if not 1 < len(sides) <= MOST_SIDES or min(sides) < 0:
            raise ValueError(f"expected 2 to {MOST_SIDES} sides of an array but found {sides}")
        name = self.words(NAMES).decode(errors="replace")
        self.name = self.name or name
        if kind in NUMERIC or kind == CHARACTERS:
            self._values(kind, parts, sides)
        elif kind == SPARSE:
            for _ in range(2 + parts):
                self.values(NUMBERS)
        else:
            self._arrays(self._members(kind, math.prod(sides)), depth)
        return flags

    def _values(self, kind: int, parts: int, sides: list[int]) -> None:
        """Go on behind the values of an array, of which each takes a byte or more; empty texts may have sides."""
        held = min(self.values(NUMBERS if kind in NUMERIC else TEXTS) for _ in range(parts))
        if math.prod(sides) > max(held, LONGEST if kind == CHARACTERS else 0):
            raise ValueError(f"expected {math.prod(sides):,} values {sides} but found {held:,} bytes")

    def _members(self, kind: int, count: int) -> int:
        """Return how many arrays an array of some cells or structs holds; names of fields precede them."""
        if kind in {CELL, FUNCTION}:
            return count if kind == CELL else 1
        if kind not in {STRUCT, OBJECT}:
            raise ValueError(f"expected a class of arrays from 1 to 17 but found {kind}")
        if kind == OBJECT:
            self.words(NAMES)
        each = self._integers()
        if len(each) != 1 or each[0] < 1:
            raise ValueError(f"expected the length of a name but found {each}")
        return count * (len(self.words(NAMES)) // each[0])

    def _integers(self) -> list[int]:
        said = self.words({5, 6})
        return [each for (each,) in struct.iter_unpack(f"{self.order}i", said[: len(said) // 4 * 4])]

    def _arrays(self, count: int, depth: int) -> None:
        """Go on behind arrays that an array holds."""
        for _ in range(count):
            self.array(self.tag({MATRIX})[1], depth + 1)


class _Inflated(io.RawIOBase):
    """Compressed bytes of a file as they are when inflated."""

    def __init__(self, file: io.BufferedIOBase, left: int) -> None:
        super().__init__()
        self.file, self.left, self.inflater = file, left, zlib.decompressobj()

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Inflate some bytes, none behind the last one."""
        found = b""
        while not found and not self.inflater.eof:
            data = self.inflater.unconsumed_tail or self.file.read(min(PIECE, self.left))
            self.left -= len(data) * (not self.inflater.unconsumed_tail)
            found = self.inflater.decompress(data, len(buffer))
            if not (found or data or self.inflater.eof):
                raise ValueError("the compressed bytes are cut off")
        buffer[: len(found)] = found
        return len(found)
