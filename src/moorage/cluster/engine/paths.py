"""Paths of a cluster's engine: persistent state in the data directory, the rest in /run.

The kernel accepts no socket path over 107 bytes, and a data directory may have a long path, so
sockets are below a short path of the cluster's own. State that a reboot invalidates (sandboxes'
namespaces, bundles, address leases) is there too, so that a reboot removes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from moorage.cluster.layout import ENGINE_SOCKET, RUN, Layout
from moorage.cluster.settings import Settings

if TYPE_CHECKING:
    from moorage.engine.paths import EnginePaths

HUGETLB_MARKER = RUN / "hugetlb"
"""Records that a cluster on this host moved the hugetlb controller; the last one moves it back."""


@dataclass(frozen=True, slots=True)
class ClusterEnginePaths:
    """The paths of one cluster's engine. `data` survives a reboot, `run` does not."""

    data: Path
    run: Path

    @classmethod
    def of(cls, cluster_id: str, data: Path, run: Path = RUN) -> ClusterEnginePaths:
        """Return the paths of a cluster's engine, absolute."""
        return cls(data.absolute(), run / cluster_id)

    @property
    def engine(self) -> EnginePaths:
        """The paths that the engine itself uses."""
        # Imported here: the API server and the CLI need the other paths without an engine.
        from moorage.engine.paths import EnginePaths

        return EnginePaths(self.data, self.run / "e")

    @property
    def socket(self) -> Path:
        """The engine's CRI socket."""
        return self.run / ENGINE_SOCKET

    @property
    def endpoint(self) -> str:
        """The CRI endpoint, `unix://` and the socket's path."""
        return f"unix://{self.socket}"

    @property
    def hugetlb_marker(self) -> Path:
        """Records that a cluster on this host moved the hugetlb controller.

        The last one moves it back.
        """
        return self.run.parent / HUGETLB_MARKER.name

    @property
    def cni(self) -> Path:
        """The directory of the CNI configuration."""
        return self.data / "cni"

    @property
    def leases(self) -> Path:
        """The directory of the pods' address leases."""
        return self.run / "leases"


def engine_paths(layout: Layout, settings: Settings) -> ClusterEnginePaths:
    """Return the paths of the engine of the cluster with these settings."""
    return ClusterEnginePaths.of(settings.cluster_id, layout.engine, layout.run)


def cgroup_root(settings: Settings) -> str:
    """Return the cgroup below which the node agent keeps its pods."""
    return f"/moorage-{settings.cluster_id}"
