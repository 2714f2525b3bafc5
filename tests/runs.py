"""Runs of `make test`: which modules each of them has to import.

To import a module and to make its tests takes longer than to decide by its text that none of its
tests belongs to a run. Source: docs/decisions/147-seven-runs.md.
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
SERVERS = "server and not cluster"
OTHERS = "not cluster and not below and not server"

RUNS = frozenset((SHARED, PLANES, CLUSTERS, ENGINES, BELOW, SERVERS, OTHERS))
"""Marker expressions, as in the Makefile. Each test belongs to exactly one."""

_RUN_OF_DIRECTORY = {
    "apiserver": SERVERS,
    "apiserver/admission": OTHERS,
    "apiserver/cel": OTHERS,
    "apiserver/flow_control": OTHERS,
    "apiserver/registry": OTHERS,
    "apiserver/storage": OTHERS,
    "attach": ENGINES,
    "attach/webhook": OTHERS,
    "cli": ENGINES,
    "clients": ENGINES,
    "cluster": ENGINES,
    "cluster/whole": CLUSTERS,
    "containerd_configuration": BELOW,
    "engine": BELOW,
    "guest": ENGINES,
    "inspect": ENGINES,
    "interchange": ENGINES,
    "linux": BELOW,
    "migrate": ENGINES,
    "migrate/rules": OTHERS,
    "mutants": BELOW,
    "node": BELOW,
    "runtimes/installing": ENGINES,
    "runtimes/probing": BELOW,
    "wire/cri": BELOW,
    "wire/streaming": BELOW,
}
"""Where most tests of a directory run. The longest entry counts; other directories are OTHERS.

ENGINES are those whose tests all start clusters or engines, as the modules of `tests/` itself do;
BELOW are those below the API, with about half of what the tests without whole clusters take;
SERVERS are those of the API server without some of its parts, which take as long as all OTHERS.
"""

_SHARES_A_CLUSTER = re.compile(r"\bwhole_cluster\b")
_SHARES_A_PLANE = re.compile(r"\bcontrol_plane\b")
_RUNTIME = re.compile(r"\bmark\.runtime\b")


def directory_run(parts: tuple[str, ...]) -> str:
    """Return the run of a module by its path below `tests/`, before the marks of its tests."""
    if len(parts) == 1:
        return ENGINES
    for length in range(len(parts) - 1, 0, -1):
        found = _RUN_OF_DIRECTORY.get("/".join(parts[:length]))
        if found is not None:
            return found
    return OTHERS


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
    own = directory_run(parts)
    runs.add(own)
    if own in (SERVERS, OTHERS) and _RUNTIME.search(text):
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
    if "cluster" in marks:
        return ENGINES
    return SERVERS if "server" in marks else OTHERS
