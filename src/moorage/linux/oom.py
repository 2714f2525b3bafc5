"""OOM score: which processes the kernel kills first. Source: proc(5), oom_score_adj."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from moorage.linux.capabilities import SYS_RESOURCE

LOWEST_OOM_SCORE = -1000

_OWN_SCORE = Path("/proc/self/oom_score_adj")


def own_oom_score(file: Path = _OWN_SCORE) -> str:
    """Return this process's oom_score_adj, "" if it cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def oom_score_floor(own: Iterable[str], own_score: str) -> int:
    """Return the lowest oom_score_adj this process may set: its own, unless it may lower it.

    `own` are its capabilities.
    """
    if SYS_RESOURCE in own or not own_score:
        return LOWEST_OOM_SCORE
    return int(own_score)
