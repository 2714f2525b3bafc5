"""Host entry: the mount namespace that has the engine's files and the host's programs.

    process 1, if its namespace can be opened and is the engine's ──┐
    the engine: who listens on its socket, if it is trusted         ──┴─▶ open namespace ─▶ command

It stays open while a change is under way: an engine that does not start again has no process to
enter by. Source: nsenter(1), setns(2), unix(7) SO_PEERCRED.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from moorage.linux.rooted_path import path_in_root
from moorage.runtimes.installing.downloads import RuntimeInstallationError
from moorage.runtimes.installing.engine_trust import find_impostor, has_same
from moorage.runtimes.installing.host_access import find_access
from moorage.runtimes.installing.running_processes import identity_of

_SELF, _FIRST = Path("/proc/self"), Path("/proc/1")
_MOUNTS = "ns/mnt"
_NONE = -1
_READ = os.O_RDONLY | os.O_CLOEXEC
_NEEDS = "an agent in a container needs hostPID and the capability SYS_PTRACE for it"


class HostEntry:
    """The host as its engine sees it, for commands and paths; closed after use."""

    def __init__(self, namespace: int = _NONE, process: int = _NONE) -> None:
        """Descriptors of a mount namespace and of a process's directory in /proc.

        Neither where this program is in the namespace itself.
        """
        self._namespace = namespace
        self._process = process

    @property
    def is_direct(self) -> bool:
        """Whether this program sees the host's files as the engine does."""
        return self._namespace == _NONE

    def command(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command that runs another one on the host."""
        if self.is_direct:
            return tuple(argv)
        # By this process's ID: the child's own /proc/self has no such descriptor.
        path = f"/proc/{os.getpid()}/fd/{self._namespace}"
        return ("nsenter", f"--mount={path}", "--", *argv)

    def path(self, path: Path) -> Path:
        """Return where a path of the host is for this program, while that process runs. Blocks.

        Links of directories above it are followed in the host, which the kernel would not do.
        Raises OSError.
        """
        if self.is_direct:
            return path
        return path_in_root(Path(f"{_SELF}/fd/{self._process}/root"), path)

    def close(self) -> None:
        """Close it; it must not be used afterwards."""
        for descriptor in (self._namespace, self._process):
            if descriptor != _NONE:
                os.close(descriptor)
        self._namespace = self._process = _NONE


def open_entry(endpoint: str, shared: Path, first: Path = _FIRST) -> HostEntry:
    """Open the way to the files of the engine at an endpoint, empty if it is not known. Blocks.

    `shared` is a directory that the agent shares with the host, at the same path. `first` is the
    host's first process.

    Raises RuntimeInstallationError where there is no way, or none that is safe.
    """
    socket = Path(endpoint.removeprefix("unix://"))
    with ExitStack() as opened:
        try:
            engine = _open_listener(endpoint, opened)
            if engine is not None and _namespace(engine) == _namespace(_SELF):
                return HostEntry()
            if not find_access().is_contained:
                if engine is None:
                    return HostEntry()
                raise RuntimeInstallationError(
                    f"the engine at {endpoint} has a file system of its own (a container): run "
                    "`moor runtime` in it"
                )
            process, namespace = _open_first(first, opened)
            if engine is None:
                if namespace == _NONE:
                    raise RuntimeInstallationError(
                        f"nothing listens on {socket}, and the host's first process cannot be "
                        "entered: start the engine on the node"
                    )
            elif namespace == _NONE:
                if problem := find_impostor(engine, socket, shared):
                    raise RuntimeInstallationError(
                        f"the process that listens on {socket} is not taken for the host's "
                        f"engine: {problem}"
                    )
                process = _kept(os.open(engine, os.O_PATH | os.O_CLOEXEC), opened)
                namespace = _kept(os.open(engine / _MOUNTS, _READ), opened)
            elif os.fstat(namespace).st_ino != _namespace(engine):
                raise RuntimeInstallationError(
                    f"the engine at {socket} has a file system of its own, neither the agent's "
                    "nor the host's: install runtimes in it by hand"
                )
        except OSError as error:
            raise RuntimeInstallationError(
                f"the way from the agent's container to the host is closed: {error}; {_NEEDS}"
            ) from error
        return HostEntry(os.dup(namespace), os.dup(process))


def _open_first(first: Path, opened: ExitStack) -> tuple[int, int]:
    """Return descriptors of the host's first process and of its mount namespace, if it has one."""
    try:
        namespace = _kept(os.open(first / _MOUNTS, _READ), opened)
    except OSError:
        # Where a security module, or a user namespace around the node, forbids it.
        return _NONE, _NONE
    return _kept(os.open(first, os.O_PATH | os.O_CLOEXEC), opened), namespace


def _open_listener(endpoint: str, opened: ExitStack) -> Path | None:
    """Return a directory in /proc, of the process that listens, which no other takes over."""
    identity = identity_of(endpoint)
    if identity is None:
        return None
    descriptor = _kept(os.open(f"/proc/{identity.pid}", os.O_PATH | os.O_CLOEXEC), opened)
    # Its ID might have become another's before it was opened.
    if identity_of(endpoint) != identity:
        raise RuntimeInstallationError(
            f"the engine at {endpoint} is being restarted; it is tried again"
        )
    return _SELF / "fd" / str(descriptor)


def _kept(descriptor: int, opened: ExitStack) -> int:
    opened.callback(os.close, descriptor)
    return descriptor


def check_shared(process: Path, directories: Iterable[Path]) -> None:
    """Check that an engine's directories are the agent's too, at the same paths. Blocks.

    Raises RuntimeInstallationError, OSError.
    """
    for directory in directories:
        if not has_same(process, directory):
            raise RuntimeInstallationError(
                f"the engine's configuration is in {directory}, which the agent does not have: add "
                f"it to agent.hostPaths, and make it on the node if it is not there"
            )


def _namespace(process: Path) -> int:
    return (process / _MOUNTS).stat().st_ino
