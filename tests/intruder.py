"""A user of this machine without rights, who tries everything below some directories.

The names are found by root and tried by a child with another user id, so that what is closed only
by not being listed is tried too.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path

UNPRIVILEGED = 65534


def reachable_paths(roots: Iterable[Path]) -> dict[str, list[str]]:
    """What that user can do below the directories, by kind: the paths.

    list      see the names in a directory
    enter     use names in a directory, without seeing them
    read      open a file for reading, or write, or run
    connect   connect to a socket
    """
    names = [path for root in roots for path in _paths_below(root)]
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(read_end)
            os.setgroups([])
            os.setgid(UNPRIVILEGED)
            os.setuid(UNPRIVILEGED)
            with os.fdopen(write_end, "w") as answer:
                json.dump(_attempts(names), answer)
            status = 0
        finally:
            os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        reachable: dict[str, list[str]] = json.load(answer)
    assert os.waitpid(child, 0)[1] == 0
    return {kind: sorted(paths) for kind, paths in reachable.items() if paths}


def _paths_below(root: Path) -> list[str]:
    """The root, all below it, and what leads to it; mounts are gone into."""
    paths = [str(root)]
    for directory, inner, files in os.walk(root):
        # A container's own view of the kernel is not the engine's to close.
        inner[:] = [name for name in inner if name not in ("proc", "sys")]
        paths += [os.path.join(directory, file) for file in (*inner, *files)]
    return paths


def _attempts(paths: Iterable[str]) -> dict[str, list[str]]:
    attempts: dict[str, list[str]] = {"list": [], "enter": [], "read": [], "connect": []}
    for path in paths:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode):
            if os.access(path, os.R_OK):
                attempts["list"].append(path)
            if os.access(path, os.X_OK):
                attempts["enter"].append(path)
        elif stat.S_ISSOCK(mode):
            if _connects(path):
                attempts["connect"].append(path)
        elif not stat.S_ISLNK(mode) and any(
            os.access(path, wanted) for wanted in (os.R_OK, os.W_OK, os.X_OK)
        ):
            attempts["read"].append(path)
    return attempts


def _connects(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True
