"""A draft written as a problem file in TOML."""

from __future__ import annotations

import json
import re

from training.problems.own.draft import Draft, Tensor

UNSEEN = re.compile(r"[\x00-\x1f\x7f]+")  # no comment holds these


def toml(made: Draft) -> str:
    """Write a draft as a problem file, what was guessed in comments at its head."""
    lines = [f"# {UNSEEN.sub(' ', remark)}" for remark in made.remarks]
    lines += [f'name = "{made.name}"', f'title = "{made.name}"', 'equation = ""', "", "[data]"]
    lines += [f"files = [{', '.join(quoted(name) for name in made.files)}]", f'format = "{made.format}"']
    lines += ["validation = 0.1", "test = 0.1"]
    for role in ("inputs", "parameters", "outputs"):
        for tensor in made.of(role):
            lines += ["", f"[{role}.{tensor.name}]", *entries(tensor)]
    for axis, entry in made.axes.items():
        lines += ["", f"[axes.{axis}]", f"length = {entry['length']}"]
        lines += [f"boundary = {quoted(entry['boundary'])}", f"points = {quoted(entry['points'])}"]
    time = ["", "[time]", f"step = {made.step}", "history = 1"] if made.moving else []
    return "\n".join([*lines, "", "[symmetries]", "exact = []", *time, ""])


def entries(tensor: Tensor) -> list[str]:
    """Write the keys of one tensor's table."""
    lines = [f"key = {quoted(tensor.array.name)}", f"units = {quoted(tensor.array.units or '1')}"]
    lines += [f"meaning = {quoted(tensor.array.meaning)}"] if tensor.array.meaning else []
    if tensor.role == "parameters":
        return lines
    lines += ["positive = true"] if tensor.positive else []
    lines += [f"frame = {tensor.frame}"] if tensor.frame is not None else []
    if tensor.components:
        lines.append(f"components = [{', '.join(quoted(f'c{index}') for index in range(tensor.components))}]")
        lines += [f"component_axis = {quoted(tensor.component_axis)}"] if tensor.component_axis == "last" else []
    return lines


def quoted(text: str) -> str:
    """Write a TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # which JSON allows
