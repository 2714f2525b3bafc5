"""Process identity: user and groups, resolved with the image's passwd and group files.

The choice is pure; the files are read without following a link out of the root file system.
ContainerStatus.user reports the result too. Source: CRI LinuxContainerSecurityContext, KEP-3619
(supplementalGroupsPolicy), OCI image-spec `config.User`, passwd(5), group(5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from moorage.engine.errors import InvalidError
from moorage.linux.rooted_path import read_in_root
from moorage.wire.cri import pb

MAX_ID = 2**31 - 1
MAX_FILE_BYTES = 4 << 20

_ROOT = "0"


@dataclass(frozen=True, slots=True)
class Identity:
    """A process's user. `additional_gids` begins with `gid`, so that a process cannot drop a group
    to which access is denied. `username` is the passwd file's, "" when it names no such user.
    """

    uid: int
    gid: int
    additional_gids: tuple[int, ...]
    username: str = ""

    def message(self) -> pb.ContainerUser:
        """Return the user in a container's status."""
        return pb.ContainerUser(
            linux=pb.LinuxContainerUser(
                uid=self.uid, gid=self.gid, supplemental_groups=self.additional_gids
            )
        )


@dataclass(frozen=True, slots=True)
class PasswdEntry:
    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class GroupEntry:
    name: str
    gid: int
    members: tuple[str, ...]


def resolve_identity(
    context: pb.LinuxContainerSecurityContext, image_user: str, rootfs: Path
) -> Identity:
    """Return the identity of a container's process. Blocks: reads two files of the root file
    system.

    Raises InvalidError for names that the image does not know.
    """
    return choose_identity(
        context,
        image_user,
        parse_passwd(read_image_file(rootfs, "etc/passwd")),
        parse_group(read_image_file(rootfs, "etc/group")),
    )


def read_image_file(rootfs: Path, path: str) -> str:
    """Return the text of a file in a root file system, "" without it. Blocks.

    Raises InvalidError for what is not a regular file, is larger than 4 MiB, or cannot be read.
    """
    try:
        return read_in_root(rootfs, path, MAX_FILE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise InvalidError(f"the image's /{path} cannot be read: {error.strerror}") from error


def choose_identity(
    context: pb.LinuxContainerSecurityContext,
    image_user: str,
    users: Iterable[PasswdEntry],
    groups: Iterable[GroupEntry],
) -> Identity:
    """Return the identity: the container's user, else the image's, else root.

    The default group is the user's primary one, else 0. Policy Merge adds the groups whose members
    name the user; Strict does not. Raises InvalidError.
    """
    wanted_user, wanted_group = _wanted(context, image_user)
    user_entries, group_entries = tuple(users), tuple(groups)
    user = _find_user(wanted_user, user_entries)
    uid = user.uid if user is not None else _number(wanted_user, "user")
    gid = _group_id(wanted_group, group_entries) if wanted_group else (user.gid if user else 0)
    name = user.name if user is not None else ""
    additional = [gid]
    if context.supplemental_groups_policy != pb.Strict and name:
        additional += (
            entry.gid for entry in group_entries if name in entry.members and entry.name != name
        )
    additional += (_checked(group, "supplemental group") for group in context.supplemental_groups)
    return Identity(uid, gid, tuple(dict.fromkeys(additional)), name)


def parse_passwd(text: str) -> tuple[PasswdEntry, ...]:
    """Return the users of a passwd file; malformed lines are ignored, as by libc."""
    return tuple(
        PasswdEntry(fields[0], int(fields[2]), int(fields[3]))
        for fields in _lines(text, 4)
        if _is_number(fields[2]) and _is_number(fields[3])
    )


def parse_group(text: str) -> tuple[GroupEntry, ...]:
    """Return the groups of a group file; malformed lines are ignored."""
    return tuple(
        GroupEntry(fields[0], int(fields[2]), tuple(filter(None, fields[3].split(","))))
        for fields in _lines(text, 4)
        if _is_number(fields[2])
    )


def _wanted(context: pb.LinuxContainerSecurityContext, image_user: str) -> tuple[str, str]:
    """Return the requested user and group, each a name, a number, or "" for the group."""
    has_uid, name = context.HasField("run_as_user"), context.run_as_username
    if has_uid and name:
        raise InvalidError(
            f"security_context has both run_as_user {context.run_as_user.value} and "
            f"run_as_username {name!r}; set only one of them"
        )
    group = ""
    if context.HasField("run_as_group"):
        group = str(_checked(context.run_as_group.value, "run_as_group"))
        if not has_uid and not name:
            raise InvalidError(
                f"run_as_group {group} is specified without user; set run_as_user too"
            )
    if has_uid:
        return str(_checked(context.run_as_user.value, "run_as_user")), group
    if name:
        return name, group
    user, _, of_image = image_user.partition(":")
    return user or _ROOT, of_image


def _find_user(name: str, users: tuple[PasswdEntry, ...]) -> PasswdEntry | None:
    """Return a user's entry. A number needs none."""
    if _is_number(name):
        uid = int(name)
        return next((user for user in users if user.uid == uid), None)
    entry = next((user for user in users if user.name == name), None)
    if entry is None:
        raise InvalidError(
            f"no user {name!r} in the image's /etc/passwd; set run_as_user to a number, or use an "
            "image that has this user"
        )
    return entry


def _group_id(name: str, groups: tuple[GroupEntry, ...]) -> int:
    if _is_number(name):
        return _number(name, "group")
    for group in groups:
        if group.name == name:
            return group.gid
    raise InvalidError(
        f"no group {name!r} in the image's /etc/group; set run_as_group to a number, or use an "
        "image that has this group"
    )


def _number(text: str, what: str) -> int:
    return _checked(int(text), what)


def _checked(value: int, what: str) -> int:
    if not 0 <= value <= MAX_ID:
        raise InvalidError(f"{what} {value} is out of range; it must be 0 to {MAX_ID}")
    return value


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _lines(text: str, least: int) -> Iterator[list[str]]:
    for line in text.split("\n"):
        fields = line.strip().split(":")
        if len(fields) >= least and fields[0] and not fields[0].startswith("#"):
            yield fields
