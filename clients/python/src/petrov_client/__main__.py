"""The entry point of the `petrov` command and of `python -m petrov_client`."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line, or say which packages of the extra `[cli]` are not installed."""
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing:
        sys.exit(f"petrov: {' and '.join(missing)} not installed: pip install {' '.join(missing)}")
    from petrov_client._commands.cli import run  # noqa: PLC0415  needs the packages that were just looked for

    run()


if __name__ == "__main__":
    main()
