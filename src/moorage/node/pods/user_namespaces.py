"""User ID ranges of pods with user namespaces.

Each pod gets 65536 IDs that no other pod on this host has, in any cluster (`linux/id_register.py`).
The range is stored in the pod's directory, so that a restarted agent assigns none twice. Source:
KEP-127; kubelet `userns` manager, in its file format.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import field

from moorage.api.meta import Object
from moorage.api.pods import Pod
from moorage.linux import id_register
from moorage.linux.atomic_file import replace_file
from moorage.node.config.errors import ConfigError
from moorage.node.paths import NodePaths
from moorage.wire.cri import pb

LENGTH = 65536
# IDs from 2^31 on are negative to programs that use signed integers.
_LAST_INDEX = 2**31 // LENGTH - 1


class _Mapping(Object, frozen=True):
    host_id: int = 0
    container_id: int = 0
    length: int = 0


class _Stored(Object, frozen=True):
    uid_mappings: tuple[_Mapping, ...] = field(default=(), name="uidMappings")
    gid_mappings: tuple[_Mapping, ...] = field(default=(), name="gidMappings")


class UserNamespaces:
    """Assigns ID ranges, at most `max_pods`."""

    def __init__(self, paths: NodePaths, *, max_pods: int, register: Path) -> None:
        self._paths = paths
        self._register = register
        self._max_pods = max_pods
        self._assigning = asyncio.Lock()

    async def of(self, pod: Pod) -> pb.UserNamespace:
        """Return the pod's range; the first call assigns one.

        Raises ConfigError when none is left.
        """
        async with self._assigning:
            first = await asyncio.to_thread(self._assigned, pod.metadata.uid)
        mapping = pb.IDMapping(host_id=first, container_id=0, length=LENGTH)
        return pb.UserNamespace(mode=pb.POD, uids=[mapping], gids=[mapping])

    def _assigned(self, uid: str) -> int:
        file = self._paths.pod(uid).user_namespace
        known = _read(file)
        if known is not None:
            return known
        with id_register.locked_register(self._register):
            own = _ranges(self._paths.pods)
            if len(own) >= self._max_pods:
                raise ConfigError(f"no free range of user ids is left for {self._max_pods} pods")
            first = _first_free(own.union(*map(_ranges, self._others())))
            # Written before the register is updated: a registered directory that is missing counts
            # as gone.
            _write(file, first)
            id_register.enter(self._register, self._paths.pods)
        return first

    def _others(self) -> list[Path]:
        return id_register.others(self._register, self._paths.pods)


def _first_free(taken: set[int]) -> int:
    # The first range belongs to the node's own users.
    for index in range(1, _LAST_INDEX + 1):
        if index * LENGTH not in taken:
            return index * LENGTH
    raise ConfigError("no free range of user ids is left on this machine")


def _ranges(pods: Path) -> set[int]:
    firsts = (_read(path / "userns") for path in _entries(pods))
    return {first for first in firsts if first is not None}


def _entries(directory: Path) -> Iterable[Path]:
    try:
        return list(directory.iterdir())
    except FileNotFoundError:
        return ()


def _read(file: Path) -> int | None:
    try:
        stored = msgspec.json.decode(file.read_bytes(), type=_Stored)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
    return stored.uid_mappings[0].host_id if stored.uid_mappings else None


def _write(file: Path, first: int) -> None:
    mapping = _Mapping(host_id=first, container_id=0, length=LENGTH)
    file.parent.mkdir(parents=True, exist_ok=True)
    stored = _Stored(uid_mappings=(mapping,), gid_mappings=(mapping,))
    replace_file(file, msgspec.json.encode(stored))
