"""Memory limit for the files of one pod's volumes.

The node agent writes ConfigMaps, Secrets, the downward API and tokens, so no limit of the pod's
cgroup applies to them. One small object may appear in thousands of volumes, and each tmpfs file
takes whole pages: a pod of a few kilobytes could take all of the node's memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from moorage.node.config.errors import ConfigError

POD_BYTES = 128 * 1024 * 1024
# Measured on Linux 6.18: a mounted tmpfs takes 5 KiB, and the same again in each container; a file
# its pages and 1 KiB; the link to it 0.6 KiB.
_VOLUME_BYTES = 64 * 1024
_FILE_BYTES = 2 * 1024
_PAGE_BYTES = 4 * 1024


class PodMemory:
    """Adds up the memory of one pod's volumes."""

    def __init__(self, most_bytes: int = POD_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0

    def add_volume(self) -> None:
        """Count a volume in memory. Raises ConfigError when the pod's volumes exceed the limit."""
        self._add(_VOLUME_BYTES)

    def add_files(self, sizes: Iterable[int]) -> None:
        """Count files of these sizes in bytes.

        Raises ConfigError when the pod's volumes exceed the limit.
        """
        self._add(sum(-(-size // _PAGE_BYTES) * _PAGE_BYTES + _FILE_BYTES for size in sizes))

    def _add(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._most_bytes:
            raise ConfigError(
                f"the pod's volumes take more than {self._most_bytes} bytes of the node's memory "
                f"together (each counts {_VOLUME_BYTES}, each file its pages and {_FILE_BYTES}); "
                "use fewer volumes, or fewer keys with `items`"
            )


class ObjectMemory:
    """Adds up the objects in one pod's volumes."""

    def __init__(self, most_bytes: int = POD_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0

    def add(self, values: Iterable[str]) -> None:
        """Count an object's values. Raises ConfigError when the pod's objects exceed the limit."""
        self._bytes += sum(map(len, values))
        if self._bytes > self._most_bytes:
            raise ConfigError(
                "the ConfigMaps and Secrets of the pod's volumes are larger than "
                f"{self._most_bytes} bytes together; use fewer or smaller ones"
            )
