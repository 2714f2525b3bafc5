"""POSIX ACLs: which users and groups a file's access list lets write it, beside its mode.

Source: acl(5); the kernel's `posix_acl_xattr.h`: a version, and entries of tag, permissions, ID.
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import msgspec

_ACCESS = "system.posix_acl_access"
_VERSION = 2
_HEADER, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_USER, _GROUP_OF_FILE, _GROUP, _MASK = 0x02, 0x04, 0x08, 0x10
_WRITE = 0o2
_NO_LIST = (errno.ENODATA, errno.EOPNOTSUPP, errno.ENOENT, errno.ENOTDIR)


class AclWriters(msgspec.Struct, frozen=True):
    """IDs of the users and groups that may write; `by_own_group`: those of the file's group may."""

    users: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()
    by_own_group: bool = False


def acl_writers(path: Path) -> AclWriters | None:
    """Return who may write a file by its access list, None for a file without one.

    A symbolic link, or a file system without lists, has none. Blocks. Raises OSError, and
    ValueError for a list that the kernel's documents do not describe.
    """
    try:
        value = os.getxattr(path, _ACCESS, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_LIST:
            return None
        raise
    return writers_of(value)


def writers_of(value: bytes) -> AclWriters:
    """Return who may write by the value of `system.posix_acl_access`. Raises ValueError."""
    entries = value[_HEADER.size :]
    if value[: _HEADER.size] != _HEADER.pack(_VERSION) or len(entries) % _ENTRY.size:
        raise ValueError("an access list of another form")
    listed = list(_ENTRY.iter_unpack(entries))
    # The mask bounds all entries but those of the owner and of others.
    mask = next((permissions for tag, permissions, _ in listed if tag == _MASK), 0o7)
    writing = [(tag, id_) for tag, permissions, id_ in listed if permissions & mask & _WRITE]
    return AclWriters(
        users=frozenset(id_ for tag, id_ in writing if tag == _USER),
        groups=frozenset(id_ for tag, id_ in writing if tag == _GROUP),
        by_own_group=any(tag == _GROUP_OF_FILE for tag, _ in writing),
    )
