"""The `petrov` command, also `python -m petrov_client`: says what is missing where the extra `cli` is not installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line."""
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing:
        sys.exit(f'petrov: {" and ".join(missing)} not installed: pip install "petrov-client[cli]"')
    from petrov_client._cli import run  # noqa: PLC0415  needs what was just looked for

    run()


if __name__ == "__main__":
    main()
