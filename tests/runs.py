"""Runs of `make test`: which modules each of them has to import.

To import a module and to make its tests takes longer than to decide by its text that none of its
tests belongs to a run. Source: docs/decisions/147-six-runs.md.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent

SHARED = "shared and not plane"
PLANES = "plane"
CLUSTERS = "whole and not shared"
ENGINES = "cluster and not whole and not below"
BELOW = "below and not whole"
OTHERS = "not cluster and not below"

RUNS = frozenset((SHARED, PLANES, CLUSTERS, ENGINES, BELOW, OTHERS))
"""Marker expressions, as in the Makefile. Each test belongs to exactly one."""

_STARTS_PROGRAMS = frozenset(("cli", "clients", "cluster", "guest", "interchange"))
"""Directories whose tests all start clusters or engines, beside the modules of `tests/` itself."""

_BELOW_THE_API = frozenset(
    (
        "containerd_configuration", "cri", "engine", "handlers", "linux", "mutants", "node",
        "probing", "streaming",
    )
)  # fmt: skip
"""Directories with about half of what the tests without whole clusters take."""

_SHARES_A_CLUSTER = re.compile(r"\bwhole_cluster\b")
_SHARES_A_PLANE = re.compile(r"\bcontrol_plane\b")
_RUNTIME = re.compile(r"\bmark\.runtime\b")


def starts_programs(directory: str, *, is_runtime: bool) -> bool:
    """Return whether a test starts a cluster or an engine of its own.

    `directory` is the one of `tests/` that it is in, or a module's name; `is_runtime` whether the
    test has the marker `runtime`.
    """
    return is_runtime or directory in _STARTS_PROGRAMS or directory.endswith(".py")


def is_below(directory: str) -> bool:
    """Return whether a directory of `tests/` is of what is below the API: node and engine."""
    return directory in _BELOW_THE_API


def runs_of(path: Path) -> frozenset[str]:
    """Return the runs that the tests of a module can belong to."""
    return _runs_of(path.relative_to(HERE).parts, path.read_text())


@cache
def _runs_of(parts: tuple[str, ...], text: str) -> frozenset[str]:
    runs = set()
    if _SHARES_A_CLUSTER.search(text):
        runs.add(SHARED)
    if _SHARES_A_PLANE.search(text):
        runs.add(PLANES)
    if parts[:2] == ("cluster", "whole"):
        runs.add(CLUSTERS)
    elif starts_programs(parts[0], is_runtime=False):
        runs.add(ENGINES)
    elif is_below(parts[0]):
        runs.add(BELOW)
    else:
        runs.add(OTHERS)
        if _RUNTIME.search(text):
            runs.add(ENGINES)
    return frozenset(runs)


def run_of(marks: set[str]) -> str:
    """Return the run of a test that has these markers."""
    if "shared" in marks:
        return PLANES if "plane" in marks else SHARED
    if "whole" in marks:
        return CLUSTERS
    if "below" in marks:
        return BELOW
    return ENGINES if "cluster" in marks else OTHERS
