"""Volume kinds, and those that this node can mount.

A table from the field of `Volume` to its API name; kinds that are not in `MOUNTED` are refused by
name. Source: core/v1 Volume.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from moorage.api.volumes import Volume
from moorage.node.pod_facts.errors import SyncError

# Mounted volumes, and the error of a volume that cannot be mounted.


class VolumeError(SyncError):
    """A volume could not be mounted; the caller records the event."""

    def __init__(self, volume: str, why: object, *, step: str = "SetUp") -> None:
        self._set(volume, f'MountVolume.{step} failed for volume "{volume}" : {why}')

    def _set(self, volume: str, message: str) -> None:
        super().__init__("FailedMount", message)
        self.volume = volume


class UnprocessedVolumeError(VolumeError):
    """A volume's claim or persistent volume cannot be used. Source: kubelet volume manager."""

    def __init__(self, volume: str, why: object) -> None:
        self._set(
            volume,
            f"Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached "
            f"volumes=[], failed to process volumes=[{volume}]: {why}",
        )


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """A mounted volume: a directory or file on the node, or an image."""

    name: str
    kind: str
    path: Path | None
    is_read_only: bool = False


Mounted = dict[str, MountedVolume]
"""Volume name → mounted volume."""


EMPTY_DIR = "emptyDir"
HOST_PATH = "hostPath"
CONFIG_MAP = "configMap"
SECRET = "secret"
DOWNWARD = "downwardAPI"
PROJECTED = "projected"
IMAGE = "image"
CLAIM = "persistentVolumeClaim"
EPHEMERAL = "ephemeral"

PLUGINS = {
    EMPTY_DIR: "empty-dir",
    CONFIG_MAP: "configmap",
    SECRET: "secret",
    DOWNWARD: "downward-api",
    PROJECTED: "projected",
}
"""Kinds with a directory of their own → its name below the pod's volumes."""

FILLED = frozenset({CONFIG_MAP, SECRET, DOWNWARD, PROJECTED})
"""Kinds whose files come from the API; containers cannot write to them."""

CLAIMED = frozenset({CLAIM, EPHEMERAL})
"""Kinds whose files are those of the persistent volume that their claim is bound to."""

MOUNTED = frozenset({*PLUGINS, *CLAIMED, HOST_PATH, IMAGE})

_FIELDS = {
    field.name: field.encode_name
    for field in msgspec.structs.fields(Volume)
    if field.name != "name"
}


def kind_of(volume: Volume) -> str:
    """Return the kind by its API name; a volume without a source is an emptyDir."""
    for field, name in _FIELDS.items():
        if getattr(volume, field) is not None:
            return name
    return EMPTY_DIR
