"""Table of `make coverage`: statements that tests reached, by package."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from coverage import Coverage

_SOURCES = Path(__file__).resolve().parents[1] / "src" / "moorage"


def main() -> int:
    coverage = Coverage()
    coverage.load()
    statements: dict[str, int] = defaultdict(int)
    missed: dict[str, int] = defaultdict(int)
    for name in coverage.get_data().measured_files():
        path = Path(name)
        if not path.exists() or not path.is_relative_to(_SOURCES):
            continue
        package, *below = path.relative_to(_SOURCES).parts
        _, executable, _, missing, _ = coverage.analysis2(name)
        for key in (package if below else "(top)", "total"):
            statements[key] += len(executable)
            missed[key] += len(missing)
    if not statements:
        print("no data: run `make coverage`", file=sys.stderr)
        return 1
    print(f"{'package':<16}{'statements':>12}{'missed':>8}{'reached':>9}")
    for key in sorted(statements, key=lambda name: (name == "total", name)):
        count = statements[key]
        share = 100 * (1 - missed[key] / count) if count else 100.0
        print(f"{key:<16}{count:>12}{missed[key]:>8}{share:>8.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
