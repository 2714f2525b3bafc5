"""Trust in an engine's process: it must be the host's, not one that a pod put on the socket.

An agent in a container enters the mount namespace of the process that listens on the CRI socket,
and runs programs there. So that process must have what only a process has that is root on the node
anyway: then a pod gains nothing by being taken for the engine. Source: capabilities(7),
user_namespaces(7), pid_namespaces(7).
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from moorage.linux.rooted_path import stat_in_root
from moorage.linux.trust import distrust

_SYS_ADMIN = 21
_SELF = Path("/proc/self")


class ProcessFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A process: effective user, inodes of namespaces, effective capabilities as a bit set."""

    user: int
    user_namespace: int
    pid_namespace: int
    capabilities: int


def find_distrust(engine: ProcessFacts, own: ProcessFacts, *, shares_directory: bool) -> str:
    """Return why a process may not be the host's engine, empty if it is taken for it.

    shares_directory: at the path of the agent's own directory, which is one of the host's, the
    process has the same directory.
    """
    if engine.user != 0:
        return f"it runs as user {engine.user}, not as root"
    if engine.user_namespace != own.user_namespace:
        return "it has a user namespace of its own, as a container has"
    if engine.pid_namespace != own.pid_namespace:
        return "it has process IDs of its own, as a container has"
    if not engine.capabilities >> _SYS_ADMIN & 1:
        return "it lacks the capability SYS_ADMIN, which an engine needs"
    if not shares_directory:
        return "it does not have the agent's directory at the same path, as the host has"
    return ""


def read_facts(process: Path) -> ProcessFacts:
    """Return the facts of a directory in /proc. Blocks. Raises OSError, ValueError."""
    fields = dict(
        line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line
    )
    _, effective, *_ = fields["Uid"].split()
    return ProcessFacts(
        user=int(effective),
        user_namespace=(process / "ns/user").stat().st_ino,
        pid_namespace=(process / "ns/pid").stat().st_ino,
        capabilities=int(fields["CapEff"], 16),
    )


def find_impostor(process: Path, socket: Path, shared: Path) -> str:
    """Return why the listener of a socket is not taken for the host's engine, empty if it is.

    Blocks. Raises OSError.
    """
    for directory in (socket.parent, socket.resolve().parent):
        if problem := distrust(directory):
            return str(problem)
    return find_distrust(
        read_facts(process), read_facts(_SELF), shares_directory=has_same(process, shared)
    )


def has_same(process: Path, path: Path) -> bool:
    """Return whether a process has the same file at a path as this one. Blocks.

    The process's own links count: those of an image must not lead to this process's files. Raises
    PermissionError.
    """
    try:
        return os.path.samestat(stat_in_root(process / "root", path), os.stat(path))
    except PermissionError:
        raise
    except OSError:
        # It is not there, or is a loop of links.
        return False
