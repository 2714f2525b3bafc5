"""Leftovers of an earlier engine; a failed removal must not keep the engine from starting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from moorage.api.logs import Log
from moorage.linux.trees import remove_tree

log = Log(__name__)


def remove_leftover(path: Path, remove: Callable[[Path], None] = remove_tree) -> None:
    """Remove a file or directory; a failure is logged, and the next start retries."""
    try:
        remove(path)
    except OSError as error:
        log.warning("leftover of an earlier engine cannot be removed", path=path, reason=error)
