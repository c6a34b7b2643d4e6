"""JSON in pieces: no call of a library holds the interpreter for long, whatever a body consists of.

`orjson` parses and writes a text in one call, during which no other thread runs: 16 MB of `[],[],…` would stop every
response for seconds, and take thirty times their size. Here the outline of a long text is parsed alone. A list of
numbers in it is a `LongList`, the text itself, whose pieces become arrays one after another.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from serving.errors import Problem

Text = bytes | bytearray
PIECE = 2**16  # bytes of text that are parsed at once: some 20,000 lists, in a few milliseconds
_NUMBERS = 2**14  # that are written at once
_MOST_PARTS = 4096  # strings, objects and lists of an outline: more than any request has
_SHORT_LIST, _SHORT_LISTS = 2**12, 2**18  # bytes of a list, and of all lists, that stay in the outline
_MARK = secrets.token_hex(8)  # begins the string that stands for a long list; no client knows it
_QUOTE, _COMMA, _OPEN, _CLOSE, _BRACE, _END_BRACE = b'",[]{}'
_OPENING, _STRUCTURE = re.compile(rb'["\[{]'), re.compile(rb'\[[\s\[]*["{]')
_COLON = re.compile(rb"\s*:")


class LongList:
    """The text of a list of numbers, or of lists of them, from its opening bracket to behind its closing one."""

    def __init__(self, text: Text, start: int, end: int) -> None:
        self.text, self.start, self.end = text, start, end

    def pieces(self) -> Iterator[list[Any] | LongList]:
        """Yield the items in order, as lists of some of them; an item that is long by itself alone, as it is."""
        for begin, end in self._parts():
            opening = self.text.find(b"[", begin, begin + PIECE)
            if end - begin > 2 * PIECE and opening >= 0:
                closing = _closing(self.text, opening, end)
                if self.text[begin:opening].strip() or self.text[closing + 1 : end].strip():
                    raise _unreadable(self.text, opening, "a comma is expected between two values")
                yield LongList(self.text, opening, closing + 1)
                continue
            values = _loads(b"[%b]" % bytes(self.text[begin:end]), self.text, begin - 1)
            if not values:
                raise _unreadable(self.text, end, "a value is expected")
            yield values

    def items(self, most: int) -> list[Any]:
        """Return the first items, at most so many: numbers, lists and long lists."""
        found: list[Any] = []
        for piece in self.pieces():
            found += [piece] if isinstance(piece, LongList) else piece
            if len(found) >= most:
                break
        return found[:most]

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Yield the bounds of the pieces, which end before a comma of this list, at most one in a piece of text."""
        begin = self.start + 1
        for low, piece, depths in _depths(self.text, self.start, self.end):
            commas = np.flatnonzero((piece == _COMMA) & (depths == 1))
            if not commas.size:
                continue
            first, last = low + int(commas[0]), low + int(commas[-1])
            if first - begin > PIECE:
                yield begin, first
                begin = first + 1
            if last >= begin:
                yield begin, last
                begin = last + 1
        yield begin, self.end - 1


def parsed(content: Text | memoryview, end: int | None = None) -> Any:
    """Return parsed JSON, with a `LongList` for a long list of numbers; refuse what is none (`unreadable-body`)."""
    whole = end is None or end == len(content)
    text = content if whole and not isinstance(content, memoryview) else bytes(memoryview(content)[:end])
    outline, lists = (text, []) if len(text) <= PIECE else _outline(text)
    document = _loads(outline)
    check_names(outline, document)
    if not lists:
        return document
    found, rest = {"": document}, list[Any]()
    rest.append(found)
    while rest:  # the depth of objects is the sender's choice
        part = rest.pop()
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            if isinstance(value, str) and value.startswith(_MARK):
                part[key] = lists[int(value[len(_MARK) :])]
            elif isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict | str)):
                rest.append(value)
    return found[""]


def check_names(text: Text, document: Any) -> None:
    """Refuse a text with an object that has a name twice (`unreadable-body`), whose last value its document has.

    The text does not say which of them is meant (RFC 8259, section 4). Every name of a text is followed by a colon. It
    has more of them in strings, behind names that are repeated, and in lists, where objects are rare.
    """
    if text.count(b":") == sum(map(len, _objects(document))):
        return
    names, opening, count = Counter[str](), text.find(b'"'), 0
    while opening >= 0:
        count += 1
        if count > _MOST_PARTS:
            raise Problem("unreadable-body", f"the JSON has more than {_MOST_PARTS} strings")
        end, _ = _behind_string(text, opening)
        if _COLON.match(text, end):
            names[orjson.loads(text[opening:end])] += 1
        opening = text.find(b'"', end)
    for each in _objects(document, in_lists=True):
        names.subtract(each.keys())
    if repeated := [name for name, count in names.items() if count > 0]:
        raise Problem("unreadable-body", f'the JSON has "{repeated[0][:64]}" twice in one object')


def _objects(document: Any, *, in_lists: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the objects of a document, those in lists only if these begin with one or if all are wanted."""
    rest = [document]
    while rest:
        part = rest.pop()
        if isinstance(part, dict):
            yield part
            rest += part.values()
        elif isinstance(part, list) and part and (in_lists or isinstance(part[0], dict)):
            rest += part


def _outline(text: Text) -> tuple[bytes, list[LongList]]:
    """Return the text with a string in the place of each long list, and these lists."""
    parts: list[bytes | bytearray] = []
    lists: list[LongList] = []
    begin = position = count = short = 0
    while (opening := _next(text, position)) >= 0:
        count += 1
        if count > _MOST_PARTS:
            raise Problem("unreadable-body", f"the JSON has more than {_MOST_PARTS} strings, objects and lists")
        if text[opening] == _QUOTE:
            position, escaped = _behind_string(text, opening)
            count += escaped
        elif text[opening] != _OPEN or _STRUCTURE.match(text, opening, opening + PIECE):
            position = opening + 1
        else:
            position = _closing(text, opening, len(text)) + 1
            if (size := position - opening) > _SHORT_LIST or short + size > _SHORT_LISTS:
                parts += [text[begin:opening], f'"{_MARK}{len(lists)}"'.encode()]
                lists.append(LongList(text, opening, position))
                begin = position
            else:
                short += size
    return b"".join((*parts, text[begin:])), lists


def _next(text: Text, position: int) -> int:
    """Return where the next string, object or list begins, or -1."""
    for low in range(position, len(text), PIECE):
        if found := _OPENING.search(text, low, low + PIECE):
            return found.start()
    return -1


def _behind_string(text: Text, opening: int) -> tuple[int, int]:
    """Return the position behind a string, that of the end for one that does not end, and its escaped quotes."""
    escaped, closing = 0, text.find(b'"', opening + 1)
    while closing >= 0:
        before = text[max(opening + 1, closing - 64) : closing]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            return closing + 1, escaped
        escaped += 1
        if escaped > _MOST_PARTS:
            break
        closing = text.find(b'"', closing + 1)
    return len(text), escaped


def _closing(text: Text, opening: int, end: int) -> int:
    """Return where the list closes that opens at a position, and holds nothing but numbers and such lists."""
    for low, piece, depths in _depths(text, opening, end):
        closed = np.flatnonzero(depths == 0)
        other = np.flatnonzero((piece == _QUOTE) | (piece == _BRACE) | (piece == _END_BRACE))
        if closed.size and (not other.size or closed[0] < other[0]):
            return low + int(closed[0])
        if other.size and text[found := low + int(other[0])] != _END_BRACE:
            shown = "a string" if text[found] == _QUOTE else "an object"
            raise Problem("wrong-dtype", f"the list at byte {opening} has {shown} at byte {found}; expected numbers")
        if other.size:
            raise _unreadable(text, found, "a list does not end")
    raise _unreadable(text, end, "a list does not end")


def _depths(text: Text, start: int, end: int) -> Iterator[tuple[int, NDArray[np.uint8], NDArray[np.int32]]]:
    """Yield pieces of a text, each with its position, and behind each byte how many lists are open."""
    depth = 0
    for low in range(start, end, PIECE):
        piece = np.frombuffer(text, np.uint8, min(PIECE, end - low), low)
        steps = (piece == _OPEN).view(np.int8) - (piece == _CLOSE).view(np.int8)
        depths = np.cumsum(steps, dtype=np.int32)
        depths += depth
        yield low, piece, depths
        depth = int(depths[-1])


def _loads(text: Text, whole: Text | None = None, offset: int = 0) -> Any:
    """Return a parsed text, which stands in a whole one behind an offset."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _unreadable(text if whole is None else whole, error.pos + offset, error.msg) from error


def _unreadable(text: Text, position: int, message: str) -> Problem:
    line, column = text.count(b"\n", 0, position) + 1, position - text.rfind(b"\n", 0, position)
    hint = "; JSON has no NaN and no Infinity" if b"NaN" in text or b"Infinity" in text else ""
    return Problem("unreadable-body", f"not JSON: {message} at line {line} column {column}{hint}")


def written(document: Any) -> bytes | memoryview:
    """Return a document, which may hold contiguous arrays, as JSON; NaN is null."""
    arrays: list[NDArray[Any]] = []

    def write(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value.item()
        if value.size <= _NUMBERS:
            return orjson.Fragment(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))
        arrays.append(value)
        return f"{_MARK}{len(arrays) - 1}"

    rest = orjson.dumps(document, write)
    if not arrays:
        return rest
    text = bytearray()
    for index, array in enumerate(arrays):
        before, _, rest = rest.partition(f'"{_MARK}{index}"'.encode())
        text += before
        for piece in _numbers(array):
            text += piece
    text += rest
    return memoryview(text)


def _numbers(array: NDArray[Any]) -> Iterator[bytes]:
    """Yield the text of an array in pieces."""
    count = _NUMBERS * len(array) // array.size  # of items that are written at once
    yield b"["
    for start in range(0, len(array), max(count, 1)):
        if start:
            yield b","
        if count:
            yield orjson.dumps(array[start : start + count], option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
        else:
            yield from _numbers(array[start])
    yield b"]"
