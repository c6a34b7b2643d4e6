"""Marks in problem files: a guess stands in a comment at its line, and some guesses have to be confirmed.

A draft says `# guess: …` at every line that the data file did not decide. Where a wrong guess would train another model
than the one that is wanted, the mark begins with a subject of `SUBJECTS`, and the problem file is refused until a
person has removed the mark.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.user_error import typed

SUBJECTS = {
    "outputs": "which arrays are outputs",
    "inputs": "which inputs are known in advance for every frame",
    "samples": "which axis counts samples",
    "time": "which axis counts time, if one does",
    "points": "whether every sample has points of its own",
}
"""What has to be confirmed, by the word that a mark begins with."""
QUOTED = r""""(?:\\.|[^"\\])*"|'[^']*'"""
MARK = re.compile(rf"^(?:[^\"'#]|{QUOTED})*#\s*guess:\s*({'|'.join(SUBJECTS)})\b")

HEADER = re.compile(r"^\s*\[([^\[\]]+)\]")  # of a table
ENTRY = re.compile(rf"^\s*(length|boundary|points)\s*=(?:[^\"'#]|{QUOTED})*#\s*guess:")


def mark(text: str) -> str:
    """Return the comment that marks a guess at the end of its line; nothing for an empty text."""
    return f"  # guess: {text}" if text else ""


def unconfirmed(text: str) -> dict[int, str]:
    """Return the subjects of the marks in a problem file that have to be confirmed, by the number of their line."""
    found = ((number, MARK.match(line)) for number, line in enumerate(text.splitlines(), 1))
    return {number: match[1] for number, match in found if match}


def guessed_of_axes(text: str) -> dict[str, list[str]]:
    """Return which entries of a problem file's axes are marked as guesses, by the name of the axis."""
    found: dict[str, list[str]] = {}
    axis = ""
    for line in text.splitlines():
        if header := HEADER.match(line):
            axis = header[1].strip().removeprefix("axes.") if header[1].strip().startswith("axes.") else ""
        elif axis and (entry := ENTRY.match(line)):
            found.setdefault(axis, []).append(entry[1])
    return found


def refusal(path: Path, document: Mapping[str, Any], found: Mapping[int, str]) -> str:
    """Say which guesses of a problem file are not confirmed, and how that is done.

    Args:
        path: The problem file.
        document: Its contents.
        found: What `unconfirmed` found in its text, at least one mark.
    """
    said = []
    for subject, question in SUBJECTS.items():
        if lines := [str(number) for number, each in found.items() if each == subject]:
            said.append(f"{question} (line{'s' * (len(lines) > 1)} {', '.join(lines)})")
    words = " or ".join(f"`# guess: {subject}`" for subject in SUBJECTS if subject in found.values())
    sentence = f"{path}: not confirmed: {' and '.join(said)}. If it is right, remove the comment {words} from the line"
    if {"inputs", "outputs"}.isdisjoint(found.values()):
        return f"{sentence}."
    names = [
        str(table.get("key", name)) if isinstance(table, dict) else name
        for role in ("inputs", "outputs")
        for name, table in dict(document.get(role, {})).items()
    ]
    file, one = data_of(path, document), names[-1] if len(names) == 1 else "NAME"
    made = f"make describe FILE={shlex.quote(file)} OUTPUTS={shlex.quote(one)}"
    return (
        f"{sentence}; or draft the file anew with the outputs named, `{made}` or "
        f"`{typed('describe', file, '--outputs', one, '--write')}`, of {', '.join(names)}."
    )


def data_of(path: Path, document: Mapping[str, Any]) -> str:
    """Return what `describe` is called with for the data of a problem file: a file, or a folder of them."""
    files = document.get("data", {}).get("files") or ["FILE"]
    found = path.parent / str(files[0])
    return str(found.parent if "*" in found.name else found)
