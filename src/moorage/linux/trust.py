"""Trust in a file: whether only root, or this user, can have written it.

The file, every directory above it and every symlink on the way must belong to root or to this
process's user, and no other user may write to them, by mode or POSIX ACL, as sshd's StrictModes and
sudo require. A directory with the sticky bit, as /tmp, passes: the entry in it is checked itself.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from moorage.linux.trees import make_directories

if TYPE_CHECKING:
    from moorage.linux.idmap import IdMappings


# POSIX ACLs: which users and groups a file's access list lets write it, beside its mode.
#
# Source: acl(5); the kernel's `posix_acl_xattr.h`: a version, and entries of tag, permissions, ID.

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


# Private directories and files, which other users of the host cannot reach.
#
#     0700  a directory for its owner alone
#     0710  one that root of a user namespace may search, by its group on the host
#     0711  one that leads to such directories: any user may search but not list it
#     0600  a file
#
# Modes are exact whatever the umask, and those of existing directories are tightened.

PRIVATE, PASSABLE = 0o700, 0o711
PRIVATE_FILE = 0o600
UMASK = 0o077
"""For a process that creates such files."""

_FOR_GROUP = 0o710


def make_private(path: Path, mode: int = PRIVATE) -> None:
    """Create a directory and its parents, or tighten an existing one.

    A directory with the sticky bit, as /tmp, is shared and left alone. Raises OSError.
    """
    make_directories(path, mode)
    present = os.stat(path).st_mode
    if present & stat.S_ISVTX or stat.S_IMODE(present) == mode:
        return
    path.chmod(mode)


def make_private_for(path: Path, mappings: IdMappings | None) -> None:
    """Create a private directory that root of a user namespace may search too.

    Without mappings only its owner may. Raises OSError.
    """
    make_private(path)
    if mappings is not None:
        os.chown(path, -1, mappings.root[1])
        path.chmod(_FOR_GROUP)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, without a sync. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, PRIVATE_FILE)
    with os.fdopen(descriptor, "wb") as file:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != PRIVATE_FILE:
            os.fchmod(descriptor, PRIVATE_FILE)
        file.write(content)


_MAX_LINKS = 40
_ROOT = 0


@dataclass(frozen=True, slots=True)
class Distrust:
    """What is wrong with a path, a parent of it, or a link on the way."""

    path: Path
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path} {self.problem}; {self.remedy}"


def distrust(path: Path) -> Distrust | None:
    """Return why a file or directory is not trusted, None if it is.

    A path that does not exist is trusted, an access list that cannot be read is not. Costs two
    system calls for each component.
    """
    owners = {_ROOT, os.geteuid()}
    pending = deque(Path(os.path.abspath(path)).parts[1:])
    place, links = Path("/"), 0
    distrusted = _judge(place, os.lstat(place), owners)
    while distrusted is None and pending:
        part = pending.popleft()
        if part == "..":
            place = place.parent
            continue
        place /= part
        try:
            status = os.lstat(place)
        except OSError:
            return None
        distrusted = _judge(place, status, owners)
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MAX_LINKS:
                return Distrust(path, "has too many symbolic links", "name the file itself")
            target = Path(os.readlink(place))
            pending.extendleft(reversed([part for part in target.parts if part != "/"]))
            place = Path("/") if target.is_absolute() else place.parent
    return distrusted


def _judge(place: Path, status: os.stat_result, owners: set[int]) -> Distrust | None:
    if status.st_uid not in owners:
        return Distrust(
            place, f"belongs to uid {status.st_uid}, not to root", f"chown root {place}"
        )
    if stat.S_ISLNK(status.st_mode):
        # A link has no mode of its own; its directory's mode decides who may change it.
        return None
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode) and mode & stat.S_ISVTX:
        return None
    try:
        writers = acl_writers(place)
    except (OSError, ValueError) as error:
        problem = f"has an access list that cannot be read: {error}"
        return Distrust(place, problem, f"setfacl -b {place}")
    if writers is not None and (named := _named_writer(writers, owners)):
        return Distrust(place, f"can be written by {named} (access list)", f"setfacl -b {place}")
    # With an access list, the mode's bits of the group are its mask.
    by_group = mode & stat.S_IWGRP if writers is None else writers.by_own_group
    by_group = by_group and status.st_gid != _ROOT
    if by_group or mode & stat.S_IWOTH:
        who = "by others" if mode & stat.S_IWOTH else f"by group {status.st_gid}"
        return Distrust(place, f"can be written {who} (mode {mode:04o})", f"chmod go-w {place}")
    return None


def _named_writer(writers: AclWriters, owners: set[int]) -> str:
    """Return a user or group that an access list names and that is not trusted, empty for none."""
    for user in sorted(writers.users - owners):
        return f"uid {user}"
    for group in sorted(writers.groups - {_ROOT}):
        return f"group {group}"
    return ""
