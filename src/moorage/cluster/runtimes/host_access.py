"""Host access of a program that may run in a container with the host's process IDs.

There the host's first process has the host's mounts and systemd; programs are run in its mount
namespace, so that they are the host's own. Source: nsenter(1), namespaces(7).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

_PROC = Path("/proc")


class HostAccess(msgspec.Struct, frozen=True):
    """How the host is reached: a process in its mount namespace, and what precedes a command."""

    process: str
    command: tuple[str, ...] = ()

    @property
    def is_contained(self) -> bool:
        """Whether this program runs in a container, beside the host's programs."""
        return bool(self.command)

    def mount_namespace(self) -> int:
        """Return the inode of the host's mount namespace. Blocks. Raises OSError."""
        return mount_namespace(_PROC / self.process)

    def has_systemd(self) -> bool:
        """Return whether the host's services are systemd's. Blocks."""
        if not self.is_contained:
            return Path("/run/systemd/system").is_dir()
        try:
            return (_PROC / self.process / "comm").read_text().strip() == "systemd"
        except OSError:
            return False


DIRECT = HostAccess("self")
CONTAINED = HostAccess("1", ("nsenter", "--target", "1", "--mount", "--"))


def mount_namespace(process: Path) -> int:
    """Return the inode of the mount namespace of a directory in /proc. Raises OSError."""
    return (process / "ns" / "mnt").stat().st_ino


def find_access() -> HostAccess:
    """Return how this program reaches the host that it runs on. Blocks. Raises OSError.

    Mounts are compared by their IDs, which no other namespace has: links to namespaces of processes
    with more capabilities cannot be read.
    """
    return DIRECT if _mounts("self") & _mounts(CONTAINED.process) else CONTAINED


def _mounts(process: str) -> frozenset[str]:
    """Return the IDs of a process's mounts. Source: proc(5) `mountinfo`."""
    text = (_PROC / process / "mountinfo").read_text(errors="surrogateescape")
    return frozenset(line.split(" ", 1)[0] for line in text.splitlines())
