"""Data directory check: a cluster is created only in a directory without other files."""

from __future__ import annotations

import os
from pathlib import Path

from moorage.cluster.settings import SettingsError

# Pod names (namespace, name, uid) and container names are below it. Source: PATH_MAX, NAME_MAX.
_DATA_DIR_BYTES = 1024
# Names that only a cluster's directory has. A start reports which of them is missing.
_MARKS = frozenset({"cluster.json", "db", "pki", "store.mark", "supervisor.json"})
# Names that may exist in a cluster's directory before its settings, or on an empty file system.
_BEFORE_SETTINGS = frozenset({"change.lock", "engine", "images", "logs", "lost+found", "restore"})


def check_directory(directory: Path) -> None:
    """Check that a directory has a cluster, or that one can be created there.

    Raises SettingsError for a path that cannot be written to, or that holds other files, which
    deleting the cluster would delete.
    """
    problem = _problem(directory)
    if problem:
        raise SettingsError(f"--data-dir {directory}: {problem}; choose another directory")


def _problem(root: Path) -> str:
    """Return why a directory cannot be a cluster's, empty if it can."""
    if len(bytes(root)) > _DATA_DIR_BYTES:
        return f"the path is longer than {_DATA_DIR_BYTES} bytes, which leaves no room below it"
    if not root.exists():
        return _parent_problem(next(parent for parent in root.parents if parent.exists()))
    if not os.access(root, os.W_OK | os.X_OK):
        return "it is not writable for this user"
    names = {entry.name for entry in root.iterdir()}
    if not names & _MARKS and not names <= _BEFORE_SETTINGS:
        return f"it is not a cluster's directory and is not empty ({min(names - _BEFORE_SETTINGS)})"
    return ""


def _parent_problem(parent: Path) -> str:
    if not parent.is_dir():
        return f"{parent} is not a directory"
    if not os.access(parent, os.W_OK | os.X_OK):
        return f"{parent} is not writable for this user"
    return ""
