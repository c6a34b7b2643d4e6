"""Text in the encodings that programs write it in, with its numbers: UTF-8, UTF-16 and that of Western Windows."""

from __future__ import annotations

import codecs
import re
from functools import partial
from io import TextIOWrapper
from pathlib import Path

MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""Encodings by the first bytes of a file, as Windows writes them."""
WINDOWS = "cp1252"
"""What text is in that is not UTF-8, such as the sign of degrees; it is Latin-1 but for quotes and dashes."""
BLOCK = 2**16
LONGEST = 2**22
"""Letters of a line that are looked at to see whether a file is text at all."""

DECIMAL = re.compile(r"^([+-]?\d+),(\d+(?:[eE][+-]?\d+)?)$")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")  # as English programs group digits: it may be a decimal comma, too


def opened_text(path: Path, *, whole: bool = True) -> TextIOWrapper:
    """Open a text file in its encoding, by all of it or, where it may be no text, by its beginning.

    Raises:
        ValueError: It holds bytes of 0, which no text has.
    """
    return path.open(encoding=encoding_of(path, whole=whole), errors="replace")


def encoding_of(path: Path, *, whole: bool) -> str:
    """Return the encoding of a text file."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        blocks = iter(partial(file.read, BLOCK), b"")
        block = next(blocks, b"")
        if marked := next((name for mark, name in MARKS.items() if block.startswith(mark)), ""):
            return marked
        try:
            while block:
                if b"\0" in block:
                    raise ValueError("it holds bytes of 0, which no text has")
                decoder.decode(block)
                block = next(blocks, b"") if whole else b""
            decoder.decode(b"", final=whole)
        except UnicodeDecodeError:
            return WINDOWS
    return "utf-8"


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def with_points(lines: list[list[str]], *, certain: bool = False) -> list[list[str]]:
    """Return cells with decimal commas as points, where they are `certain` or nothing else.

    Commas may group the digits of thousands where numbers have points, or where all of them have three digits behind.
    """
    commas = [cell for line in lines for cell in line if "," in cell and DECIMAL.match(cell)]
    doubted = not certain and (
        all(map(THOUSANDS.fullmatch, commas)) or any("." in cell and is_number(cell) for line in lines for cell in line)
    )
    return lines if not commas or doubted else [[DECIMAL.sub(r"\1.\2", cell) for cell in line] for line in lines]
