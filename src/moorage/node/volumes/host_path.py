"""hostPath volumes: directories, files and devices of the node.

Source: core/v1 HostPathVolumeSource.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from moorage.linux.trees import make_directories

_DIRECTORY_MODE, _FILE_MODE = 0o755, 0o644
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
    """The path does not have the type that the pod requires."""


def check_host_path(path: Path, kind: str) -> None:
    """Create the path if its type allows that, then check the type. Blocks.

    Raises HostPathError with upstream's message, OSError from the file system.
    """
    if "\0" in str(path):
        raise HostPathError(f"invalid HostPath `{path}`: must not contain NUL")
    if not kind:
        return
    if ".." in path.parts:
        raise HostPathError(f"invalid HostPath `{path}`: must not contain '..'")
    if kind not in _CHECKS:
        raise HostPathError(f"{kind} is an invalid volume type")
    if kind == "DirectoryOrCreate" and not path.exists():
        make_directories(path, _DIRECTORY_MODE)
    if kind == "FileOrCreate" and not path.exists():
        _make_file(path)
    is_right, what = _CHECKS[kind]
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = 0
    if not is_right(mode):
        raise HostPathError(f"hostPath type check failed: {path} is not {what}")


def _make_file(path: Path) -> None:
    """Create a file with the API's mode, whatever the umask; no-op if it exists."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        made = os.open(path, flags, _FILE_MODE)
    except FileExistsError:
        return
    try:
        os.fchmod(made, _FILE_MODE)
    finally:
        os.close(made)
