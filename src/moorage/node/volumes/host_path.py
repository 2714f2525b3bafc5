"""Directories, files and devices of the node in a pod. Source: core/v1 HostPathVolumeSource."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

_CHECKS: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


class HostPathError(ValueError):
    """The path is not what the pod says it is."""


def check_host_path(path: Path, kind: str) -> None:
    """Create what may be created, then insist on the kind. Blocks.

    Raises HostPathError in upstream's words, OSError from the file system.
    """
    if not kind:
        return
    if ".." in path.parts:
        raise HostPathError(f"invalid HostPath `{path}`: must not contain '..'")
    if kind not in _CHECKS:
        raise HostPathError(f"{kind} is an invalid volume type")
    if kind == "DirectoryOrCreate" and not path.exists():
        path.mkdir(mode=0o755, parents=True)
    if kind == "FileOrCreate" and not path.exists():
        path.touch(mode=0o644)
    is_right, what = _CHECKS[kind]
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = 0
    if not is_right(mode):
        raise HostPathError(f"hostPath type check failed: {path} is not {what}")
