"""Removal of what an earlier engine left: whatever of it cannot be removed, the engine starts."""

from __future__ import annotations

from pathlib import Path

from moorage.api.logs import Log
from moorage.linux.trees import remove_tree

log = Log(__name__)


def remove_leftover(path: Path) -> None:
    """Remove a file or directory; one that cannot be is logged, and stays for the next start."""
    try:
        remove_tree(path)
    except OSError as error:
        log.warning("leftover of an earlier engine cannot be removed", path=path, reason=error)
