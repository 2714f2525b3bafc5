"""List of the tests that `make test` gave a second chance: those that failed beside the others.

Each is a bug until shown otherwise, in the product first: docs/decisions/147.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path


def second_chances(files: Iterable[Path]) -> list[str]:
    """Return the names in pytest's lists of failed tests, sorted; an absent file has none."""
    names: set[str] = set()
    for file in files:
        if file.exists():
            names.update(json.loads(file.read_text()))
    return sorted(names)


def main() -> int:
    """Print the count and the names of the tests in the files that are arguments."""
    names = second_chances(map(Path, sys.argv[1:]))
    print(f"second chances: {len(names)}")
    for name in names:
        print(f"  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
