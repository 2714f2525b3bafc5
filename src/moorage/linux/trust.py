"""Trust in a file: whether only root, or this user, can have written it.

The file, every directory above it and every symlink on the way must belong to root or to this
process's user, and no other user may write to them, by mode or POSIX ACL, as sshd's StrictModes and
sudo require. A directory with the sticky bit, as /tmp, passes: the entry in it is checked itself.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from moorage.linux.posix_acl import AclWriters, acl_writers

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
