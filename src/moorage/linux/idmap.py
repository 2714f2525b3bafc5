"""Idmapped mounts, which show files under other owners, for containers in user namespaces.

A user namespace holds the mapping; a directory cloned with it shows each owner inside the range as
the owner it is mapped to. Source: mount_setattr(2) MOUNT_ATTR_IDMAP (Linux 5.12; below overlayfs
since 5.19), open_tree(2), move_mount(2), user_namespaces(7).
"""

from __future__ import annotations

import errno
import os
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moorage.linux import libc

_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_FROM_EMPTY_PATH = 4
_MOUNT_ATTR_IDMAP = 0x00100000
_DEADLINE_S = 10.0
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})


class IdmapUnsupportedError(OSError):
    """The kernel or the file system does not support idmapped mounts; the text says which."""


@dataclass(frozen=True, slots=True)
class IdRange:
    """`length` ids from `container_id` on, mapped to `host_id` and on."""

    container_id: int
    host_id: int
    length: int


@dataclass(frozen=True, slots=True)
class IdMappings:
    """The uid and gid mappings of a user namespace."""

    users: tuple[IdRange, ...]
    groups: tuple[IdRange, ...]

    @property
    def root(self) -> tuple[int, int]:
        """Host uid and gid of the namespace's root. Raises OSError when root is not mapped."""
        return self.user(0), self.group(0)

    def user(self, number: int) -> int:
        """Return the host uid of a uid in the namespace. Raises OSError when it is not mapped."""
        return _outside(number, self.users)

    def group(self, number: int) -> int:
        """Return the host gid of a gid in the namespace. Raises OSError when it is not mapped."""
        return _outside(number, self.groups)


@contextmanager
def held_user_namespace(mappings: IdMappings, kinds: Sequence[str] = ()) -> Iterator[Path]:
    """Hold a new user namespace with these mappings while the block lasts. Yields the /proc
    directory of a process in it.

    The process has new namespaces of the other `kinds` (`net`, `ipc`, `uts`) too, owned by the user
    namespace. Blocks for some milliseconds. Raises OSError.
    """
    # In a child, since a multi-threaded process cannot unshare its user namespace.
    holder = subprocess.Popen(
        ["unshare", "--user", *(f"--{kind}" for kind in kinds), "sh", "-c", "echo; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert holder.stdout is not None
    try:
        if not holder.stdout.readline():
            raise IdmapUnsupportedError(errno.EPERM, "user namespaces cannot be created")
        directory = Path(f"/proc/{holder.pid}")
        (directory / "uid_map").write_text(_table(mappings.users))
        (directory / "gid_map").write_text(_table(mappings.groups))
        yield directory
    finally:
        holder.kill()
        holder.communicate(timeout=_DEADLINE_S)


@contextmanager
def user_namespace(mappings: IdMappings) -> Iterator[int]:
    """Yield a descriptor of a user namespace with these mappings. Raises OSError."""
    with held_user_namespace(mappings) as directory:
        descriptor = os.open(directory / "ns/user", os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def mount_idmapped(source: Path, target: Path, namespace: int) -> None:
    """Mount a directory at `target` with owners mapped by a user namespace.

    Raises IdmapUnsupportedError, OSError; nothing is mounted then.
    """
    tree = libc.syscall(
        _SYS_OPEN_TREE, source, libc.AT_FDCWD, os.fsencode(source), _OPEN_TREE_CLONE | os.O_CLOEXEC
    )
    try:
        # struct mount_attr: attr_set, attr_clr, propagation, userns_fd.
        change = struct.pack("QQQQ", _MOUNT_ATTR_IDMAP, 0, libc.MS_PRIVATE, namespace)
        try:
            libc.syscall(
                _SYS_MOUNT_SETATTR, source, tree, b"", libc.AT_EMPTY_PATH, change, len(change)
            )
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            why = "no idmapped mounts (needs Linux 5.12 and a file system that has them)"
            raise IdmapUnsupportedError(error.errno, why, str(source)) from error
        libc.syscall(
            _SYS_MOVE_MOUNT, target, tree, b"", libc.AT_FDCWD, os.fsencode(target),
            _MOVE_MOUNT_FROM_EMPTY_PATH,
        )  # fmt: skip
    finally:
        os.close(tree)


def _outside(number: int, ranges: Sequence[IdRange]) -> int:
    for id_range in ranges:
        if id_range.container_id <= number < id_range.container_id + id_range.length:
            return id_range.host_id + number - id_range.container_id
    raise OSError(errno.EOVERFLOW, f"id {number} is not mapped into the user namespace")


def _table(ranges: Sequence[IdRange]) -> str:
    return "".join(
        f"{id_range.container_id} {id_range.host_id} {id_range.length}\n" for id_range in ranges
    )
