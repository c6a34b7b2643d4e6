"""A pseudo-terminal for programs under test: what a person would see on its screen, and the keys that are pressed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

CTRL_C = b"\x03"
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:[349][0-8]|10[0-7])(?:;\d+)*m")
_SEQUENCE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[()][0-9A-Z]|\x1b[=>78]")
#: What may make a program see more, or less, than this terminal.
_CHOSEN = ("CI", "COLORTERM", "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR", "PYTHONUNBUFFERED", "TERM")


@dataclass(frozen=True)
class Screen:
    """What a program has written to its terminal, and how it ended."""

    status: int
    written: str  # with control sequences
    columns: int

    @property
    def lines(self) -> list[str]:
        """The lines that a person sees in the end, those that have scrolled away included."""
        return _drawn(self.written, self.columns)

    @property
    def text(self) -> str:
        """The words on the screen, without the ends of its lines."""
        return " ".join(" ".join(self.lines).split())

    @property
    def coloured(self) -> bool:
        return COLOUR.search(self.written) is not None


@dataclass
class Terminal:
    """A pseudo-terminal with a program in its foreground; standard input, output and error are the terminal."""

    command: Sequence[str | Path]
    folder: Path
    columns: int = 80
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._terminal, program = pty.openpty()
        fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 40, self.columns, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name not in _CHOSEN}
        self._process = subprocess.Popen(
            # Ctrl-C reaches it, even where the suite itself was started in the background, which ignores SIGINT.
            ["setsid", "--ctty", "env", "--default-signal=INT", *map(str, self.command)],
            stdin=program,
            stdout=program,
            stderr=program,
            cwd=self.folder,
            env=inherited | {"TERM": "xterm-256color"} | dict(self.environment),
        )
        os.close(program)
        self._written = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_for(self, words: str | re.Pattern[str], seconds: float = 120.0) -> None:
        """Read until the screen has these words, or what a pattern finds: of numbers that pass, none may be seen."""
        end, wanted = time.monotonic() + seconds, re.compile(re.escape(words)) if isinstance(words, str) else words
        while not wanted.search(self._screen(0).text):
            assert self._read(end), f"{words!r} is not on the screen:\n" + "\n".join(self._screen(0).lines)

    def press(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def end(self, seconds: float = 240.0) -> Screen:
        """Read until the program ends; return its screen. A program that does not end in time is killed."""
        end = time.monotonic() + seconds
        try:
            while self._read(end):
                pass
            status = self._process.wait(max(end - time.monotonic(), 1.0))
        finally:
            self.kill()
        return self._screen(status)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1

    def _read(self, end: float) -> bool:
        """Read what is there, or wait for it; return False at the end of the program or of the time."""
        if not select.select([self._terminal], [], [], max(end - time.monotonic(), 0.0))[0]:
            return False
        try:
            found = os.read(self._terminal, 2**16)
        except OSError:  # how Linux reports that no process has the terminal any more
            return False
        self._written += found
        return bool(found)

    def _screen(self, status: int) -> Screen:
        return Screen(status, self._written.decode(errors="replace"), self.columns)


def run(*command: str | Path, folder: Path, columns: int = 80, environment: Mapping[str, str] | None = None) -> Screen:
    """Run a program in a terminal to its end."""
    return Terminal(command, folder, columns, environment or {}).end()


def _drawn(written: str, columns: int) -> list[str]:
    """Return the lines that a terminal of that width shows for a text with control sequences."""
    rows, row, column, at = [[" "] * columns], 0, 0, 0
    while at < len(written):
        if found := _SEQUENCE.match(written, at):
            number = int(found[1]) if (found[1] or "").isdecimal() else None
            match found[2]:
                case "A":
                    row = max(row - (number or 1), 0)
                case "G":
                    column = (number or 1) - 1
                case "K":
                    first = 0 if number == 2 else column
                    rows[row][first:] = [" "] * (columns - first)
            at = found.end()
            continue
        character, at = written[at], at + 1
        if character == "\r":
            column = 0
        elif character == "\n" or column == columns:
            row, column = row + 1, 0 if column == columns and character != "\n" else column
            if row == len(rows):
                rows.append([" "] * columns)
        if character >= " ":
            rows[row][column] = character
            column += 1
    return ["".join(each).rstrip() for each in rows]
