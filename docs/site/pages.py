"""Hooks of mkdocs that add the README, other pages and the notebooks, and convert links.

A link to the source of a page becomes a link to the page. A link to any other file of the repository becomes the file's
name; the file has to exist. The tables are in the files: `python -m benchmarks pages` writes them.
"""  # noqa: INP001 - mkdocs loads this file by its path

from __future__ import annotations

import base64
import json
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
COPIED = {
    "index.md": "README.md",
    "client.md": "clients/python/README.md",
    "contributing.md": "CONTRIBUTING.md",
    **{f"notebooks/{path.stem}.md": f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.ipynb"))},
}
#: A link, or a block of code, which has none.
LINK = re.compile(r"```.*?```|(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)", re.DOTALL)
PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?:)docs/([^)\s]+)\)")
FORMULA = re.compile(r"\$([^$`]+)\$")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not Markdown files under `docs`."""
    for target, source in COPIED.items():
        file = ROOT / source
        text, pictures = notebook(file) if file.suffix == ".ipynb" else (file.read_text(), {})
        files.append(File.generated(config, target, content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    return files


def on_page_markdown(text: str, page: Page, files: Files, **_: Any) -> str:
    """Replace links between files of the repository by links between pages."""
    source = PurePosixPath(COPIED.get(page.file.src_uri, f"docs/{page.file.src_uri}"))

    def replaced(found: re.Match[str]) -> str:
        if found[2] is None:
            return found[0]
        return linked(found[1], _from_root(source.parent / found[2]), found[3] or "", page, files)

    return LINK.sub(replaced, PICTURE.sub(r"![\1](\2)", text))


def notebook(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return the cells of a notebook and what they print as Markdown, and the pictures that it names."""
    shown: list[str] = []
    pictures: dict[str, bytes] = {}
    for each in json.loads(path.read_text())["cells"]:
        source = "".join(each["source"])
        if each["cell_type"] == "markdown":
            shown.append(FORMULA.sub(lambda found: f"`#!math {' '.join(found[1].split())}`", source))
            continue
        shown.append(f"```python\n{re.sub('^# ruff: .*', '', source).strip()}\n```")
        for output in each["outputs"]:
            if output["output_type"] == "stream":
                shown.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            elif "image/png" in output.get("data", {}):
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode("".join(output["data"]["image/png"]))
                shown.append(f"![output of the cell above]({name})")
    return "\n\n".join(shown), pictures


def linked(text: str, target: PurePosixPath, anchor: str, page: Page, files: Files) -> str:
    """Return a link to the page made from a file, or the name of a file that has no page.

    Args:
        text: What the link shows.
        target: The file, relative to the repository.
        anchor: The heading in it, with its `#`; empty for none.
        page: The page that holds the link.
        files: All files of the site.

    Returns:
        The link or the name, as Markdown.

    Raises:
        PluginError: The file does not exist.
    """
    copies = {source: name for name, source in COPIED.items()}
    within = str(target.relative_to("docs")) if target.is_relative_to("docs") else ""
    name = copies.get(str(target), within)
    if files.get_file_from_path(name) is not None:
        return f"[{text}]({_relative(name, page.file.src_uri)}{anchor})"
    if not (ROOT / target).exists():
        raise PluginError(f'{page.file.src_uri} links to "{target}", which does not exist')
    return text if str(target) in text else f"{text} (`{target}`)"


def _from_root(path: PurePosixPath) -> PurePosixPath:
    """Return a path without `..`."""
    parts: list[str] = []
    for part in path.parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return PurePosixPath(*parts)


def _relative(target: str, page: str) -> str:
    return "../" * page.count("/") + target
