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

import msgspec

from moorage.linux.rooted_path import path_in_root, stat_in_root
from moorage.linux.trust import distrust
from moorage.runtimes.installing.downloads import RuntimeInstallationError
from moorage.runtimes.installing.host_access import find_access
from moorage.runtimes.installing.running_processes import identity_of

# Trust in an engine's process: it must be the host's, not one that a pod put on the socket.
#
# An agent in a container enters the mount namespace of the process that listens on the CRI
# socket, and runs programs there. So that process must have what only a process has that is root
# on the node anyway: then a pod gains nothing by being taken for the engine. Source:
# capabilities(7), user_namespaces(7), pid_namespaces(7).

_SYS_ADMIN = 21
_OWN_PROCESS = Path("/proc/self")


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
        read_facts(process), read_facts(_OWN_PROCESS), shares_directory=has_same(process, shared)
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
