"""Mount propagation between host and container, and what it requires of the source.

Pure, from the text of a mountinfo file. Source: CRI MountPropagation; mount_namespaces(7); proc(5)
for `shared:` and `master:`; containerd's messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from moorage.engine.errors import InvalidError
from moorage.wire.cri import pb

_OCTAL = re.compile(r"\\([0-7]{3})")
_POINT_FIELD = 4
_FIRST_TAG = 6

OPTIONS = {
    pb.PROPAGATION_PRIVATE: "rprivate",
    pb.PROPAGATION_HOST_TO_CONTAINER: "rslave",
    pb.PROPAGATION_BIDIRECTIONAL: "rshared",
}
"""CRI propagation → mount option."""

_SHARED = "rshared"
_SLAVE = "rslave"


@dataclass(frozen=True, slots=True)
class Peers:
    """The propagation of one mount."""

    point: str
    is_shared: bool
    is_slave: bool


def parse_peers(mountinfo: str) -> tuple[Peers, ...]:
    """Return each mount's propagation, in the order of a mountinfo file."""
    return tuple(filter(None, map(_parse, mountinfo.split("\n"))))


def verify_source(
    propagation: pb.MountPropagation.ValueType, source: str, mounts: Iterable[Peers]
) -> None:
    """Raise InvalidError when a source does not support the requested propagation.

    `source` is resolved; private mounts need nothing.
    """
    if propagation == pb.PROPAGATION_PRIVATE:
        return
    mount = _mount_of(source, mounts)
    if propagation == pb.PROPAGATION_BIDIRECTIONAL and not mount.is_shared:
        raise InvalidError(
            f"path {source!r} is mounted on {mount.point!r} but it is not a shared mount; "
            f"run `mount --make-rshared {mount.point}` on the node"
        )
    if not mount.is_shared and not mount.is_slave:
        raise InvalidError(
            f"path {source!r} is mounted on {mount.point!r} but it is not a shared or slave mount; "
            f"run `mount --make-rshared {mount.point}` on the node"
        )


def rootfs_propagation(propagations: Iterable[pb.MountPropagation.ValueType]) -> str:
    """Return the OCI `linux.rootfsPropagation` that these mounts need, "" for the runtime's
    default.
    """
    options = {OPTIONS[propagation] for propagation in propagations}
    return next((option for option in (_SHARED, _SLAVE) if option in options), "")


def _mount_of(source: str, mounts: Iterable[Peers]) -> Peers:
    """Return the mount of a path: the deepest, and of several on one point the last, which
    hides.
    """
    above = {source, *map(str, PurePosixPath(source).parents)}
    best = Peers("/", is_shared=False, is_slave=False)
    for mount in mounts:
        if mount.point in above and len(mount.point) >= len(best.point):
            best = mount
    return best


def _parse(line: str) -> Peers | None:
    fields = line.partition(" - ")[0].split(" ")
    if len(fields) < _FIRST_TAG:
        return None
    point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[_POINT_FIELD])
    tags = {tag.partition(":")[0] for tag in fields[_FIRST_TAG:]}
    return Peers(point, is_shared="shared" in tags, is_slave="master" in tags)
