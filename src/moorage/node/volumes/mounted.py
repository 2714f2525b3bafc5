"""Mounted volumes, and the error of a volume that cannot be mounted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moorage.node.pod_facts.errors import SyncError


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
