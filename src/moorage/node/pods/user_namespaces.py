"""Ranges of user ids for pods that have users of their own.

Each pod gets 65536 ids that no other pod on this node has, remembered in the pod's directory so
that a restarted agent hands out nothing twice. Source: KEP-127; kubelet `userns` manager, whose
file form is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import field

from moorage.api.meta import Object
from moorage.api.pods import Pod
from moorage.cri import pb
from moorage.node.config.errors import ConfigError
from moorage.node.paths import NodePaths

LENGTH = 65536


class _Mapping(Object, frozen=True):
    host_id: int = 0
    container_id: int = 0
    length: int = 0


class _Stored(Object, frozen=True):
    uid_mappings: tuple[_Mapping, ...] = field(default=(), name="uidMappings")
    gid_mappings: tuple[_Mapping, ...] = field(default=(), name="gidMappings")


class UserNamespaces:
    """Hands out id ranges, at most one a pod slot."""

    def __init__(self, paths: NodePaths, *, max_pods: int) -> None:
        self._paths = paths
        self._max_pods = max_pods
        self._assigning = asyncio.Lock()

    async def of(self, pod: Pod) -> pb.UserNamespace:
        """The pod's range, a new one at first. Raises ConfigError when none is left."""
        async with self._assigning:
            first = await asyncio.to_thread(self._assigned, pod.metadata.uid)
        mapping = pb.IDMapping(host_id=first, container_id=0, length=LENGTH)
        return pb.UserNamespace(mode=pb.POD, uids=[mapping], gids=[mapping])

    def _assigned(self, uid: str) -> int:
        file = self._paths.pod(uid).user_namespace
        known = _read(file)
        if known is not None:
            return known
        taken = {_read(path / "userns") for path in _entries(self._paths.pods)}
        # The first range is the node's own users'.
        for index in range(1, self._max_pods + 1):
            if index * LENGTH not in taken:
                _write(file, index * LENGTH)
                return index * LENGTH
        raise ConfigError(f"no free range of user ids is left for {self._max_pods} pods")


def _entries(directory: Path) -> Iterable[Path]:
    return directory.iterdir() if directory.is_dir() else ()


def _read(file: Path) -> int | None:
    try:
        stored = msgspec.json.decode(file.read_bytes(), type=_Stored)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return stored.uid_mappings[0].host_id if stored.uid_mappings else None


def _write(file: Path, first: int) -> None:
    mapping = _Mapping(host_id=first, container_id=0, length=LENGTH)
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_bytes(
        msgspec.json.encode(_Stored(uid_mappings=(mapping,), gid_mappings=(mapping,)))
    )
    fresh.rename(file)
