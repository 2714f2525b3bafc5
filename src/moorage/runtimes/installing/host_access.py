"""Host access of a program that may run in a container with the host's process IDs.

There the host's first process shows the host's mounts, interfaces and name. Source: proc(5),
namespaces(7).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

_PROC = Path("/proc")


class HostAccess(msgspec.Struct, frozen=True):
    """How the host is seen: through a process of it."""

    process: str

    @property
    def is_contained(self) -> bool:
        """Whether this program runs in a container, beside the host's programs."""
        return self.process != DIRECT.process


DIRECT = HostAccess("self")
CONTAINED = HostAccess("1")


def find_access() -> HostAccess:
    """Return how this program sees the host that it runs on. Blocks. Raises OSError.

    Mounts are compared by their IDs, which no other namespace has: links to namespaces of processes
    with more capabilities cannot be read.
    """
    return DIRECT if _mounts(DIRECT.process) & _mounts(CONTAINED.process) else CONTAINED


def _mounts(process: str) -> frozenset[str]:
    """Return the IDs of a process's mounts. Source: proc(5) `mountinfo`."""
    text = (_PROC / process / "mountinfo").read_text(errors="surrogateescape")
    return frozenset(line.split(" ", 1)[0] for line in text.splitlines())
